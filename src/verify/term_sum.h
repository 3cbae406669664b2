/** \file term_sum.h  Floor 6, verify: sums of arrays in the contract's orders.
 *
 *  The terms come one by one, by index.  `tree` keeps at most one partial sum
 *  for each level of the tree, `rank` one, `ring` all terms, because where it
 *  begins depends on the element.
 */
#ifndef FSDP_VERIFY_TERM_SUM_H
#define FSDP_VERIFY_TERM_SUM_H

#include "fsdp/comm.h"

typedef struct term_sum {
    void **part; /**< oldest first; owned */
    int *level;  /**< 2^level terms are in it (`tree`) */
    int count, room;
} term_sum_t;

/** Takes over `term`, [numel]. */
void term_sum_add(term_sum_t *sum, fsdp_dtype_t dtype,
                  fsdp_reduce_order_t order, void *term, size_t numel);
/** The sum, which the caller owns; NULL if there was no term.  For `ring`
 *  element i goes to destination[i]; NULL: to 0.  The sum is empty then. */
void *term_sum_take(term_sum_t *sum, fsdp_dtype_t dtype,
                    fsdp_reduce_order_t order, size_t numel,
                    const int *destination);
void term_sum_destroy(term_sum_t *sum);

#endif
