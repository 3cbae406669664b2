/** \file parts.h  Floor 2, nn: sums in parts, as several ranks would make them.
 *
 *  One process in the place of T ranks computes their terms one after another
 *  and adds them in the order that an all-reduce over the ranks would have.
 */
#ifndef FSDP_NN_PARTS_H
#define FSDP_NN_PARTS_H

#include "fsdp/comm.h"

typedef struct fsdp_parts {
    int count;  /**< T; what is cut has a multiple of T groups elements       */
    int groups; /**< pieces that are cut each by itself; at least 1           */
    fsdp_reduce_order_t order;
} fsdp_parts_t;

/** Part `p` of x[outer][dim][inner] cut along the middle, to
 *  out[outer][dim / T][inner]; `inner` in bytes. */
void fsdp_parts_take(const fsdp_parts_t *parts, int p, const void *x,
                     size_t outer, size_t dim, size_t inner, void *out);

/** out[n] = the sum of terms[T][n], each addition rounded to dtype.  The terms
 *  are used up; `out` may be one of them. */
void fsdp_parts_sum(const fsdp_parts_t *parts, fsdp_dtype_t dtype,
                    void *const *terms, void *out, size_t n);

#endif
