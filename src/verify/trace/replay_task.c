/* The task of a replay's baseline: the trace's model on the trace's inputs. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "fsdp/tensor_parallel.h"
#include "verify/trace/other_model.h"
#include "verify/trace/replayer.h"

/* As the run of a trace with parallel layers computed, in one process. */
static fsdp_status_t
parallelize(const replayer_t *r, fsdp_module_t *model)
{
    fsdp_tensor_parallel_t tp = {.degree = r->source.about->tensor,
                                 .reduce_order =
                                     r->verifier.options.reduce_order};
    if (tp.degree <= 1 || r->options->dtype != FSDP_DTYPE_NONE)
        return FSDP_OK;
    switch (r->source.model.kind) {
    case TRACE_MODEL_GPT2:
        return fsdp_tensor_parallel_gpt2(model, &tp);
    case TRACE_MODEL_LLAMA:
        return fsdp_tensor_parallel_llama(model, &tp);
    default:
        return fsdp_tensor_parallel_mlp(model, &tp);
    }
}

static void
perturb_parameters(const replayer_t *r, fsdp_module_t *model)
{
    size_t count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    for (size_t p = 0; p < count; p++) {
        replay_place_t place = {FSDP_TRACE_PARAMETER, -1, list[p]->name, 0};
        replay_perturb(r, &place, r->low, list[p]->dtype, list[p]->data,
                       fsdp_parameter_numel(list[p]));
    }
    fsdp_free(list);
}

static fsdp_module_t *
build(void *context)
{
    replayer_t *r = context;
    fsdp_module_t *model = trace_model_create(&r->source.model);
    r->status = parallelize(r, model);
    if (r->status == FSDP_OK)
        r->status = trace_source_load(&r->source, model, NULL);
    if (r->status == FSDP_OK && r->options->change != NULL)
        other_model_rebuild(r->options->change, &r->source.model, model);
    if (r->status == FSDP_OK)
        perturb_parameters(r, model);
    return model;
}

static double
targets_of(const replayer_t *r, long step, int micro)
{
    fsdp_tape_options_t options = {0};
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    double count =
        trace_source_targets(trace_source_batch(&r->source, tape, step, micro));
    fsdp_tape_destroy(&tape);
    return count;
}

/* What a mean is multiplied by before the backward. */
static double
weight_of(const replayer_t *r, long step, int micro)
{
    const char *average = r->source.meant->average;
    double all = 0, micros = r->source.micros;
    if (average == NULL || strcmp(average, "token") != 0)
        return r->source.scale;
    for (int g = 0; g < r->source.micros; g++)
        all += targets_of(r, step, g);
    return targets_of(r, step, micro) * micros / all * r->source.scale;
}

static void
show_tensor(const replayer_t *r, fsdp_trace_phase_t phase, const char *name,
            const fsdp_tensor_t *tensor)
{
    const size_t one = 1;
    replay_place_t place = {phase, r->micro, name, 0};
    bool scalar = tensor->ndim == 0;
    replay_show(r, &place, tensor->dtype, scalar ? 1 : tensor->ndim,
                scalar ? &one : tensor->shape, tensor->data);
}

static void
show_gathered(const replayer_t *r)
{
    for (int p = 0; p < r->verifier.num_params; p++) {
        const fsdp_parameter_t *base = r->verifier.param[p].base;
        replay_place_t place = {FSDP_TRACE_GATHERED_PARAMETER, r->micro,
                                base->name, 0};
        replay_show(r, &place, base->data_dtype, base->ndim, base->shape,
                    base->data);
    }
}

static fsdp_tensor_t *
loss(void *context, fsdp_tape_t *tape, fsdp_module_t *model, long step,
     int micro)
{
    replayer_t *r = context;
    bool text = r->source.model.kind != TRACE_MODEL_MLP;
    r->micro = micro;
    replay_forget_calls(r);
    fsdp_values_t xy = trace_source_batch(&r->source, tape, step, micro);
    fsdp_tensor_t *x = xy.tensor[0];
    replay_place_t place = {FSDP_TRACE_INPUT, micro, text ? "tokens" : "x", 0};
    if (!text)
        replay_perturb(r, &place, r->low, x->dtype, x->data,
                       fsdp_tensor_numel(x));
    show_tensor(r, FSDP_TRACE_INPUT, place.name, x);
    show_tensor(r, FSDP_TRACE_INPUT, "targets", xy.tensor[1]);
    show_gathered(r);
    fsdp_tensor_t *mean = trace_source_mean(&r->source, tape, model, xy);
    show_tensor(r, FSDP_TRACE_LOSS, "loss", mean);
    double weight = weight_of(r, step, micro);
    return weight == 1 ? mean : fsdp_scale(tape, mean, weight);
}

static fsdp_tape_options_t
tape_options(void *context, long step, int micro)
{
    const replayer_t *r = context;
    const fsdp_trace_record_t *x = fsdp_trace_find(
        r->source.trace, step, FSDP_TRACE_INPUT, 0,
        r->source.model.kind != TRACE_MODEL_MLP ? "tokens" : "x");
    fsdp_tape_options_t tape = fsdp_tape_options_default();
    tape.seed = (uint64_t)r->source.about->seed;
    tape.step = (uint32_t)step;
    tape.first_sample = (uint32_t)micro * (uint32_t)x->shape[0];
    return tape;
}

fsdp_task_t
replay_task(replayer_t *r)
{
    return (fsdp_task_t){r, build, loss, tape_options};
}

void
replay_after_backward(void *context)
{
    const replayer_t *r = context;
    for (int p = 0; p < r->verifier.num_params; p++) {
        const fsdp_parameter_t *base = r->verifier.param[p].base;
        replay_place_t place = {FSDP_TRACE_UNREDUCED_GRAD, r->micro, base->name,
                                0};
        if (base->grad == NULL)
            continue;
        replay_perturb(r, &place, r->low, base->grad->dtype, base->grad->data,
                       fsdp_tensor_numel(base->grad));
        replay_show(r, &place, base->grad->dtype, base->ndim, base->shape,
                    base->grad->data);
    }
}
