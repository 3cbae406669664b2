/** \file silu.h  Twin of x sigmoid(x). */
#ifndef TWIN_SILU_H
#define TWIN_SILU_H

#include "twin/numbers.h"

/** 1 / (1 + exp(-x)) */
static inline bounded_t
twin_sigmoid(double x)
{
    return b_div(b_exact(1), b_add(b_exact(1), b_exp(b_exact(-x))));
}

/** Below -80 exp(-x) may be infinite in float32, and the result 0: it is off by
 *  itself at most. */
static inline bounded_t
twin_silu(double x)
{
    double v = x * exp(x);
    if (x < -80)
        return (bounded_t){v, fabs(v) + twin_tiny};
    return b_div(b_exact(x), b_add(b_exact(1), b_exp(b_exact(-x))));
}

/** s (1 + x (1 - s)) dy.  From 40 on exp(-x) < 2^-57, s is 1 in both types, and
 *  the slope 1 is off by (x + 1) exp(-x). */
static inline bounded_t
twin_silu_backward(double x, double dy)
{
    double v = dy * exp(x) * (1 + x);
    if (x < -80)
        return (bounded_t){v, fabs(v) + twin_tiny};
    if (x > 40)
        return (bounded_t){dy, fabs(dy) * (x + 1) * exp(-x)};
    bounded_t one = b_exact(1), s = twin_sigmoid(x);
    bounded_t slope = b_mul(s, b_add(one, b_mul(b_exact(x), b_sub(one, s))));
    return b_mul(b_exact(dy), slope);
}

#endif
