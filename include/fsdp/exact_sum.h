/** \file exact_sum.h  Floor 0, base: sums without rounding.
 *
 *  A long fixed-point number in the manner of Neal's small superaccumulator
 *  ("Fast exact summation using small and large superaccumulators", 2015): any
 *  number of doubles is added exactly and the sum is rounded once, to nearest
 *  even, at the end.  So no order, chunking or number of ranks shows.
 */
#ifndef FSDP_EXACT_SUM_H
#define FSDP_EXACT_SUM_H

#include <stddef.h>
#include <stdint.h>

enum { FSDP_EXACT_LIMBS = 68 };

typedef struct fsdp_exact_sum {
    int64_t limb[FSDP_EXACT_LIMBS]; /**< limb i counts 2^(32 i - 1074 - 32)'s  */
    int64_t nan, plus_inf, minus_inf; /**< how many such terms were added      */
    int64_t pending; /**< additions since the last carry, which counts as one  */
} fsdp_exact_sum_t;

enum { FSDP_EXACT_WORDS = sizeof(fsdp_exact_sum_t) / sizeof(int64_t) };

void fsdp_exact_sum_clear(fsdp_exact_sum_t *sum);
/** Adds one double; NaN and infinities are counted and decide the result. */
void fsdp_exact_sum_add(fsdp_exact_sum_t *sum, double term);
/** Adds the exact square of a double.  What lies below 2^-1106 is dropped, so
 *  for |x| < 2^-500 or so it may be less than the square; a square that rounds
 *  to infinity, for |x| >= 2^512 or so, counts as an infinity. */
void fsdp_exact_sum_add_square(fsdp_exact_sum_t *sum, double x);
/** The same for the n elements of an array, the way to sum many: for the norms
 *  with p = 2 and p = 1 (the sum of |x|).  Any split of an array gives the same
 *  sum. */
void fsdp_exact_sum_add_squares_f32(fsdp_exact_sum_t *sum, const float *x,
                                    size_t n);
void fsdp_exact_sum_add_squares_f64(fsdp_exact_sum_t *sum, const double *x,
                                    size_t n);
void fsdp_exact_sum_add_magnitudes_f32(fsdp_exact_sum_t *sum, const float *x,
                                       size_t n);
void fsdp_exact_sum_add_magnitudes_f64(fsdp_exact_sum_t *sum, const double *x,
                                       size_t n);
/** Carries, so that each limb is in [-2^31, 2^31).  After it the FSDP_EXACT_WORDS
 *  words of up to 2^20 sums may be added as int64, by MPI for instance, and
 *  the result is a valid accumulator (`pending` included). */
void fsdp_exact_sum_carry(fsdp_exact_sum_t *sum);
void fsdp_exact_sum_merge(fsdp_exact_sum_t *sum, const fsdp_exact_sum_t *other);
/** The sum rounded once to nearest, ties to even; infinities on overflow.  A sum
 *  of nothing, or of zeros of any sign, is +0. */
double fsdp_exact_sum_round(const fsdp_exact_sum_t *sum);

#endif
