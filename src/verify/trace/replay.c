#include "verify/trace/replay.h"

#include <math.h>

#include "fsdp/memory.h"
#include "verify/trace/other_model.h"
#include "verify/trace/replayer.h"
#include "verify/value.h"

/* ---- steps ------------------------------------------------------------------------ */

static void
show_params(const replayer_t *r, fsdp_trace_phase_t phase, int micro,
            const void *(*data_of)(const verified_t *param))
{
    for (int p = 0; p < r->verifier.num_params; p++) {
        const verified_t *param = &r->verifier.param[p];
        replay_place_t place = {phase, micro, param->run->name, 0};
        if (data_of(param) != NULL)
            replay_show(r, &place, param->dtype, param->run->ndim,
                        param->run->shape, data_of(param));
    }
}

static const void *
reduced_of(const verified_t *param)
{
    return param->was_reduced ? param->reduced : NULL;
}

static const void *
grad_of(const verified_t *param)
{
    return param->grad;
}

static const void *
data_of(const verified_t *param)
{
    return param->base->data;
}

static const void *
first_state_of(const verified_t *param)
{
    return param->state[0];
}

static const void *
second_state_of(const verified_t *param)
{
    return param->state[1];
}

/* The norm over all gradients, of another type than 2. */
static double
other_norm(const fsdp_verifier_t *v, double type)
{
    double sum = 0;
    for (int p = 0; p < v->num_params; p++) {
        const verified_t *param = &v->param[p];
        for (size_t i = 0; param->grad != NULL && i < param->numel; i++) {
            double x = fabs(value_get(param->dtype, param->grad, i));
            sum = isinf(type) ? fmax(sum, x) : sum + pow(x, type);
        }
    }
    return value_round(v->dtype, isinf(type) ? sum : pow(sum, 1 / type));
}

static void
clip(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    double type = r->source.about->norm_type;
    double norm = type == 2 ? baseline_norm(v) : other_norm(v, type);
    size_t one = 1;
    replay_place_t place = {FSDP_TRACE_NORM, -1, "norm", 0};
    replay_show(r, &place, FSDP_FP64, 1, &one, &norm);
    if (v->options.clip_norm == 0)
        return;
    baseline_clip(v, norm);
    show_params(r, FSDP_TRACE_CLIPPED_GRAD, -1, grad_of);
}

static void
run_micro_batches(replayer_t *r, int j)
{
    fsdp_verifier_t *v = &r->verifier;
    bool each = v->options.gradient_sync == FSDP_SYNC_EACH;
    v->micro = j;
    for (int d = 0; d < v->size; d++)
        baseline_run(v, j, d);
    replay_forget_calls(r);
    baseline_reduce(v, j);
    if (each || j == v->options.micro_batches - 1)
        show_params(r, FSDP_TRACE_REDUCED_GRAD, (j + 1) * v->size - 1,
                    reduced_of);
}

static void
run_step(replayer_t *r, long step)
{
    fsdp_verifier_t *v = &r->verifier;
    bool adamw = v->options.adamw;
    v->step = step;
    baseline_refresh(v);
    for (int j = 0; j < v->options.micro_batches; j++)
        run_micro_batches(r, j);
    baseline_gradients(v);
    show_params(r, FSDP_TRACE_GRAD, -1, grad_of);
    clip(r);
    baseline_update(v, trace_source_lr(&r->source, step));
    show_params(r, FSDP_TRACE_PARAMETER, -1, data_of);
    show_params(r, adamw ? FSDP_TRACE_EXP_AVG : FSDP_TRACE_MOMENTUM_BUFFER, -1,
                first_state_of);
    if (adamw)
        show_params(r, FSDP_TRACE_EXP_AVG_SQ, -1, second_state_of);
}

/* ---- the whole ----------------------------------------------------------------------- */

/* The level makes the baseline keep what it reduced; its own hooks, which the
 * level would bring, are not needed. */
static fsdp_status_t
begin(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    r->shapes = trace_model_create(&r->source.model);
    replay_list(r);
    v->step = r->source.first_step - 1;
    baseline_create(v);
    v->options.level = FSDP_VERIFY_PHASE;
    v->after_backward = replay_after_backward;
    v->after_context = r;
    if (r->status != FSDP_OK)
        return r->status;
    r->unit =
        fsdp_calloc(FSDP_MEM_BASELINE, (size_t)v->num_units * sizeof *r->unit);
    replay_watch(r);
    show_params(r, FSDP_TRACE_PARAMETER, -1, data_of);
    return replay_load_states(r);
}

static void
end(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    replay_forget_calls(r);
    if (v->baseline != NULL)
        baseline_destroy(v);
    for (int p = 0; p < v->num_params; p++)
        fsdp_free(v->param[p].layout);
    fsdp_free(v->param);
    fsdp_free(v->unit);
    fsdp_free(r->unit);
    if (r->shapes != NULL)
        fsdp_module_destroy(&r->shapes);
}

fsdp_status_t
fsdp_trace_replay(fsdp_trace_t *trace, const fsdp_replay_options_t *options)
{
    replayer_t r = {.options = options};
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    fsdp_status_t status =
        trace_source_open(trace, options->meant, options->dtype,
                          options->first_step, options->last_step, &r.source);
    if (status == FSDP_OK && options->change != NULL)
        other_model_configure(options->change, &r.source.model);
    if (status == FSDP_OK)
        status = replay_choose_options(&r);
    if (status == FSDP_OK)
        status = begin(&r);
    for (long step = r.source.first_step;
         step <= r.source.last_step && status == FSDP_OK; step++)
        run_step(&r, step);
    end(&r);
    trace_source_close(&r.source);
    fsdp_memory_override(former);
    return status;
}
