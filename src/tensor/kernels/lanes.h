/** \file lanes.h  Floor 1, tensor: sums in an order that no machine changes.
 *
 *  Term i goes to lane i % LANES; at the end the lanes are added as a balanced
 *  tree.  A vector unit of any width up to LANES does this as written, so the
 *  compiler need not reorder anything.
 *
 *  A sum is written as a function for a group of `count` terms, called with
 *  LANES for the whole groups, which the compiler then turns into vectors, and
 *  once with what is left.
 */
#ifndef FSDP_TENSOR_KERNELS_LANES_H
#define FSDP_TENSOR_KERNELS_LANES_H

#include "tensor/kernels/real.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };

/** Adds the lanes as a tree; uses them up. */
ALWAYS_INLINE real_t
lanes_sum(real_t lanes[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

/** Adds a group of `count` terms to the lanes. */
ALWAYS_INLINE void
lanes_add(real_t lanes[LANES], const real_t *x, size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] += x[l];
}

/** The sum of x[n]. */
ALWAYS_INLINE real_t
lanes_sum_of(const real_t *x, size_t n)
{
    real_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_add(lanes, x + i, LANES);
    lanes_add(lanes, x + i, n - i);
    return lanes_sum(lanes);
}

/** The largest lane; NaNs do not count. */
ALWAYS_INLINE real_t
lanes_max(const real_t lanes[LANES])
{
    real_t max = lanes[0];
    for (size_t l = 1; l < LANES; l++)
        max = lanes[l] > max ? lanes[l] : max;
    return max;
}

#endif
