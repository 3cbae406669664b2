/** \file grad_sum.h  Floor 3, fsdp: a gradient, summed over backwards.
 *
 *  PyTorch adds each backward's reduced gradient to the one that is there.  In
 *  the order `tree` the terms of several micro-batches are added as a balanced
 *  binary tree over their index instead, so that the tree over all micro-batches
 *  of all ranks has the same shape whatever the number of ranks (design C2).
 *  Terms come one at a time; like the bits of a counter, at most one partial sum
 *  of each size 2^level is kept.
 */
#ifndef FSDP_GRAD_SUM_H
#define FSDP_GRAD_SUM_H

#include "fsdp/comm.h"

enum {
    FSDP_GRAD_SUM_LEVELS = 48,
    FSDP_GRAD_SUM_CLOSED = 255 /**< read already; grows by whole sums only */
};

typedef struct fsdp_grad_sum {
    int count;                        /**< partial sums now, oldest first     */
    void *part[FSDP_GRAD_SUM_LEVELS]; /**< owned                              */
    unsigned char level[FSDP_GRAD_SUM_LEVELS];
} fsdp_grad_sum_t;

/** Adds `term` [numel] (owned from now on, from fsdp_alloc() or
 *  fsdp_offload_calloc()). */
void fsdp_grad_sum_add(fsdp_grad_sum_t *sum, fsdp_dtype_t dtype,
                       fsdp_reduce_order_t order, void *term, size_t numel);
/** The sum of all terms, or NULL if there was none.  Stays owned by `sum`;
 *  terms that come later are summed by themselves and then added to it. */
void *fsdp_grad_sum_read(fsdp_grad_sum_t *sum, fsdp_dtype_t dtype,
                         size_t numel);
/** Forgets all terms. */
void fsdp_grad_sum_clear(fsdp_grad_sum_t *sum);

#endif
