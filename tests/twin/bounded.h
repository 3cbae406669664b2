/** \file bounded.h  Numbers that know how wrong a kernel may get them.
 *
 *  A twin is a kernel once more in plain loops and libm's functions, computed in
 *  float64 with bounded_t instead of numbers.  Beside the value v it carries a
 *  bound e on the distance between v and what arithmetic with unit roundoff u
 *  (2^-24 or 2^-53) may make of it, by the standard model of rounding: each
 *  operation adds u times its result, and a sum of n terms in any order adds
 *  gamma_(n-1) sum|terms|, where gamma_k = k u / (1 - k u).  (Higham, Accuracy
 *  and Stability of Numerical Algorithms, 2nd edition, sections 2.2, 3.3, 4.2.)
 *  So each kernel's bound follows from its formula; nothing is tuned.
 *
 *  The float64 twin rounds too: the comparison allows c e, c = 1 + 2^-53 / u.
 */
#ifndef TWIN_BOUNDED_H
#define TWIN_BOUNDED_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "fsdp/dtype.h"

typedef struct bounded {
    double v; /**< the value                             */
    double e; /**< how far the kernel's may be from it   */
} bounded_t;

/** Unit roundoff and smallest positive number of the type under test. */
static double twin_u, twin_tiny;

static inline void
twin_begin(fsdp_dtype_t dtype)
{
    twin_u = dtype == FSDP_FP64 ? 0x1p-53 : 0x1p-24;
    twin_tiny = dtype == FSDP_FP64 ? 0x1p-1074 : 0x1p-149;
}

static inline double
twin_gamma(double k)
{
    return k * twin_u / (1 - k * twin_u);
}

static inline bounded_t
b_exact(double v)
{
    return (bounded_t){v, 0};
}

/** The result v, known to e before it is rounded `times` times. */
static inline bounded_t
b_round(double v, double e, double times)
{
    return (bounded_t){v, e + twin_gamma(times) * (fabs(v) + e)};
}

/** The same for operations that can underflow. */
static inline bounded_t
b_round_tiny(double v, double e, double times)
{
    bounded_t r = b_round(v, e, times);
    r.e += times * twin_tiny;
    return r;
}

static inline bounded_t
b_add(bounded_t a, bounded_t b)
{
    return b_round(a.v + b.v, a.e + b.e, 1);
}

static inline bounded_t
b_sub(bounded_t a, bounded_t b)
{
    return b_round(a.v - b.v, a.e + b.e, 1);
}

static inline bounded_t
b_mul(bounded_t a, bounded_t b)
{
    double e = fabs(a.v) * b.e + a.e * fabs(b.v) + a.e * b.e;
    return b_round_tiny(a.v * b.v, e, 1);
}

/** a / b, an infinite bound if b may be 0; exact if b is a power of two. */
static inline bounded_t
b_div(bounded_t a, bounded_t b)
{
    double v = a.v / b.v, least = fabs(b.v) - b.e;
    double e = least > 0 ? (a.e + fabs(v) * b.e) / least : INFINITY;
    int exponent;
    bool exact = b.e == 0 && fabs(frexp(b.v, &exponent)) == 0.5;
    bounded_t r = b_round(v, e, exact ? 0 : 1);
    r.e += twin_tiny;
    return r;
}

/** A rising function of libm (within 2^-52 of its value, relatively), which the
 *  kernel rounds `times` times. */
static inline bounded_t
b_rising(double (*f)(double), bounded_t a, double times)
{
    double v = f(a.v), up = f(a.v + a.e) - v, down = v - f(a.v - a.e);
    double e = a.e == 0 ? 0 : fmax(up, down) + 0x1p-51 * fabs(v);
    return b_round_tiny(v, e, times);
}

static inline bounded_t
b_sqrt(bounded_t a)
{
    if (a.v < a.e)
        return (bounded_t){sqrt(a.v), INFINITY};
    return b_rising(sqrt, a, 1);
}

/* The library's own functions are within 2 ULP of correctly rounded, that is
 * 2 1/2 ULP = 5 u of the true value. */
static inline bounded_t
b_exp(bounded_t a)
{
    return b_rising(exp, a, 5);
}

static inline bounded_t
b_tanh(bounded_t a)
{
    return b_rising(tanh, a, 5);
}

static inline bounded_t
b_erf(bounded_t a)
{
    return b_rising(erf, a, 5);
}

static inline bounded_t
b_log(bounded_t a)
{
    if (a.v <= a.e)
        return (bounded_t){log(a.v), INFINITY};
    return b_rising(log, a, 5);
}

/** n terms added in any order. */
static inline bounded_t
b_sum(const bounded_t *terms, size_t n)
{
    double v = 0, e = 0, magnitude = 0;
    for (size_t i = 0; i < n; i++) {
        v += terms[i].v;
        e += terms[i].e;
        magnitude += fabs(terms[i].v) + terms[i].e;
    }
    return (bounded_t){v,
                       e + twin_gamma((double)(n > 0 ? n - 1 : 0)) * magnitude};
}

/** Is `got` the value `want`?  NaN for NaN and the same infinity are. */
static inline bool
twin_is(double got, bounded_t want)
{
    if (isnan(want.v))
        return isnan(got);
    if (isinf(want.v))
        return got == want.v;
    double c = 1 + 0x1p-53 / twin_u;
    return isfinite(want.e) && fabs(got - want.v) <= c * want.e;
}

#endif
