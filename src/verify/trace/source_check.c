/* May the model take the recorded inputs? */

#include <math.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"
#include "verify/trace/source.h"

static const char how[] =
    "fsdp_trace.record() writes it, if all ranks record from the first step on";

fsdp_status_t
trace_source_check_steps(const trace_source_t *s)
{
    if (s->first_step < 1 || s->micros == 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s holds no inputs (\"input/0/%s\" and "
                          "\"input/0/targets\"), which a replay needs; %s",
                          fsdp_trace_path(s->trace), trace_source_input_name(s),
                          how);
    return FSDP_OK;
}

static fsdp_status_t
bad_input(const trace_source_t *s, const fsdp_trace_record_t *record,
          const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT, "%s: step %ld, input/%d/%s %s",
                      fsdp_trace_path(s->trace), record->step, record->micro,
                      record->name, what);
}

static fsdp_status_t
missing_input(const trace_source_t *s, long step)
{
    for (int g = 0; g < s->micros; g++) {
        const char *name = NULL;
        if (trace_source_input(s, step, g, "targets") == NULL)
            name = "targets";
        if (trace_source_input(s, step, g, trace_source_input_name(s)) == NULL)
            name = trace_source_input_name(s);
        if (name != NULL)
            return fsdp_error(
                FSDP_ERR_INPUT,
                "%s lacks input/%d/%s of step %ld, which a replay "
                "needs (micro-batches 0 to %d); %s",
                fsdp_trace_path(s->trace), g, name, step, s->micros - 1, how);
    }
    return FSDP_OK;
}

/* Classes or words, for the targets. */
static size_t
num_classes(const trace_source_t *s)
{
    switch (s->model.kind) {
    case TRACE_MODEL_GPT2:
        return s->model.gpt2.vocab_size;
    case TRACE_MODEL_LLAMA:
        return s->model.llama.vocab_size;
    default:
        return s->model.mlp.width[s->model.mlp.num_layers];
    }
}

static size_t
num_positions(const trace_source_t *s)
{
    return s->model.kind == TRACE_MODEL_GPT2
               ? s->model.gpt2.n_positions
               : s->model.llama.max_position_embeddings;
}

/* Shapes that the model can take. */
static fsdp_status_t
check_shapes(const trace_source_t *s, const fsdp_trace_record_t *x,
             const fsdp_trace_record_t *y)
{
    bool text = s->model.kind != TRACE_MODEL_MLP;
    if (x->ndim < 1 || x->ndim > FSDP_MAX_DIMS || x->numel == 0)
        return bad_input(s, x, "has no shape of 1 to 4 numbers above 0");
    if (text && (x->ndim != 2 || x->shape[1] > num_positions(s)))
        return bad_input(s, x, "is no [batch, positions] of the model");
    if (text || s->mse) {
        bool same = x->ndim == y->ndim;
        for (int d = 0; d < x->ndim && same; d++)
            same = x->shape[d] == y->shape[d] || (s->mse && d == x->ndim - 1);
        if (!same || (s->mse && y->shape[y->ndim - 1] != num_classes(s)))
            return bad_input(s, y, "has not the shape of what is predicted");
    }
    if (text)
        return FSDP_OK;
    uint64_t width = x->shape[x->ndim - 1];
    if (width != s->model.mlp.width[0])
        return bad_input(s, x, "has another last dimension than the model");
    if (!s->mse && y->numel != x->numel / width)
        return bad_input(s, y, "are not one for each row");
    return FSDP_OK;
}

/* `classes` 0: any finite number. */
static fsdp_status_t
check_values(const trace_source_t *s, const fsdp_trace_record_t *record,
             size_t classes, bool may_be_ignored)
{
    double *values =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)record->numel * sizeof *values);
    fsdp_status_t status =
        fsdp_trace_read(s->trace, record, values, NULL, NULL);
    const char *what = NULL;
    for (uint64_t i = 0; i < record->numel && status == FSDP_OK; i++) {
        double v = values[i];
        if (!isfinite(v))
            what = "holds NaN or infinity, or was not recorded by all ranks";
        else if (classes > 0 &&
                 (v != floor(v) || v < 0 || v >= (double)classes) &&
                 !(may_be_ignored && v == (double)s->about->ignore_index))
            what = "holds numbers that the model has no word or class for";
    }
    fsdp_free(values);
    if (status == FSDP_OK && what != NULL)
        status = bad_input(s, record, what);
    return status;
}

static fsdp_status_t
check_micro_batch(const trace_source_t *s, long step, int g)
{
    const fsdp_trace_record_t *x =
        trace_source_input(s, step, g, trace_source_input_name(s));
    const fsdp_trace_record_t *y = trace_source_input(s, step, g, "targets");
    bool text = s->model.kind != TRACE_MODEL_MLP;
    fsdp_status_t status = check_shapes(s, x, y);
    if (status == FSDP_OK)
        status = check_values(s, x, text ? num_classes(s) : 0, false);
    if (status == FSDP_OK)
        status = check_values(s, y, s->mse ? 0 : num_classes(s), true);
    return status;
}

fsdp_status_t
trace_source_check_inputs(const trace_source_t *s)
{
    fsdp_status_t status = FSDP_OK;
    for (long step = s->first_step; step <= s->last_step; step++) {
        if (status == FSDP_OK)
            status = missing_input(s, step);
        for (int g = 0; g < s->micros && status == FSDP_OK; g++)
            status = check_micro_batch(s, step, g);
    }
    return status;
}
