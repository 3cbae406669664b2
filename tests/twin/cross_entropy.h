/** \file cross_entropy.h  Twin of the loss. */
#ifndef TWIN_CROSS_ENTROPY_H
#define TWIN_CROSS_ENTROPY_H

#include "twin/numbers.h"

/** loss and dlogits [V] of one row with V logits, not ignored.
 *
 *  With t_i = x_i - max (rounded once):  loss = (max - x_target) + log sum e^t,
 *  the sum with gamma_(V-1);  dlogits_i = e^t_i (scale / sum), two roundings
 *  more;  that of the target (e^t / sum - 1) scale, three. */
static inline bounded_t
twin_cross_entropy(numbers_t logits, size_t row, size_t classes, size_t target,
                   double scale, bounded_t *dlogits)
{
    double max = -INFINITY;
    for (size_t i = 0; i < classes; i++)
        max = fmax(max, numbers_get(logits, row * classes + i));
    bounded_t *terms = twin_alloc(classes, sizeof *terms);
    for (size_t i = 0; i < classes; i++)
        terms[i] = b_exp(b_sub(b_exact(numbers_get(logits, row * classes + i)),
                               b_exact(max)));
    bounded_t sum = b_sum(terms, classes), s = b_round(scale, 0, 1);
    for (size_t i = 0; i < classes; i++)
        dlogits[i] = b_mul(terms[i], b_div(s, sum));
    dlogits[target] = b_mul(b_sub(b_div(terms[target], sum), b_exact(1)), s);
    fsdp_free(terms);
    bounded_t below = b_sub(
        b_exact(max), b_exact(numbers_get(logits, row * classes + target)));
    return b_add(below, b_log(sum));
}

#endif
