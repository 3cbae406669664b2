/** \file softmax_row.h  Floor 1, tensor: maximum and exponentials of a row. */
#ifndef FSDP_TENSOR_KERNELS_SOFTMAX_ROW_H
#define FSDP_TENSOR_KERNELS_SOFTMAX_ROW_H

#include "tensor/kernels/lanes.h"

/** The sum of exponentials runs in chunks, so that errors grow with
 *  CHUNK / LANES and V / CHUNK, not with V / LANES. */
enum { CHUNK = 64 * LANES };

ALWAYS_INLINE void
max_lanes(real_t lanes[LANES], const real_t *x, size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] = x[l] > lanes[l] ? x[l] : lanes[l];
}

ALWAYS_INLINE real_t
largest_of(const real_t *x, size_t n)
{
    real_t lanes[LANES];
    for (size_t l = 0; l < LANES; l++)
        lanes[l] = -REAL_INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        max_lanes(lanes, x + i, LANES);
    max_lanes(lanes, x + i, n - i);
    return lanes_max(lanes);
}

/** lanes += e^(x - max), also kept in `out` */
ALWAYS_INLINE void
add_exponentials(real_t lanes[LANES], const real_t *x, real_t max, real_t *out,
                 size_t count)
{
#pragma omp simd
    for (size_t l = 0; l < count; l++) {
        real_t e = real_exp(x[l] - max);
        lanes[l] += e;
        out[l] = e;
    }
}

/** The sum of e^(x - max) over a chunk; the terms go to `out`. */
ALWAYS_INLINE real_t
chunk_sum(const real_t *x, real_t max, real_t *out, size_t n)
{
    real_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_exponentials(lanes, x + i, max, out + i, LANES);
    add_exponentials(lanes, x + i, max, out + i, n - i);
    return lanes_sum(lanes);
}

/** The same over a row; the terms go to `dlogits` unless it is NULL. */
ALWAYS_INLINE real_t
exponential_sum(const real_t *x, real_t max, real_t *dlogits, size_t n)
{
    real_t scratch[CHUNK], sum = 0;
    for (size_t i = 0; i < n; i += CHUNK) {
        real_t *out = dlogits != NULL ? dlogits + i : scratch;
        sum += chunk_sum(x + i, max, out, n - i < CHUNK ? n - i : CHUNK);
    }
    return sum;
}

ALWAYS_INLINE void
scale_row(real_t *x, real_t factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

#endif
