/* The baseline's loss scale.  PyTorch: torch.amp.GradScaler.  Shares no code
 * with src/optim. */

#include <math.h>

#include "fsdp/ops.h"
#include "verify/internal.h"
#include "verify/value.h"

void
baseline_create_scaler(fsdp_verifier_t *verifier)
{
    const fsdp_grad_scaler_options_t *o = verifier->options.grad_scaler;
    if (o == NULL || !o->enabled)
        return;
    verifier->scaler = (baseline_scaler_t){
        .on = true,
        .scale = value_round(FSDP_FP32, o->init_scale),
        .growth = o->growth_factor,
        .backoff = o->backoff_factor,
        .interval = o->growth_interval,
        .good_steps = verifier->options.good_steps,
    };
}

fsdp_tensor_t *
baseline_scale_loss(const fsdp_verifier_t *verifier, fsdp_tape_t *tape,
                    fsdp_tensor_t *loss)
{
    return verifier->scaler.on ? fsdp_scale(tape, loss, verifier->scaler.scale)
                               : loss;
}

/* An infinity in any gradient spoils the whole step. */
bool
baseline_unscale(fsdp_verifier_t *verifier)
{
    baseline_scaler_t *s = &verifier->scaler;
    double inverse = value_round(FSDP_FP32, 1 / s->scale);
    s->found_inf = false;
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        for (size_t i = 0; param->grad != NULL && i < param->numel; i++) {
            double grad = value_get(param->dtype, param->grad, i);
            s->found_inf |= !isfinite(grad);
            value_put(param->dtype, param->grad, i, grad * inverse);
        }
    }
    return s->found_inf;
}

/* After the step, or the step that was skipped: half the scale if one was, twice
 * as much after so many that were not. */
void
baseline_adapt_scale(fsdp_verifier_t *verifier)
{
    baseline_scaler_t *s = &verifier->scaler;
    double scale = s->scale;
    if (!s->on)
        return;
    s->good_steps = s->found_inf ? 0 : s->good_steps + 1;
    if (s->found_inf)
        scale *= s->backoff;
    if (s->good_steps == s->interval) {
        scale *= s->growth;
        s->good_steps = 0;
    }
    scale = value_round(FSDP_FP32, scale);
    if (scale > 0 && isfinite(scale))
        s->scale = scale;
}
