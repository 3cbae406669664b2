#include "verify/trace/source.h"

#include <math.h>
#include <string.h>

#include "verify/trace/internal.h"

/* ---- inputs --------------------------------------------------------------- */

const char *
trace_source_input_name(const trace_source_t *s)
{
    return s->model.kind == TRACE_MODEL_MLP ? "x" : "tokens";
}

const fsdp_trace_record_t *
trace_source_input(const trace_source_t *s, long step, int micro,
                   const char *name)
{
    return fsdp_trace_find(s->trace, step, FSDP_TRACE_INPUT, micro, name);
}

static bool
has_inputs(const trace_source_t *s, long step)
{
    for (int g = 0; g < s->micros; g++)
        if (trace_source_input(s, step, g, trace_source_input_name(s)) ==
                NULL ||
            trace_source_input(s, step, g, "targets") == NULL)
            return false;
    return true;
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
    const fsdp_trace_record_t *y =
        trace_source_input(s, s->first_step, 0, "targets");
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

/* A Llama keeps a table of all positions, which no tensor of the trace bears out:
 * of as many as the inputs have. */
static void
shorten(trace_source_t *s)
{
    size_t longest = 1;
    for (long step = s->first_step; step <= s->last_step; step++)
        for (int g = 0; g < s->micros; g++) {
            const fsdp_trace_record_t *x =
                trace_source_input(s, step, g, trace_source_input_name(s));
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
    status = trace_source_check_steps(s);
    if (status == FSDP_OK)
        status = choose_loss(s);
    if (status == FSDP_OK)
        status = choose_scale(s);
    if (status == FSDP_OK)
        status = trace_source_check_inputs(s);
    shorten(s);
    return status == FSDP_OK ? trace_source_check_parameters(s) : status;
}

void
trace_source_close(trace_source_t *source)
{
    trace_model_free(&source->model);
}
