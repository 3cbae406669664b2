/** \file optimizers.h  Twins of SGD and AdamW.
 *
 *  Twice each: as PyTorch's sequence of whole-tensor operations, each rounded
 *  to the type, which the kernels must reproduce bit for bit; and with bounds,
 *  as the textbook writes it.
 */
#ifndef TWIN_OPTIMIZERS_H
#define TWIN_OPTIMIZERS_H

#include "twin/numbers.h"

/* -- PyTorch's tensor operations; a scalar is rounded to the type first -- */

/** x.mul_(scalar) */
static inline void
torch_mul(numbers_t x, double scalar)
{
    scalar = twin_round(x.dtype, scalar);
    for (size_t i = 0; i < x.n; i++)
        numbers_set(x, i, numbers_get(x, i) * scalar);
}

/** x.div_(scalar) */
static inline void
torch_div(numbers_t x, double scalar)
{
    scalar = twin_round(x.dtype, scalar);
    for (size_t i = 0; i < x.n; i++)
        numbers_set(x, i, numbers_get(x, i) / scalar);
}

/** x.add_(scalar) */
static inline void
torch_add_scalar(numbers_t x, double scalar)
{
    scalar = twin_round(x.dtype, scalar);
    for (size_t i = 0; i < x.n; i++)
        numbers_set(x, i, numbers_get(x, i) + scalar);
}

/** x.add_(y, alpha=alpha) */
static inline void
torch_add(numbers_t x, numbers_t y, double alpha)
{
    alpha = twin_round(x.dtype, alpha);
    for (size_t i = 0; i < x.n; i++) {
        double product = twin_round(x.dtype, alpha * numbers_get(y, i));
        numbers_set(x, i, numbers_get(x, i) + product);
    }
}

/** x.lerp_(end, weight) */
static inline void
torch_lerp(numbers_t x, numbers_t end, double weight)
{
    weight = twin_round(x.dtype, weight);
    double rest = twin_round(x.dtype, 1 - weight);
    for (size_t i = 0; i < x.n; i++) {
        double a = numbers_get(x, i), b = numbers_get(end, i);
        double way = twin_round(x.dtype, b - a);
        if (weight < 0.5)
            numbers_set(x, i, a + twin_round(x.dtype, weight * way));
        else
            numbers_set(x, i, b - twin_round(x.dtype, way * rest));
    }
}

/** x.addcmul_(a, b, value=value) */
static inline void
torch_addcmul(numbers_t x, numbers_t a, numbers_t b, double value)
{
    value = twin_round(x.dtype, value);
    for (size_t i = 0; i < x.n; i++) {
        double product = twin_round(x.dtype, value * numbers_get(a, i));
        product = twin_round(x.dtype, product * numbers_get(b, i));
        numbers_set(x, i, numbers_get(x, i) + product);
    }
}

/** x.addcdiv_(a, b, value=value) */
static inline void
torch_addcdiv(numbers_t x, numbers_t a, numbers_t b, double value)
{
    value = twin_round(x.dtype, value);
    for (size_t i = 0; i < x.n; i++) {
        double quotient = twin_round(x.dtype, value * numbers_get(a, i));
        quotient = twin_round(x.dtype, quotient / numbers_get(b, i));
        numbers_set(x, i, numbers_get(x, i) + quotient);
    }
}

/** x.sqrt() */
static inline numbers_t
torch_sqrt(numbers_t x)
{
    numbers_t y = numbers_make(x.dtype, x.n);
    for (size_t i = 0; i < x.n; i++)
        numbers_set(y, i, sqrt(numbers_get(x, i)));
    return y;
}

typedef struct twin_adamw {
    double lr, beta1, beta2, eps, weight_decay;
} twin_adamw_t;

/** torch/optim/adam.py, _single_tensor_adam(), decoupled, line by line */
static inline void
torch_adamw(twin_adamw_t o, numbers_t param, numbers_t grad, numbers_t exp_avg,
            numbers_t exp_avg_sq, int step)
{
    if (o.weight_decay != 0)
        torch_mul(param, 1 - o.lr * o.weight_decay);
    torch_lerp(exp_avg, grad, 1 - o.beta1);
    torch_mul(exp_avg_sq, o.beta2);
    torch_addcmul(exp_avg_sq, grad, grad, 1 - o.beta2);
    double bias_correction1 = 1 - pow(o.beta1, step);
    double bias_correction2 = 1 - pow(o.beta2, step);
    numbers_t denom = torch_sqrt(exp_avg_sq);
    torch_div(denom, pow(bias_correction2, 0.5));
    torch_add_scalar(denom, o.eps);
    torch_addcdiv(param, exp_avg, denom, -(o.lr / bias_correction1));
    numbers_free(denom);
}

typedef struct twin_sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
} twin_sgd_t;

/** torch/optim/sgd.py, _single_tensor_sgd(), line by line */
static inline void
torch_sgd(twin_sgd_t o, numbers_t param, numbers_t grad, numbers_t buffer,
          bool first)
{
    numbers_t d = numbers_copy(grad);
    if (o.weight_decay != 0)
        torch_add(d, param, o.weight_decay);
    if (o.momentum != 0) {
        if (first) {
            memcpy(buffer.data, d.data, d.n * fsdp_dtype_size(d.dtype));
        } else {
            torch_mul(buffer, o.momentum);
            torch_add(buffer, d, 1 - o.dampening);
        }
        if (o.nesterov)
            torch_add(d, buffer, o.momentum);
        else
            memcpy(d.data, buffer.data, d.n * fsdp_dtype_size(d.dtype));
    }
    torch_add(param, d, -o.lr);
    numbers_free(d);
}

/* -- the textbook, with bounds -- */

static inline bounded_t
twin_scalar(double v)
{
    return b_round(v, 0, 1);
}

/** One element's step of AdamW (Loshchilov and Hutter, algorithm 2): m and v are
 *  moving averages, mhat and vhat what they would be without their start at 0.
 *
 *      p = p - lr weight_decay p - lr mhat / (sqrt(vhat) + eps)
 *
 *  Each average is three operations here, as in the kernel; the last line is
 *  -lr/(1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) there, as many
 *  roundings.  lerp's a + w (b - a) has the error of its two terms
 *  (b - a) and a, at most that of the sum |a| + w |b - a|. */
static inline void
twin_adamw_step(twin_adamw_t o, double grad, int step, bounded_t *p,
                bounded_t *m, bounded_t *v)
{
    bounded_t g = b_exact(grad);
    bounded_t way = b_sub(g, *m);
    *m = o.beta1 > 0.5 ? b_add(*m, b_mul(twin_scalar(1 - o.beta1), way))
                       : b_sub(g, b_mul(b_round(o.beta1, 0, 2), way));
    *v = b_add(b_mul(twin_scalar(o.beta2), *v),
               b_mul(b_mul(twin_scalar(1 - o.beta2), g), g));
    bounded_t root = b_sqrt(*v);
    bounded_t denom =
        b_add(b_div(root, twin_scalar(sqrt(1 - pow(o.beta2, step)))),
              twin_scalar(o.eps));
    bounded_t decayed = b_mul(*p, twin_scalar(1 - o.lr * o.weight_decay));
    bounded_t rate = twin_scalar(o.lr / (1 - pow(o.beta1, step)));
    *p = b_sub(decayed, b_div(b_mul(rate, *m), denom));
}

#endif
