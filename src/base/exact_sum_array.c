/* Exact sums of whole arrays.
 *
 * For float64 term by term.  Arrays of float32 are long (all gradients of a
 * model), and take a way that the compiler can turn into vectors:
 *
 * A block of terms is cut at fixed places of the number line.  With sigma =
 * 1.5 2^M and |t| <= 2^(M - 1), q = (t + sigma) - sigma is t rounded to a
 * multiple of 2^(M - 52), and r = t - q is exact.  If |t| <= 2^E for all terms
 * and M = E + 9, then the sum of the 2^10 q's is a multiple of 2^(M - 52) and
 * at most 2^(E + 10) = 2^53 2^(M - 52): a double holds it, and every partial
 * sum, exactly.  All |r| <= 2^(M - 53) = 2^(E - 44), so the r's are cut again
 * with M less by 44, until they are zero.  Squares and magnitudes of floats
 * keep sigma and 2^(M - 52) far from overflow and underflow.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/vmath.h"
#include "fsdp/exact_sum.h"

enum { BLOCK = 1024 };

/* The largest |x|, as bits: those of non-negative floats are in order, with
 * infinity and the NaNs at the top. */
static uint32_t
largest(const float *x, int n)
{
    int32_t most = 0;
    for (int i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Cuts all terms at `sigma`, leaves the rests in their place and returns the
 * sum of what was cut off; `*left` says whether any rest is not zero.  The
 * compiler may add in any order, since it is exact. */
static double
cut(double *term, double sigma, bool *left)
{
    double sum = 0.0;
    uint64_t rests = 0;
#pragma omp simd reduction(+ : sum) reduction(| : rests)
    for (int i = 0; i < BLOCK; i++) {
        double q = (term[i] + sigma) - sigma;
        double rest = term[i] - q;
        term[i] = rest;
        sum += q;
        rests |= fsdp_bits_of_f64(rest);
    }
    *left = rests != 0;
    return sum;
}

/* Adds finite terms of at most 2^exponent, which are lost. */
static void
add_block(fsdp_exact_sum_t *sum, double *term, int exponent)
{
    double sigma = ldexp(1.5, exponent + 9);
    for (bool left = true; left; sigma *= 0x1p-44)
        fsdp_exact_sum_add(sum, cut(term, sigma, &left));
}

static inline double
term_of(float x, bool square)
{
    return square ? (double)x * (double)x : fabs((double)x); /* exact */
}

/* Adds the squares or magnitudes of up to BLOCK elements. */
static inline void
add_elements(fsdp_exact_sum_t *sum, const float *x, int n, bool square)
{
    uint32_t most = largest(x, n);
    int exponent = (int)(most >> 23) - 126; /* |x| < 2^exponent */
    if (most >= 0x7f800000) {
        for (int i = 0; i < n; i++)
            fsdp_exact_sum_add(sum, term_of(x[i], square));
        return;
    }
    double term[BLOCK];
    for (int i = 0; i < n; i++)
        term[i] = term_of(x[i], square);
    for (int i = n; i < BLOCK; i++)
        term[i] = 0.0;
    add_block(sum, term, square ? 2 * exponent : exponent);
}

void
fsdp_exact_sum_add_squares_f32(fsdp_exact_sum_t *sum, const float *x, size_t n)
{
    for (; n > BLOCK; x += BLOCK, n -= BLOCK)
        add_elements(sum, x, BLOCK, true);
    add_elements(sum, x, (int)n, true);
}

void
fsdp_exact_sum_add_magnitudes_f32(fsdp_exact_sum_t *sum, const float *x,
                                  size_t n)
{
    for (; n > BLOCK; x += BLOCK, n -= BLOCK)
        add_elements(sum, x, BLOCK, false);
    add_elements(sum, x, (int)n, false);
}

void
fsdp_exact_sum_add_squares_f64(fsdp_exact_sum_t *sum, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fsdp_exact_sum_add_square(sum, x[i]);
}

void
fsdp_exact_sum_add_magnitudes_f64(fsdp_exact_sum_t *sum, const double *x,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        fsdp_exact_sum_add(sum, fabs(x[i]));
}
