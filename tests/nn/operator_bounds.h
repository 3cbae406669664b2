/** \file operator_bounds.h  How far an operator's results may be off.
 *
 *  Each function computes an operator's output and gradients in bounded_t
 *  (twin/bounded.h), from the values and the upstream gradient of a case, so
 *  that every sum's bound comes from the sum of its terms' magnitudes.
 */
#ifndef TESTS_NN_OPERATOR_BOUNDS_H
#define TESTS_NN_OPERATOR_BOUNDS_H

#include "nn/nn_case.h"
#include "twin/bounded.h"

/** `out` has the output's elements, grad[k] those of array k. */
typedef void (*operator_bounds_t)(const nn_case_t *c, bounded_t *out,
                                  bounded_t *const *grad);

/** That of the operator called `name`; NULL if there is none.  The type under
 *  test is set by twin_begin() of the file that includes this. */
operator_bounds_t operator_bounds(const char *name);
/** The type that the bounds are for.  For a 16-bit type they are those of the
 *  float32 arithmetic and of 16-bit results within the operator: the rounding
 *  of the results themselves is not in them, see half_is(). */
void operator_bounds_begin(fsdp_dtype_t dtype);
/** Attention with a dropout that multiplies by factor[B,H,T,T]. */
void operator_bounds_attention(const nn_case_t *c, const double *factor,
                               bounded_t *out, bounded_t *const *grad);

#endif
