#include "verify/trace/replay.h"

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "fsdp/tensor_parallel.h"
#include "verify/trace/replayer.h"
#include "verify/value.h"

/* ---- the task of the baseline ------------------------------------------------- */

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

/* Position t takes the row of another one; the last rows have none. */
static void
shift_positions(const replayer_t *r, fsdp_module_t *model)
{
    const fsdp_replay_change_t *change = r->options->change;
    size_t shift = change != NULL ? change->first_position : 0;
    size_t count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    for (size_t p = 0; p < count && shift > 0; p++) {
        size_t rows = list[p]->shape[0];
        if (strcmp(list[p]->name, "transformer.wpe.weight") != 0 ||
            shift >= rows)
            continue;
        size_t row = fsdp_parameter_numel(list[p]) / rows *
                     fsdp_dtype_size(list[p]->dtype);
        char *data = list[p]->data;
        memmove(data, data + shift * row, (rows - shift) * row);
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
    if (r->status == FSDP_OK)
        shift_positions(r, model);
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

static void
after_backward(void *context)
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

/* ---- a baseline without a run --------------------------------------------------- */

static fsdp_status_t
choose_optimizer(const trace_source_t *s, fsdp_verify_options_t *o)
{
    const fsdp_trace_about_t *a = s->about;
    o->adamw = a->optimizer == FSDP_TRACE_ADAMW;
    o->sgd = a->sgd;
    o->adam = a->adamw;
    o->clip_norm = isnan(a->grad_clip) ? 0 : a->grad_clip;
    if (a->optimizer == FSDP_TRACE_NO_OPTIMIZER)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s names no optimizer that can be run again (sgd, "
                          "adamw)",
                          fsdp_trace_path(s->trace));
    for (long step = s->first_step; step <= s->last_step; step++)
        if (isnan(trace_source_lr(s, step)))
            return fsdp_error(FSDP_ERR_INPUT,
                              "%s/trace.json does not say the \"lr\" of step "
                              "%ld; add it to \"steps\"",
                              fsdp_trace_path(s->trace), step);
    return FSDP_OK;
}

/* Only our own dropout can be made again. */
static fsdp_status_t
choose_dropout(trace_source_t *s)
{
    const fsdp_trace_about_t *a = s->about;
    if (isnan(a->dropout) || a->dropout == 0)
        return FSDP_OK;
    if (a->seed < 0 || a->producer == NULL ||
        strncmp(a->producer, "libfsdp ", 8) != 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s was made with a dropout of %g, whose masks are "
                          "in no trace; record without",
                          fsdp_trace_path(s->trace), a->dropout);
    s->model.gpt2.resid_pdrop = s->model.gpt2.embd_pdrop =
        s->model.gpt2.attn_pdrop = s->model.llama.attention_dropout =
            a->dropout;
    return FSDP_OK;
}

static fsdp_status_t
choose_options(replayer_t *r)
{
    trace_source_t *s = &r->source;
    const fsdp_trace_about_t *a = s->about;
    bool fsdp1 = a->api != NULL && strcmp(a->api, "fsdp1") == 0;
    bool own = r->options->dtype != FSDP_DTYPE_NONE;
    int order = a->reduce_order;
    if (order < 0 || order == FSDP_ORDER_MPI ||
        (order == FSDP_ORDER_RING && fsdp1))
        order = order < 0 ? FSDP_ORDER_TREE : FSDP_ORDER_RANK;
    fsdp_verify_options_t o = {
        .level = FSDP_VERIFY_STEP,
        .task = {r, build, loss, tape_options},
        .reduce_order = (fsdp_reduce_order_t)order,
        .micro_batches = s->micros / s->ranks,
        .gradient_sync = a->gradient_sync < 0
                             ? FSDP_SYNC_EACH
                             : (fsdp_gradient_sync_t)a->gradient_sync,
        .averaging = a->averaging < 0 ? FSDP_SUM_THEN_DIVIDE
                                      : (fsdp_averaging_t)a->averaging,
        .divide_factor = isnan(a->divide_factor) ? 0 : a->divide_factor,
        .force_sum = a->force_sum,
        .fsdp1 = fsdp1,
    };
    if (fsdp1)
        o.averaging = FSDP_PRE_POST;
    o.mp_policy = a->precision;
    if (own)
        o.mp_policy = (fsdp_mixed_precision_policy_t){0};
    r->type = a->dtype != FSDP_DTYPE_NONE ? a->dtype : FSDP_FP32;
    r->low = a->precision.param_dtype != FSDP_DTYPE_NONE
                 ? a->precision.param_dtype
                 : r->type;
    fsdp_status_t status = choose_optimizer(s, &o);
    r->verifier.options = o;
    return status == FSDP_OK ? choose_dropout(s) : status;
}

/* The longest unit whose name the parameter's begins with. */
static const char *
unit_of(const replayer_t *r, const char *parameter)
{
    const char *best = "(root)";
    size_t length = 0;
    for (int u = 0; u < r->verifier.num_units; u++) {
        const char *name = r->verifier.unit[u].name;
        size_t n = strlen(name);
        if (!r->verifier.unit[u].is_root && n > length &&
            strncmp(parameter, name, n) == 0 && parameter[n] == '.') {
            best = name;
            length = n;
        }
    }
    return best;
}

static void
list_units(replayer_t *r)
{
    const fsdp_trace_about_t *a = r->source.about;
    fsdp_verifier_t *v = &r->verifier;
    v->unit = fsdp_calloc(FSDP_MEM_BASELINE,
                          ((size_t)a->num_units + 1) * sizeof *v->unit);
    for (int u = 0; u < a->num_units; u++) {
        bool is_root = strcmp(a->unit[u], "(root)") == 0;
        fsdp_module_t *module =
            fsdp_module_find(r->shapes, is_root ? "" : a->unit[u]);
        if (module != NULL)
            v->unit[v->num_units++] = (unit_t){.run = module,
                                               .is_root = is_root,
                                               .name = a->unit[u],
                                               .verifier = v};
    }
    if (a->num_units == 0)
        v->unit[v->num_units++] = (unit_t){
            .run = r->shapes, .is_root = true, .name = "(root)", .verifier = v};
}

/* For the order `ring`: who would get which rows. */
static void
lay_out(const replayer_t *r, verified_t *param)
{
    const fsdp_verifier_t *v = &r->verifier;
    param->layout =
        fsdp_alloc(FSDP_MEM_BASELINE, (size_t)v->size * sizeof *param->layout);
    for (int d = 0; d < v->size; d++) {
        param->layout[d] = fsdp_layout_whole(param->run);
        param->layout[d].kind = FSDP_LAYOUT_CHUNKS;
        param->layout[d].num_ranks = v->shards;
        param->layout[d].rank = d % v->shards;
    }
}

static void
list_parameters(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    size_t count = fsdp_module_parameters(r->shapes, NULL, 0);
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_parameters(r->shapes, list, count);
    v->param = fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *v->param);
    v->num_params = (int)count;
    v->dtype = r->source.dtype;
    for (size_t p = 0; p < count; p++) {
        v->param[p] = (verified_t){.run = list[p],
                                   .unit = unit_of(r, list[p]->name),
                                   .dtype = list[p]->dtype,
                                   .numel = fsdp_parameter_numel(list[p]),
                                   .neighbours = 1,
                                   .shards = v->shards};
        lay_out(r, &v->param[p]);
    }
    fsdp_free(list);
}

static void
list_ranks(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    const fsdp_trace_about_t *a = r->source.about;
    v->size = r->source.ranks;
    v->replicas = a->replicas > 0 ? a->replicas : 1;
    v->shards = v->size / v->replicas;
}

/* States with which the first step begins. */
static fsdp_status_t
load_states(replayer_t *r)
{
    static const char *const name[2][2] = {{"momentum_buffer", NULL},
                                           {"exp_avg", "exp_avg_sq"}};
    fsdp_verifier_t *v = &r->verifier;
    bool adamw = v->options.adamw, some = false;
    for (int p = 0; p < v->num_params && r->source.first_step > 1; p++) {
        verified_t *param = &v->param[p];
        double *values =
            fsdp_alloc(FSDP_MEM_BASELINE, param->numel * sizeof *values);
        for (int k = 0; k < 2 && name[adamw][k] != NULL; k++) {
            if (!trace_source_state(&r->source, name[adamw][k],
                                    param->run->name, values, &param->updates))
                continue;
            some = true;
            param->state[k] =
                fsdp_alloc(FSDP_MEM_BASELINE,
                           param->numel * fsdp_dtype_size(param->dtype));
            fsdp_convert(FSDP_FP64, values, param->dtype, param->state[k],
                         param->numel);
        }
        fsdp_free(values);
    }
    if (some || r->source.first_step == 1 ||
        (!adamw && v->options.sgd.momentum == 0))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s lacks the optimizer states of step %ld, with which "
                      "step %ld begins",
                      fsdp_trace_path(r->source.trace),
                      r->source.first_step - 1, r->source.first_step);
}

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
    list_ranks(r);
    list_units(r);
    list_parameters(r);
    v->step = r->source.first_step - 1;
    baseline_create(v);
    v->options.level = FSDP_VERIFY_PHASE;
    v->after_backward = after_backward;
    v->after_context = r;
    if (r->status != FSDP_OK)
        return r->status;
    r->unit =
        fsdp_calloc(FSDP_MEM_BASELINE, (size_t)v->num_units * sizeof *r->unit);
    replay_watch(r);
    show_params(r, FSDP_TRACE_PARAMETER, -1, data_of);
    return load_states(r);
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

static void
change_model(const fsdp_replay_change_t *change, trace_model_t *model)
{
    if (change->norm_eps > 0)
        model->gpt2.layer_norm_epsilon = model->llama.rms_norm_eps =
            change->norm_eps;
    if (change->rope_theta > 0)
        model->llama.rope_theta = change->rope_theta;
    if (change->activation != NULL)
        model->mlp.activation = *change->activation;
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
        change_model(options->change, &r.source.model);
    if (status == FSDP_OK)
        status = choose_options(&r);
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
