#include <math.h>

#include "fsdp/status.h"
#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* Each line of arithmetic below is one tensor operation of PyTorch's and rounds
 * where that does.  (PyTorch's AVX2 build fuses the multiply and the add of
 * lerp_ and of add_(alpha=...), which changes the last bit; we never fuse.) */

typedef struct sgd {
    real_t *param, *buffer;
    const real_t *grad;
    real_t minus_lr, momentum, one_minus_dampening, weight_decay;
    bool first, nesterov;
} sgd_t;

/* The gradient after momentum; `buffer` is updated. */
ALWAYS_INLINE real_t
with_momentum(const sgd_t *o, real_t grad, real_t *buffer)
{
    real_t b =
        o->first ? grad : *buffer * o->momentum + o->one_minus_dampening * grad;
    *buffer = b;
    return o->nesterov ? grad + o->momentum * b : b;
}

FSDP_CLONES static void
sgd_block(const void *context, size_t begin, size_t end)
{
    sgd_t o = *(const sgd_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t grad = o.grad[i];
        if (o.weight_decay != 0)
            grad = grad + o.weight_decay * o.param[i];
        if (o.buffer != NULL)
            grad = with_momentum(&o, grad, o.buffer + i);
        o.param[i] = o.param[i] + o.minus_lr * grad;
    }
}

void
K(sgd)(void *param, const void *grad, void *buffer, size_t n, double lr,
       double momentum, double dampening, double weight_decay, bool nesterov,
       bool first)
{
    FSDP_CHECK((buffer != NULL) == (momentum != 0) || n == 0,
               "momentum %g %s a buffer", momentum,
               buffer != NULL ? "with" : "without");
    sgd_t o = {
        .param = param,
        .grad = grad,
        .buffer = buffer,
        .minus_lr = (real_t)-lr,
        .momentum = (real_t)momentum,
        .one_minus_dampening = (real_t)(1 - dampening),
        .weight_decay = (real_t)weight_decay,
        .first = first,
        .nesterov = nesterov,
    };
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, sgd_block, &o);
}

typedef struct adamw {
    real_t *param, *exp_avg, *exp_avg_sq;
    const real_t *grad;
    real_t decay;                    /* 1 - lr weight_decay           */
    real_t weight, one_minus_weight; /* of lerp_: 1 - beta1, and 1 - it */
    real_t beta2, one_minus_beta2;
    real_t correction2_sqrt, eps, minus_step_size;
} adamw_t;

/* PyTorch: Tensor.lerp_(), which goes from the nearer end. */
ALWAYS_INLINE real_t
lerp(const adamw_t *o, real_t start, real_t end)
{
    return o->weight < REAL(0.5) ? start + o->weight * (end - start)
                                 : end - (end - start) * o->one_minus_weight;
}

FSDP_CLONES static void
adamw_block(const void *context, size_t begin, size_t end)
{
    adamw_t o = *(const adamw_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t grad = o.grad[i];
        real_t param = o.param[i] * o.decay;
        real_t m = lerp(&o, o.exp_avg[i], grad);
        real_t v = o.exp_avg_sq[i] * o.beta2;
        v = v + o.one_minus_beta2 * grad * grad;
        real_t denom = real_sqrt(v) / o.correction2_sqrt + o.eps;
        o.exp_avg[i] = m;
        o.exp_avg_sq[i] = v;
        o.param[i] = param + o.minus_step_size * m / denom;
    }
}

void
K(adamw)(void *param, const void *grad, void *exp_avg, void *exp_avg_sq,
         size_t n, double lr, double beta1, double beta2, double eps,
         double weight_decay, long step)
{
    FSDP_CHECK(step >= 1, "AdamW counts steps from 1, not %ld", step);
    double correction1 = 1 - pow(beta1, (double)step);
    double correction2 = 1 - pow(beta2, (double)step);
    real_t weight = (real_t)(1 - beta1);
    adamw_t o = {
        .param = param,
        .grad = grad,
        .exp_avg = exp_avg,
        .exp_avg_sq = exp_avg_sq,
        .decay = (real_t)(1 - lr * weight_decay),
        .weight = weight,
        .one_minus_weight = 1 - weight,
        .beta2 = (real_t)beta2,
        .one_minus_beta2 = (real_t)(1 - beta2),
        .correction2_sqrt = (real_t)sqrt(correction2),
        .eps = (real_t)eps,
        .minus_step_size = (real_t) - (lr / correction1),
    };
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, adamw_block, &o);
}
