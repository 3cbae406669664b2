#include "verify/trace/source.h"

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "verify/trace/internal.h"

static const char how[] =
    "fsdp_trace.record() writes it, if all ranks record from the first step on";

/* ---- inputs --------------------------------------------------------------- */

static const char *
input_name(const trace_source_t *s)
{
    return s->model.kind == TRACE_MODEL_MLP ? "x" : "tokens";
}

static const fsdp_trace_record_t *
input_of(const trace_source_t *s, long step, int micro, const char *name)
{
    return fsdp_trace_find(s->trace, step, FSDP_TRACE_INPUT, micro, name);
}

static bool
has_inputs(const trace_source_t *s, long step)
{
    for (int g = 0; g < s->micros; g++)
        if (input_of(s, step, g, input_name(s)) == NULL ||
            input_of(s, step, g, "targets") == NULL)
            return false;
    return true;
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
        if (input_of(s, step, g, "targets") == NULL)
            name = "targets";
        if (input_of(s, step, g, input_name(s)) == NULL)
            name = input_name(s);
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
    const fsdp_trace_record_t *x = input_of(s, step, g, input_name(s));
    const fsdp_trace_record_t *y = input_of(s, step, g, "targets");
    bool text = s->model.kind != TRACE_MODEL_MLP;
    fsdp_status_t status = check_shapes(s, x, y);
    if (status == FSDP_OK)
        status = check_values(s, x, text ? num_classes(s) : 0, false);
    if (status == FSDP_OK)
        status = check_values(s, y, s->mse ? 0 : num_classes(s), true);
    return status;
}

static fsdp_status_t
check_inputs(const trace_source_t *s)
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

/* ---- what is run ------------------------------------------------------------ */

static void
choose_type(trace_source_t *s, fsdp_dtype_t dtype)
{
    s->dtype = dtype != FSDP_DTYPE_NONE ? dtype : s->about->dtype;
    for (size_t i = 0;
         i < fsdp_trace_count(s->trace) && s->dtype == FSDP_DTYPE_NONE; i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(s->trace, i);
        if (r->phase == FSDP_TRACE_PARAMETER)
            s->dtype = r->dtype;
    }
    if (s->dtype == FSDP_DTYPE_NONE)
        s->dtype = FSDP_FP32;
}

/* N m, or as many as there are inputs of the first step. */
static void
count_micros(trace_source_t *s)
{
    const fsdp_trace_about_t *a = s->about;
    s->ranks = a->replicas > 0 ? a->replicas * a->shards : a->world_size;
    s->micros = 0;
    for (size_t i = 0; i < fsdp_trace_count(s->trace); i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(s->trace, i);
        if (r->phase == FSDP_TRACE_INPUT && r->micro >= s->micros &&
            (size_t)r->micro < fsdp_trace_count(s->trace))
            s->micros = r->micro + 1;
    }
    if (a->micro_batches > 0 && a->micro_batches <= (int)(INT32_MAX / s->ranks))
        s->micros = s->ranks * a->micro_batches;
}

/* The first step with inputs, and the last without a gap after it. */
static void
find_steps(trace_source_t *s, long first, long last)
{
    for (size_t i = 0; i < fsdp_trace_count(s->trace) && first == 0; i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(s->trace, i);
        if (r->phase == FSDP_TRACE_INPUT)
            first = r->step;
    }
    s->first_step = first;
    s->last_step = last > 0 ? last : first;
    while (last == 0 && has_inputs(s, s->last_step + 1))
        s->last_step++;
}

/* The loss that the trace names, or the one that its targets are for. */
static fsdp_status_t
choose_loss(trace_source_t *s)
{
    const char *loss = s->meant->loss != NULL ? s->meant->loss : s->about->loss;
    const fsdp_trace_record_t *y = input_of(s, s->first_step, 0, "targets");
    bool text = s->model.kind != TRACE_MODEL_MLP;
    s->mse = !text && y != NULL && fsdp_dtype_is_floating(y->dtype);
    if (loss != NULL)
        s->mse = strcmp(loss, "mse") == 0;
    if (loss != NULL && !s->mse && strcmp(loss, "cross_entropy") != 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s was made with the loss \"%s\"; cross_entropy and "
                          "mse can be run again here",
                          fsdp_trace_path(s->trace), loss);
    if (s->mse && text)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: a language model with the loss mse cannot be "
                          "run again here",
                          fsdp_trace_path(s->trace));
    return FSDP_OK;
}

static fsdp_status_t
choose_scale(trace_source_t *s)
{
    s->scale = s->about->loss_scale;
    if (isnan(s->scale) && s->micros == s->ranks)
        s->scale = 1;
    if (!isnan(s->scale))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s/trace.json does not say by what the loss of each of "
                      "%d micro-batches was multiplied before backward(); add "
                      "\"scale\" to its \"loss\": 1 for nothing, %g for the "
                      "mean over them",
                      fsdp_trace_path(s->trace), s->micros / s->ranks,
                      (double)s->ranks / s->micros);
}

