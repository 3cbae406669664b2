/* What scripts get wrong about AdamW and SGD. */

#include <math.h>

#include "verify/diagnosis/variant.h"

static bool
is_adam(const symptom_t *s)
{
    return s->meant->optimizer == FSDP_TRACE_ADAMW;
}

static bool
is_sgd(const symptom_t *s)
{
    return s->meant->optimizer == FSDP_TRACE_SGD;
}

static double
decay(const symptom_t *s)
{
    return is_adam(s)  ? s->meant->adamw.weight_decay
           : is_sgd(s) ? s->meant->sgd.weight_decay
                       : 0;
}

/* ---- weight decay --------------------------------------------------------- */

bool
hypothesis_decay_coupled(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.coupled = true};
    return is_adam(s) && decay(s) != 0 &&
           variant_explains(s, cause, &v,
                            "the weight decay is coupled: it was added to the "
                            "gradient (Adam with L2), not taken from the "
                            "parameter (AdamW)");
}

bool
hypothesis_decay_decoupled(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.decoupled = true};
    return is_sgd(s) && decay(s) != 0 &&
           variant_explains(s, cause, &v,
                            "the weight decay was taken from the parameter, "
                            "not added to the gradient");
}

bool
hypothesis_decay_missing(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.no_decay = true};
    return decay(s) != 0 &&
           variant_explains(s, cause, &v, "no weight decay on this tensor");
}

bool
hypothesis_decay_doubled(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.decay_twice = true};
    return decay(s) != 0 &&
           variant_explains(s, cause, &v, "weight decay was applied twice");
}

bool
hypothesis_decay_without_lr(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.decay_without_lr = true};
    return is_adam(s) && decay(s) != 0 &&
           variant_explains(s, cause, &v,
                            "the weight decay is not multiplied by the "
                            "learning rate");
}

/* ---- AdamW ------------------------------------------------------------------ */

bool
hypothesis_no_bias_correction(const symptom_t *s, cause_t *cause)
{
    const variant_t v[] = {
        {.update.no_correction1 = true, .update.no_correction2 = true},
        {.update.no_correction1 = true},
        {.update.no_correction2 = true}};
    static const char *const of[] = {"of both moments", "of the first moment",
                                     "of the second moment"};
    for (int k = 0; k < 3 && is_adam(s); k++)
        if (variant_explains(s, cause, &v[k],
                             "the bias correction %s is missing", of[k]))
            return true;
    return false;
}

bool
hypothesis_steps_off_by_one(const symptom_t *s, cause_t *cause)
{
    for (int more = 1; more >= -1 && is_adam(s); more -= 2) {
        variant_t v = {.more_steps = more};
        if (s->step + more >= 1 &&
            variant_explains(s, cause, &v,
                             "the bias correction counts %s step than were "
                             "made",
                             more > 0 ? "one more" : "one fewer"))
            return true;
    }
    return false;
}

bool
hypothesis_eps_inside_root(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.eps_inside = true};
    return is_adam(s) &&
           variant_explains(s, cause, &v, "epsilon was added inside the root");
}

bool
hypothesis_eps_before_correction(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.eps_before_correction = true};
    return is_adam(s) &&
           variant_explains(s, cause, &v,
                            "epsilon was added before the bias correction of "
                            "the second moment");
}

bool
hypothesis_betas_swapped(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.betas_swapped = true};
    return is_adam(s) &&
           variant_explains(s, cause, &v, "beta1 and beta2 are swapped");
}

/* ---- SGD -------------------------------------------------------------------- */

bool
hypothesis_dampening(const symptom_t *s, cause_t *cause)
{
    variant_t more = {.update.dampened = true},
              none = {.update.undampened = true};
    if (!is_sgd(s) || s->meant->sgd.momentum == 0)
        return false;
    return variant_explains(s, cause, &more,
                            "momentum is dampened: the gradient counts "
                            "1 - momentum") ||
           (s->meant->sgd.dampening != 0 &&
            variant_explains(s, cause, &none, "the dampening is missing"));
}

bool
hypothesis_nesterov(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.nesterov_other = true};
    return is_sgd(s) && s->meant->sgd.momentum != 0 &&
           variant_explains(s, cause, &v,
                            s->meant->sgd.nesterov
                                ? "Nesterov's momentum was meant and is not "
                                  "used"
                                : "Nesterov's momentum is used and was not "
                                  "meant");
}

bool
hypothesis_no_momentum(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.update.no_momentum = true};
    return is_sgd(s) && s->meant->sgd.momentum != 0 && s->step > 1 &&
           variant_explains(s, cause, &v, "there is no momentum in the step");
}

/* ---- either ------------------------------------------------------------------ */

bool
hypothesis_lr_of_another_step(const symptom_t *s, cause_t *cause)
{
    double mine = symptom_lr(s, s->step);
    for (int i = 0; i < s->meant->num_steps; i++) {
        variant_t v = {.lr = s->meant->step[i].lr};
        if (v.lr != mine && !isnan(v.lr) && v.lr != 0 &&
            variant_explains(s, cause, &v,
                             "the learning rate is that of step %ld (%g)",
                             s->meant->step[i].step, v.lr))
            return true;
    }
    return false;
}

/* The rate by which theirs is nearest. */
static double
best_rate(const symptom_t *s)
{
    const double *old = symptom_get(s, s->step - 1, FSDP_TRACE_PARAMETER, -1);
    double xy = 0, yy = 0;
    for (uint64_t i = 0; old != NULL && i < s->numel; i++)
        if (isfinite(s->is[i]) && isfinite(s->expected[i])) {
            double way = s->expected[i] - old[i];
            xy += (s->is[i] - old[i]) * way;
            yy += way * way;
        }
    return yy > 0 ? xy / yy * symptom_lr(s, s->step) : (double)NAN;
}

bool
hypothesis_lr_scaled(const symptom_t *s, cause_t *cause)
{
    double mine = symptom_lr(s, s->step), factor;
    const char *name;
    if (s->phase != FSDP_TRACE_PARAMETER || s->numel < 4)
        return false;
    for (int k = 0; (name = symptom_factor(s, k, &factor)) != NULL; k++) {
        variant_t v = {.lr = factor * mine};
        if (factor != 1 &&
            variant_explains(s, cause, &v,
                             "the learning rate is %.6g times what it should "
                             "be; that is %s",
                             factor, name))
            return true;
    }
    variant_t v = {.lr = best_rate(s)};
    return isfinite(v.lr) && v.lr != 0 && v.lr != mine &&
           variant_explains(s, cause, &v,
                            "the step is %.6g times as long as it should be: "
                            "the learning rate is about %.6g, not %.6g",
                            v.lr / mine, v.lr, mine);
}

bool
hypothesis_unclipped_update(const symptom_t *s, cause_t *cause)
{
    variant_t v = {.unclipped = true};
    return symptom_get(s, s->step, FSDP_TRACE_CLIPPED_GRAD, -1) != NULL &&
           variant_explains(s, cause, &v,
                            "the optimizer got the gradient before clipping");
}
