/* The baseline's norm, clipping and optimizers: PyTorch's formulas, one element
 * after another, rounded after each operation.  Shares no code with src/optim. */

#include <math.h>
#include <string.h>

#include "fsdp/exact_sum.h"
#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- norm and clipping -------------------------------------------------- */

double
baseline_norm(const fsdp_verifier_t *verifier)
{
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    for (int p = 0; p < verifier->num_params; p++) {
        const verified_t *param = &verifier->param[p];
        for (size_t i = 0; param->grad != NULL && i < param->numel; i++)
            fsdp_exact_sum_add_square(&sum,
                                      value_get(param->dtype, param->grad, i));
    }
    return value_round(verifier->dtype, sqrt(fsdp_exact_sum_round(&sum)));
}

/* In PyTorch a number over a tensor is the number times its reciprocal. */
void
baseline_clip(fsdp_verifier_t *verifier, double norm)
{
    fsdp_dtype_t dtype = verifier->dtype;
    double total = value_round(dtype, norm + value_round(dtype, 1e-6));
    double max_norm = value_round(dtype, verifier->options.clip_norm);
    double coefficient =
        value_round(dtype, value_round(dtype, 1 / total) * max_norm);
    if (coefficient > 1)
        coefficient = 1;
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        for (size_t i = 0; param->grad != NULL && i < param->numel; i++)
            value_put(dtype, param->grad, i,
                      value_get(dtype, param->grad, i) * coefficient);
    }
}

/* ---- optimizers --------------------------------------------------------- */

/* State k, zeros at first. */
static void *
state_of(verified_t *param, int k)
{
    if (param->state[k] == NULL)
        param->state[k] = fsdp_calloc(
            FSDP_MEM_BASELINE, param->numel * fsdp_dtype_size(param->dtype));
    return param->state[k];
}

/* Element i of the momentum buffer after this step, and the gradient that comes
 * out of it.  PyTorch: torch/optim/sgd.py, _single_tensor_sgd(). */
static double
with_momentum(const fsdp_sgd_options_t *o, verified_t *param, size_t i,
              double grad)
{
    fsdp_dtype_t t = param->dtype;
    double momentum = value_round(t, o->momentum);
    double rest = value_round(t, 1 - o->dampening);
    double buffer = grad;
    if (param->updates > 0) {
        buffer = value_get(t, param->state[0], i);
        buffer = value_round(t, buffer * momentum);
        buffer = value_round(t, buffer + value_round(t, rest * grad));
    }
    value_put(t, param->state[0], i, buffer);
    if (!o->nesterov)
        return buffer;
    return value_round(t, grad + value_round(t, momentum * buffer));
}

static void
sgd(const fsdp_sgd_options_t *o, verified_t *param, double lr)
{
    fsdp_dtype_t t = param->dtype;
    double minus_lr = value_round(t, -lr);
    double decay = value_round(t, o->weight_decay);
    void *data = param->base->data;
    if (o->momentum != 0)
        state_of(param, 0);
    for (size_t i = 0; i < param->numel; i++) {
        double x = value_get(t, data, i);
        double grad = value_get(t, param->grad, i);
        if (decay != 0)
            grad = value_round(t, grad + value_round(t, decay * x));
        if (o->momentum != 0)
            grad = with_momentum(o, param, i, grad);
        value_put(t, data, i, x + value_round(t, minus_lr * grad));
    }
}

/* PyTorch: Tensor.lerp_(), which goes from the nearer end. */
static double
lerp(fsdp_dtype_t t, double start, double end, double weight)
{
    double way = value_round(t, end - start);
    if (weight < 0.5)
        return value_round(t, start + value_round(t, weight * way));
    double rest = value_round(t, 1 - weight);
    return value_round(t, end - value_round(t, way * rest));
}

/* PyTorch: torch/optim/adam.py, _single_tensor_adam(), decoupled decay. */
static void
adamw(const fsdp_adamw_options_t *o, verified_t *param, double lr)
{
    fsdp_dtype_t t = param->dtype;
    double steps = (double)(param->updates + 1);
    double correction1 = 1 - pow(o->beta1, steps);
    double correction2 = 1 - pow(o->beta2, steps);
    double minus_step = value_round(t, -(lr / correction1));
    double root = value_round(t, sqrt(correction2));
    double decay = value_round(t, 1 - lr * o->weight_decay);
    double weight = value_round(t, 1 - o->beta1);
    double beta2 = value_round(t, o->beta2);
    double rest2 = value_round(t, 1 - o->beta2);
    double eps = value_round(t, o->eps);
    void *data = param->base->data;
    void *exp_avg = state_of(param, 0), *exp_avg_sq = state_of(param, 1);

    for (size_t i = 0; i < param->numel; i++) {
        double g = value_get(t, param->grad, i);
        double x = value_round(t, value_get(t, data, i) * decay);
        double m = lerp(t, value_get(t, exp_avg, i), g, weight);
        double v = value_round(t, value_get(t, exp_avg_sq, i) * beta2);
        v = value_round(t, v + value_round(t, value_round(t, rest2 * g) * g));
        double denom = value_round(t, value_round(t, sqrt(v)) / root);
        denom = value_round(t, denom + eps);
        double change = value_round(t, value_round(t, minus_step * m) / denom);
        value_put(t, exp_avg, i, m);
        value_put(t, exp_avg_sq, i, v);
        value_put(t, data, i, x + change);
    }
}

void
baseline_update(fsdp_verifier_t *verifier, double lr)
{
    const fsdp_verify_options_t *o = &verifier->options;
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        if (param->grad == NULL || verifier->scaler.found_inf)
            continue;
        if (o->adamw)
            adamw(&o->adam, param, lr);
        else
            sgd(&o->sgd, param, lr);
        param->updates++;
    }
    baseline_adapt_scale(verifier);
}

void *
baseline_state(const fsdp_verifier_t *verifier, const verified_t *param,
               const char *name)
{
    if (!verifier->options.adamw)
        return strcmp(name, "momentum_buffer") == 0 ? param->state[0] : NULL;
    if (strcmp(name, "exp_avg") == 0)
        return param->state[0];
    return strcmp(name, "exp_avg_sq") == 0 ? param->state[1] : NULL;
}