static fsdp_status_t
check_steps(const trace_source_t *s)
{
    if (s->first_step < 1 || s->micros == 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s holds no inputs (\"input/0/%s\" and "
                          "\"input/0/targets\"), which a replay needs; %s",
                          fsdp_trace_path(s->trace), input_name(s), how);
    return FSDP_OK;
}

/* A Llama keeps a table of all positions, which no tensor of the trace bears out:
 * of as many as the inputs have. */
static void
shorten(trace_source_t *s)
{
    size_t longest = 1;
    for (long step = s->first_step; step <= s->last_step; step++)
        for (int g = 0; g < s->micros; g++) {
            const fsdp_trace_record_t *x = input_of(s, step, g, input_name(s));
            if (x != NULL && x->ndim == 2 && x->shape[1] > longest)
                longest = (size_t)x->shape[1];
        }
    if (s->model.llama.max_position_embeddings > longest)
        s->model.llama.max_position_embeddings = longest;
}

fsdp_status_t
trace_source_open(fsdp_trace_t *trace, const fsdp_trace_about_t *meant,
                  fsdp_dtype_t dtype, long first_step, long last_step,
                  trace_source_t *s)
{
    *s = (trace_source_t){.trace = trace, .about = fsdp_trace_about(trace)};
    s->meant = meant != NULL ? meant : s->about;
    choose_type(s, dtype);
    fsdp_status_t status =
        trace_model_read(trace, s->meant, s->dtype, &s->model);
    if (status != FSDP_OK)
        return status;
    count_micros(s);
    find_steps(s, first_step, last_step);
    status = check_steps(s);
    if (status == FSDP_OK)
        status = choose_loss(s);
    if (status == FSDP_OK)
        status = choose_scale(s);
    if (status == FSDP_OK)
        status = check_inputs(s);
    shorten(s);
    return status == FSDP_OK ? trace_source_check_parameters(s) : status;
}

void
trace_source_close(trace_source_t *source)
{
    trace_model_free(&source->model);
}

/* ---- batches ----------------------------------------------------------------- */

double
trace_source_lr(const trace_source_t *s, long step)
{
    for (int i = 0; i < s->about->num_steps; i++)
        if (s->about->step[i].step == step)
            return s->about->step[i].lr;
    return NAN;
}

/* A whole record as a tensor of the tape. */
static fsdp_tensor_t *
read_tensor(const trace_source_t *s, fsdp_tape_t *tape,
            const fsdp_trace_record_t *record, bool integers)
{
    size_t shape[FSDP_MAX_DIMS];
    for (int d = 0; d < record->ndim; d++)
        shape[d] = (size_t)record->shape[d];
    fsdp_tensor_t *t = fsdp_tape_new_tensor(
        tape, integers ? FSDP_INT32 : s->dtype, record->ndim, shape);
    double *values =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)record->numel * sizeof *values);
    if (fsdp_trace_read(s->trace, record, values, NULL, NULL) != FSDP_OK)
        fsdp_die(FSDP_EXIT_USAGE, "%s", fsdp_error_message());
    if (!integers)
        fsdp_convert(FSDP_FP64, values, s->dtype, t->data,
                     (size_t)record->numel);
    for (uint64_t i = 0; i < record->numel && integers; i++)
        ((int32_t *)t->data)[i] = values[i] == (double)s->about->ignore_index
                                      ? FSDP_IGNORE_INDEX
                                      : (int32_t)values[i];
    fsdp_free(values);
    return t;
}

fsdp_values_t
trace_source_batch(const trace_source_t *s, fsdp_tape_t *tape, long step,
                   int micro)
{
    const fsdp_trace_record_t *x = input_of(s, step, micro, input_name(s));
    const fsdp_trace_record_t *y = input_of(s, step, micro, "targets");
    FSDP_CHECK(x != NULL && y != NULL, "step %ld has no micro-batch %d", step,
               micro);
    return fsdp_values2(
        read_tensor(s, tape, x, s->model.kind != TRACE_MODEL_MLP),
        read_tensor(s, tape, y, !s->mse));
}

fsdp_tensor_t *
trace_source_mean(const trace_source_t *s, fsdp_tape_t *tape,
                  fsdp_module_t *model, fsdp_values_t batch)
{
    if (s->model.kind != TRACE_MODEL_MLP)
        return fsdp_module_call(model, tape, batch).tensor[0];
    if (!s->mse)
        return fsdp_mlp_loss(tape, model, batch.tensor[0], batch.tensor[1]);
    fsdp_tensor_t *x = fsdp_module_call1(model, tape, batch.tensor[0]);
    return fsdp_mse_loss(tape, fsdp_cast(tape, x, batch.tensor[1]->dtype),
                         batch.tensor[1]);
}

double
trace_source_targets(fsdp_values_t batch)
{
    const fsdp_tensor_t *y = batch.tensor[1];
    size_t numel = fsdp_tensor_numel(y), count = 0;
    if (y->dtype != FSDP_INT32)
        return (double)numel;
    for (size_t i = 0; i < numel; i++)
        count += ((const int32_t *)y->data)[i] != FSDP_IGNORE_INDEX;
    return (double)count;
}
