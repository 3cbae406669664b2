/** \file gelu.h  Twins of the activation functions. */
#ifndef TWIN_GELU_H
#define TWIN_GELU_H

#include "twin/numbers.h"

/* Each constant of a formula is rounded to the type once. */
static inline bounded_t
twin_constant(double v)
{
    return b_round(v, 0, 1);
}

/** sqrt(2 / pi) (x + 0.044715 x^3) */
static inline bounded_t
twin_gelu_inner(bounded_t x)
{
    bounded_t cube = b_mul(x, b_mul(x, x));
    return b_mul(twin_constant(sqrt(2 / M_PI)),
                 b_add(x, b_mul(twin_constant(0.044715), cube)));
}

/** x / 2 (1 + tanh(inner)): five roundings before tanh, which shrinks errors
 *  where it is flat; where 1 + tanh cancels, the bound is gamma_k |x|. */
static inline bounded_t
twin_gelu_tanh(double at)
{
    bounded_t x = b_exact(at), t = b_tanh(twin_gelu_inner(x));
    return b_mul(b_mul(b_exact(0.5), x), b_add(b_exact(1), t));
}

/** (1 + t)/2 + x/2 (1 - t^2) inner'(x), times dy.  1 - t^2 is (1 - t)(1 + t). */
static inline bounded_t
twin_gelu_tanh_backward(double at, double dy)
{
    bounded_t x = b_exact(at), half = b_exact(0.5), one = b_exact(1);
    bounded_t t = b_tanh(twin_gelu_inner(x));
    bounded_t cubic = b_mul(b_exact(3), twin_constant(0.044715));
    bounded_t slope = b_mul(twin_constant(sqrt(2 / M_PI)),
                            b_add(one, b_mul(cubic, b_mul(x, x))));
    bounded_t bell = b_mul(b_sub(one, t), b_add(one, t));
    bounded_t sum = b_add(b_mul(half, b_add(one, t)),
                          b_mul(b_mul(b_mul(half, x), bell), slope));
    return b_mul(b_exact(dy), sum);
}

/** x / 2 (1 + erf(x / sqrt 2)) */
static inline bounded_t
twin_gelu_erf(double at)
{
    bounded_t x = b_exact(at);
    bounded_t t = b_erf(b_mul(twin_constant(M_SQRT1_2), x));
    return b_mul(b_mul(b_exact(0.5), x), b_add(b_exact(1), t));
}

/** (1 + erf(x / sqrt 2))/2 + x exp(-x^2 / 2) / sqrt(2 pi), times dy */
static inline bounded_t
twin_gelu_erf_backward(double at, double dy)
{
    bounded_t x = b_exact(at), half = b_exact(0.5);
    bounded_t t = b_erf(b_mul(twin_constant(M_SQRT1_2), x));
    bounded_t density = b_mul(twin_constant(1 / sqrt(2 * M_PI)),
                              b_exp(b_mul(b_mul(b_exact(-0.5), x), x)));
    bounded_t sum = b_add(b_mul(half, b_add(b_exact(1), t)), b_mul(x, density));
    return b_mul(b_exact(dy), sum);
}

#endif
