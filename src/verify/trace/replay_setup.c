/* A baseline that stands for the run of a trace: there is no run here. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/replayer.h"

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

fsdp_status_t
replay_choose_options(replayer_t *r)
{
    trace_source_t *s = &r->source;
    const fsdp_trace_about_t *a = s->about;
    bool fsdp1 = a->api != NULL && strcmp(a->api, "fsdp1") == 0;
    bool own = r->options->dtype != FSDP_DTYPE_NONE;
    int order = a->reduce_order;
    if (order < 0 || order == FSDP_ORDER_MPI)
        order = order < 0 ? FSDP_ORDER_TREE : FSDP_ORDER_RANK;
    fsdp_verify_options_t o = {
        .level = FSDP_VERIFY_STEP,
        .task = replay_task(r),
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

/* ---- for the order `ring`: who gets which elements ------------------------------ */

/* Rows, as FSDP2 has them. */
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

/* Ranges of a unit's parameters one after another, each beginning at a multiple of
 * `aligned` elements, as FSDP1 has them. */
static void
lay_out_flat(const replayer_t *r, const char *unit, size_t aligned)
{
    const fsdp_verifier_t *v = &r->verifier;
    size_t shards = (size_t)v->shards, numel = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t chunk = (numel + shards - 1) / shards, begin = 0;
        for (int p = 0; p < v->num_params; p++) {
            verified_t *param = &v->param[p];
            if (strcmp(param->unit, unit) != 0)
                continue;
            begin = (begin + aligned - 1) / aligned * aligned;
            for (int d = 0; d < v->size; d++) {
                param->layout[d].kind = FSDP_LAYOUT_FLAT;
                param->layout[d].flat_offset = begin;
                param->layout[d].flat_chunk = chunk;
            }
            begin += param->numel;
        }
        numel = begin;
    }
}

/* Do the ranks of the trace keep those elements of the parameter? */
static bool
is_kept_so(const replayer_t *r, const verified_t *param)
{
    const fsdp_trace_record_t *record =
        fsdp_trace_find(r->source.trace, r->source.first_step - 1,
                        FSDP_TRACE_PARAMETER, -1, param->run->name);
    if (record == NULL || record->numel != param->numel)
        return false;
    double *values =
        fsdp_alloc(FSDP_MEM_BASELINE, param->numel * sizeof *values);
    int *owner = fsdp_alloc(FSDP_MEM_BASELINE, param->numel * sizeof *owner);
    bool same = fsdp_trace_read(r->source.trace, record, values, owner, NULL) ==
                FSDP_OK;
    for (int d = 0; d < r->verifier.shards; d++) {
        fsdp_run_t run = {0};
        while (same && fsdp_layout_next_run(&param->layout[d], &run))
            for (size_t i = 0; i < run.count; i++)
                same &= owner[run.whole + i] % r->verifier.shards == d;
    }
    fsdp_free(values);
    fsdp_free(owner);
    return same;
}

static bool
all_are_kept_so(const replayer_t *r)
{
    bool all = true;
    for (int p = 0; p < r->verifier.num_params && all; p++)
        all = is_kept_so(r, &r->verifier.param[p]);
    return all;
}

/* Whether flat parameters are aligned (use_orig_params) shows in who keeps what; if
 * neither is so, the order cannot be had, and ranks are added up as they are
 * numbered. */
static void
lay_out_as_fsdp1(replayer_t *r)
{
    fsdp_verifier_t *v = &r->verifier;
    const size_t aligned[] = {1, 16 / fsdp_dtype_size(r->low)};
    if (!v->options.fsdp1 || v->options.reduce_order != FSDP_ORDER_RING)
        return;
    for (int k = 0; k < 2 && v->shards > 1; k++) {
        for (int u = 0; u < v->num_units; u++)
            lay_out_flat(r, v->unit[u].name, aligned[k]);
        if (all_are_kept_so(r))
            return;
    }
    v->options.reduce_order = FSDP_ORDER_RANK;
}

/* ---- lists ---------------------------------------------------------------------- */

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

void
replay_list(replayer_t *r)
{
    list_ranks(r);
    list_units(r);
    list_parameters(r);
    lay_out_as_fsdp1(r);
}

/* States with which the first step begins. */
fsdp_status_t
replay_load_states(replayer_t *r)
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
