/* What the two traces say of themselves: settings that should be the same. */

#include <math.h>
#include <string.h>

#include "verify/trace/model.h"
#include "verify/verdict/internal.h"

static void
note_number(judging_t *j, const char *what, double ours, double theirs)
{
    if (isnan(ours) || isnan(theirs) || ours == theirs)
        return;
    verdict_note(j, "%s: theirs %g, ours %g; ours is taken as meant", what,
                 theirs, ours);
}

static void
compare_optimizers(judging_t *j)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    if (a->optimizer == FSDP_TRACE_NO_OPTIMIZER ||
        b->optimizer == FSDP_TRACE_NO_OPTIMIZER)
        return;
    if (a->optimizer != b->optimizer) {
        verdict_note(j, "optimizer: theirs %s, ours %s; ours is taken as meant",
                     b->optimizer_name, a->optimizer_name);
    } else if (a->optimizer == FSDP_TRACE_ADAMW) {
        note_number(j, "beta1", a->adamw.beta1, b->adamw.beta1);
        note_number(j, "beta2", a->adamw.beta2, b->adamw.beta2);
        note_number(j, "eps", a->adamw.eps, b->adamw.eps);
        note_number(j, "weight decay", a->adamw.weight_decay,
                    b->adamw.weight_decay);
    } else {
        note_number(j, "momentum", a->sgd.momentum, b->sgd.momentum);
        note_number(j, "dampening", a->sgd.dampening, b->sgd.dampening);
        note_number(j, "weight decay", a->sgd.weight_decay,
                    b->sgd.weight_decay);
        note_number(j, "nesterov", a->sgd.nesterov, b->sgd.nesterov);
    }
}

static void
compare_rates(judging_t *j)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    for (int i = 0; i < b->num_steps; i++)
        for (int k = 0; k < a->num_steps; k++)
            if (a->step[k].step == b->step[i].step &&
                a->step[k].lr != b->step[i].lr && !isnan(a->step[k].lr) &&
                !isnan(b->step[i].lr)) {
                verdict_note(j,
                             "learning rate of step %ld: theirs %g, ours %g; "
                             "ours is taken as meant",
                             b->step[i].step, b->step[i].lr, a->step[k].lr);
                return;
            }
}

static void
note_type(judging_t *j, const char *what, fsdp_dtype_t ours,
          fsdp_dtype_t theirs)
{
    if (ours != theirs)
        verdict_note(j, "%s: theirs %s, ours %s; ours is taken as meant", what,
                     fsdp_dtype_name(theirs), fsdp_dtype_name(ours));
}

static void
compare_types(judging_t *j)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    if (!a->has_precision || !b->has_precision || a->dtype != b->dtype)
        return;
    note_type(j, "param_dtype", a->precision.param_dtype,
              b->precision.param_dtype);
    note_type(j, "reduce_dtype", a->precision.reduce_dtype,
              b->precision.reduce_dtype);
    note_type(j, "output_dtype", a->precision.output_dtype,
              b->precision.output_dtype);
}

static void
note_text(judging_t *j, const char *what, const char *ours, const char *theirs)
{
    if (ours != NULL && theirs != NULL && strcmp(ours, theirs) != 0)
        verdict_note(j, "%s: theirs %s, ours %s; ours is taken as meant", what,
                     theirs, ours);
}

/* What the two configurations have in common; sizes show in the tensors. */
static void
compare_same_models(judging_t *j, const trace_model_t *a,
                    const trace_model_t *b)
{
    static const char *const activation[] = {"relu", "gelu", "gelu_tanh"};
    if (a->kind == TRACE_MODEL_GPT2) {
        note_number(j, "layer_norm_epsilon", a->gpt2.layer_norm_epsilon,
                    b->gpt2.layer_norm_epsilon);
    } else if (a->kind == TRACE_MODEL_LLAMA) {
        note_number(j, "rms_norm_eps", a->llama.rms_norm_eps,
                    b->llama.rms_norm_eps);
        note_number(j, "rope_theta", a->llama.rope_theta, b->llama.rope_theta);
    } else {
        note_text(j, "activation", activation[a->mlp.activation],
                  activation[b->mlp.activation]);
    }
}

/* A model that cannot be run here is told elsewhere. */
static void
compare_models(judging_t *j)
{
    trace_model_t a = {0}, b = {0};
    note_text(j, "model", j->our_about->model_type, j->their_about->model_type);
    bool both = trace_model_read(j->ours, NULL, FSDP_FP32, &a) == FSDP_OK &&
                trace_model_read(j->theirs, NULL, FSDP_FP32, &b) == FSDP_OK;
    if (both && a.kind == b.kind)
        compare_same_models(j, &a, &b);
    trace_model_free(&a);
    trace_model_free(&b);
    note_text(j, "loss", j->our_about->loss, j->their_about->loss);
    note_text(j, "mean of the loss over", j->our_about->average,
              j->their_about->average);
}

/* A divisor that does not make the mean that ours makes. */
static void
compare_divisors(judging_t *j)
{
    const fsdp_trace_about_t *b = j->their_about;
    double says =
        isnan(b->divide_factor) ? (double)verdict_ranks(b) : b->divide_factor;
    double means = verdict_divisor(j);
    if (fabs(says - means) > 1e-12 * fabs(means))
        verdict_note(j,
                     "theirs divides the sum of its gradients by %g; for the "
                     "mean that ours takes it would be %g",
                     says, means);
}

/* A setting is no fault if ours has it too, but it may be one that nobody meant. */
static void
look_at_mean(judging_t *j)
{
    const fsdp_trace_about_t *b = j->their_about;
    double micros = (double)verdict_ranks(b) * b->micro_batches;
    double divisor =
        isnan(b->divide_factor) ? (double)verdict_ranks(b) : b->divide_factor;
    double factor = micros * b->loss_scale / divisor;
    if (!isfinite(factor) || micros == 0 || fabs(factor - 1) < 1e-9)
        return;
    verdict_note(j,
                 "their gradients are meant to be %.6g times that of the mean "
                 "loss: %g micro-batches, each loss times %.6g, the sum "
                 "divided by %g",
                 factor, micros, b->loss_scale, divisor);
}

void
verdict_about(judging_t *j)
{
    compare_models(j);
    compare_optimizers(j);
    compare_rates(j);
    note_number(j, "gradient clipping", j->our_about->grad_clip,
                j->their_about->grad_clip);
    if (j->our_about->grad_clip > 0 && j->their_about->grad_clip > 0)
        note_number(j, "type of the norm", j->our_about->norm_type,
                    j->their_about->norm_type);
    note_number(j, "dropout", j->our_about->dropout, j->their_about->dropout);
    compare_types(j);
    compare_divisors(j);
    look_at_mean(j);
}
