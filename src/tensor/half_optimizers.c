#include "tensor/half_optimizers.h"

#include <math.h>

#include "base/half.h"
#include "fsdp/status.h"
#include "tensor/clones.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Written for both types with `bf16` a constant in the end. */
ALWAYS_INLINE float
load(bool bf16, uint16_t code)
{
    return bf16 ? fsdp_bf16_to_float(code) : fsdp_fp16_to_float(code);
}

ALWAYS_INLINE uint16_t
store(bool bf16, float x)
{
    return bf16 ? fsdp_float_to_bf16(x) : fsdp_float_to_fp16(x);
}

/* What a tensor operation leaves behind. */
ALWAYS_INLINE float
rounded(bool bf16, float x)
{
    return load(bf16, store(bf16, x));
}

static void
check_type(fsdp_dtype_t dtype)
{
    FSDP_CHECK(dtype == FSDP_BF16 || dtype == FSDP_FP16,
               "a 16-bit optimizer on %s", fsdp_dtype_name(dtype));
}

/* ---- SGD ---------------------------------------------------------------- */

typedef struct sgd {
    uint16_t *param, *buffer;
    const uint16_t *grad;
    float minus_lr, weight_decay;               /* alphas */
    float momentum, momentum_alpha, undampened; /* mul_(); alphas */
    bool first, nesterov;
} sgd_t;

ALWAYS_INLINE float
with_momentum(bool bf16, const sgd_t *o, float grad, uint16_t *buffer)
{
    float b = grad;
    if (!o->first) {
        b = rounded(bf16, load(bf16, *buffer) * o->momentum);
        b = rounded(bf16, b + o->undampened * grad);
    }
    *buffer = store(bf16, b);
    return o->nesterov ? rounded(bf16, grad + o->momentum_alpha * b) : b;
}

ALWAYS_INLINE void
sgd_elements(bool bf16, sgd_t o, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        float param = load(bf16, o.param[i]), grad = load(bf16, o.grad[i]);
        if (o.weight_decay != 0)
            grad = rounded(bf16, grad + o.weight_decay * param);
        if (o.buffer != NULL)
            grad = with_momentum(bf16, &o, grad, o.buffer + i);
        o.param[i] = store(bf16, param + o.minus_lr * grad);
    }
}

FSDP_CLONES static void
sgd_bf16(const void *context, size_t begin, size_t end)
{
    sgd_elements(true, *(const sgd_t *)context, begin, end);
}

FSDP_CLONES static void
sgd_fp16(const void *context, size_t begin, size_t end)
{
    sgd_elements(false, *(const sgd_t *)context, begin, end);
}

void
fsdp_half_sgd(fsdp_dtype_t dtype, void *param, const void *grad, void *buffer,
              size_t n, double lr, double momentum, double dampening,
              double weight_decay, bool nesterov, bool first)
{
    check_type(dtype);
    FSDP_CHECK((buffer != NULL) == (momentum != 0) || n == 0,
               "momentum %g %s a buffer", momentum,
               buffer != NULL ? "with" : "without");
    bool bf16 = dtype == FSDP_BF16;
    sgd_t o = {
        .param = param,
        .buffer = buffer,
        .grad = grad,
        .minus_lr = rounded(bf16, (float)-lr),
        .weight_decay = rounded(bf16, (float)weight_decay),
        .momentum = (float)momentum,
        .momentum_alpha = rounded(bf16, (float)momentum),
        .undampened = rounded(bf16, (float)(1 - dampening)),
        .first = first,
        .nesterov = nesterov,
    };
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, bf16 ? sgd_bf16 : sgd_fp16, &o);
}

/* ---- AdamW -------------------------------------------------------------- */

typedef struct adamw {
    uint16_t *param, *exp_avg, *exp_avg_sq;
    const uint16_t *grad;
    float decay, weight, one_minus_weight, beta2, one_minus_beta2;
    float correction2_sqrt, eps, minus_step_size;
} adamw_t;

/* Tensor.lerp_(), from the nearer end. */
ALWAYS_INLINE float
lerp(const adamw_t *o, float start, float end)
{
    return o->weight < 0.5f ? start + o->weight * (end - start)
                            : end - (end - start) * o->one_minus_weight;
}

ALWAYS_INLINE void
adamw_elements(bool bf16, adamw_t o, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        float grad = load(bf16, o.grad[i]);
        float param = rounded(bf16, load(bf16, o.param[i]) * o.decay);
        float m = rounded(bf16, lerp(&o, load(bf16, o.exp_avg[i]), grad));
        float v = rounded(bf16, load(bf16, o.exp_avg_sq[i]) * o.beta2);
        v = rounded(bf16, v + o.one_minus_beta2 * grad * grad);
        float denom = rounded(bf16, __builtin_sqrtf(v));
        denom = rounded(bf16, denom / o.correction2_sqrt);
        denom = rounded(bf16, denom + o.eps);
        o.exp_avg[i] = store(bf16, m);
        o.exp_avg_sq[i] = store(bf16, v);
        o.param[i] = store(bf16, param + o.minus_step_size * m / denom);
    }
}

FSDP_CLONES static void
adamw_bf16(const void *context, size_t begin, size_t end)
{
    adamw_elements(true, *(const adamw_t *)context, begin, end);
}

FSDP_CLONES static void
adamw_fp16(const void *context, size_t begin, size_t end)
{
    adamw_elements(false, *(const adamw_t *)context, begin, end);
}

void
fsdp_half_adamw(fsdp_dtype_t dtype, void *param, const void *grad,
                void *exp_avg, void *exp_avg_sq, size_t n, double lr,
                double beta1, double beta2, double eps, double weight_decay,
                long step)
{
    check_type(dtype);
    FSDP_CHECK(step >= 1, "AdamW counts steps from 1, not %ld", step);
    bool bf16 = dtype == FSDP_BF16;
    double correction1 = 1 - pow(beta1, (double)step);
    double correction2 = 1 - pow(beta2, (double)step);
    float weight = (float)(1 - beta1);
    adamw_t o = {
        .param = param,
        .exp_avg = exp_avg,
        .exp_avg_sq = exp_avg_sq,
        .grad = grad,
        .decay = (float)(1 - lr * weight_decay),
        .weight = weight,
        .one_minus_weight = 1 - weight,
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .correction2_sqrt = (float)sqrt(correction2),
        .eps = rounded(bf16, (float)eps),
        .minus_step_size = (float)-(lr / correction1),
    };
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, bf16 ? adamw_bf16 : adamw_fp16, &o);
}
