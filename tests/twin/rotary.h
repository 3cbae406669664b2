/** \file rotary.h  Twin of rotary position embeddings. */
#ifndef TWIN_ROTARY_H
#define TWIN_ROTARY_H

#include "twin/numbers.h"

/** x [N,H D], row r at position r % T. */
typedef struct twin_rotary {
    size_t rows, positions, heads, depth;
    double theta;
} twin_rotary_t;

/** Cosine and sine of t theta^(-2 i / D), each rounded to the type once; the
 *  long double that they are made in is off by far less. */
static inline void
twin_rotary_angle(const twin_rotary_t *t, size_t position, size_t i,
                  bounded_t *cosine, bounded_t *sine)
{
    long double angle =
        (long double)position /
        powl(t->theta, 2 * (long double)i / (long double)t->depth);
    *cosine = b_round((double)cosl(angle), 0, 1);
    *sine = b_round((double)sinl(angle), 0, 1);
}

/** The pair (x_i, x_(i + D/2)) of each head, as a complex number, times
 *  exp(i angle), or exp(-i angle) if `inverse`. */
static inline void
twin_rotary(const twin_rotary_t *t, const double *x, bool inverse, bounded_t *y)
{
    size_t half = t->depth / 2;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t h = 0; h < t->heads; h++)
            for (size_t i = 0; i < half; i++) {
                size_t at = (r * t->heads + h) * t->depth + i;
                bounded_t a = b_exact(x[at]), b = b_exact(x[at + half]), c, s;
                twin_rotary_angle(t, r % t->positions, i, &c, &s);
                s.v = inverse ? -s.v : s.v;
                y[at] = b_sub(b_mul(a, c), b_mul(b, s));
                y[at + half] = b_add(b_mul(a, s), b_mul(b, c));
            }
}

#endif
