/* Parameters and states with which a replay begins. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"
#include "verify/trace/source.h"

static const char how[] =
    "record() must be called before the first step, on all ranks";

/* ---- what there is --------------------------------------------------------- */

static bool
ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), n = strlen(end);
    return length >= n && strcmp(name + length - n, end) == 0;
}

/* Buffers, and the head that is tied to the embedding. */
static bool
may_be_superfluous(const trace_source_t *s, const char *name)
{
    bool tied = s->model.kind == TRACE_MODEL_GPT2
                    ? s->model.gpt2.tie_word_embeddings
                    : s->model.llama.tie_word_embeddings;
    return ends_with(name, ".attn.bias") ||
           ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq") ||
           (tied && strcmp(name, "lm_head.weight") == 0);
}

/* Another model would train something else without a word. */
static fsdp_status_t
check_superfluous(const trace_source_t *s, fsdp_module_t *model)
{
    for (size_t i = 0; i < fsdp_trace_count(s->trace); i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(s->trace, i);
        if (r->step != s->first_step - 1 || r->phase != FSDP_TRACE_PARAMETER ||
            may_be_superfluous(s, r->name) ||
            fsdp_module_find_parameter(model, r->name) != NULL)
            continue;
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s holds a parameter %s, which the model of its "
                          "trace.json does not have",
                          fsdp_trace_path(s->trace), r->name);
    }
    return FSDP_OK;
}

static fsdp_status_t
check_shape(const trace_source_t *s, const fsdp_parameter_t *parameter,
            const fsdp_trace_record_t *record)
{
    size_t shape[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(parameter, shape);
    bool same = record->ndim == parameter->ndim;
    for (int d = 0; d < record->ndim && same; d++)
        same = record->shape[d] == shape[d];
    if (same)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: parameter %s has another shape than the model of "
                      "trace.json gives it",
                      fsdp_trace_path(s->trace), parameter->name);
}

/* ---- taking this process's part ----------------------------------------------- */

/* All values of the record, in double; the caller frees.  NULL: an error. */
static double *
read_whole(const trace_source_t *s, const fsdp_trace_record_t *record,
           fsdp_status_t *status)
{
    double *values =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)record->numel * sizeof *values);
    int *owner =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)record->numel * sizeof *owner);
    *status = fsdp_trace_read(s->trace, record, values, owner, NULL);
    for (uint64_t i = 0; i < record->numel && *status == FSDP_OK; i++)
        if (owner[i] < 0)
            *status =
                fsdp_error(FSDP_ERR_INPUT,
                           "%s: no rank recorded element %llu of %s/-/%s "
                           "of step %ld; %s",
                           fsdp_trace_path(s->trace), (unsigned long long)i,
                           fsdp_trace_phase_name(record->phase), record->name,
                           record->step, how);
    fsdp_free(owner);
    if (*status == FSDP_OK)
        return values;
    fsdp_free(values);
    return NULL;
}

/* `local` is laid out as this process's part of the parameter. */
static fsdp_status_t
take(const trace_source_t *s, fsdp_parameter_t *parameter,
     const fsdp_trace_record_t *record, void *local)
{
    fsdp_status_t status = check_shape(s, parameter, record);
    double *values = status == FSDP_OK ? read_whole(s, record, &status) : NULL;
    if (values == NULL)
        return status;
    size_t numel = (size_t)record->numel;
    void *whole =
        fsdp_alloc(FSDP_MEM_OTHER, numel * fsdp_dtype_size(parameter->dtype));
    fsdp_convert(FSDP_FP64, values, parameter->dtype, whole, numel);
    fsdp_layout_t layout = fsdp_parameter_local(parameter).layout;
    fsdp_layout_take(&layout, fsdp_dtype_size(parameter->dtype), whole, local);
    fsdp_free(whole);
    fsdp_free(values);
    return FSDP_OK;
}

static const fsdp_trace_record_t *
find_parameter(const trace_source_t *s, const char *name)
{
    return fsdp_trace_find(s->trace, s->first_step - 1, FSDP_TRACE_PARAMETER,
                           -1, name);
}

static fsdp_status_t
lacks(const trace_source_t *s, const char *name)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s lacks parameter/-/%s of step %ld, with which a "
                      "replay of step %ld begins; %s",
                      fsdp_trace_path(s->trace), name, s->first_step - 1,
                      s->first_step, how);
}

static fsdp_status_t
load_parameter(const trace_source_t *s, fsdp_parameter_t *parameter)
{
    const fsdp_trace_record_t *record = find_parameter(s, parameter->name);
    if (record == NULL)
        return lacks(s, parameter->name);
    if (parameter->managed == NULL)
        fsdp_parameter_data(parameter); /* makes it */
    return take(s, parameter, record, fsdp_parameter_local(parameter).data);
}

/* The width of a head is what a Llama makes a table of when it is created. */
static fsdp_status_t
check_heads(const trace_source_t *s)
{
    static const char name[] = "model.layers.0.self_attn.q_proj.weight";
    const fsdp_llama_config_t *c = &s->model.llama;
    const fsdp_trace_record_t *record = find_parameter(s, name);
    if (s->model.kind != TRACE_MODEL_LLAMA)
        return FSDP_OK;
    if (record == NULL)
        return lacks(s, name);
    if (record->ndim == 2 &&
        record->shape[0] == (uint64_t)c->num_attention_heads * c->head_dim)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: parameter %s has not the rows that trace.json's "
                      "\"num_attention_heads\" and \"head_dim\" give it",
                      fsdp_trace_path(s->trace), name);
}

fsdp_status_t
trace_source_check_parameters(const trace_source_t *s)
{
    fsdp_status_t status = check_heads(s);
    if (status != FSDP_OK)
        return status;
    fsdp_module_t *model = trace_model_create(&s->model);
    size_t count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    for (size_t p = 0; p < count && status == FSDP_OK; p++) {
        const fsdp_trace_record_t *record = find_parameter(s, list[p]->name);
        status = record == NULL ? lacks(s, list[p]->name)
                                : check_shape(s, list[p], record);
    }
    if (status == FSDP_OK)
        status = check_superfluous(s, model);
    fsdp_free(list);
    fsdp_module_destroy(&model);
    return status;
}

/* ---- states ------------------------------------------------------------------- */

static const fsdp_trace_record_t *
find_state(const trace_source_t *s, const char *state, const char *parameter)
{
    char text[64];
    snprintf(text, sizeof text, "state.%s", state);
    return fsdp_trace_find(s->trace, s->first_step - 1,
                           fsdp_trace_phase_from_name(text), -1, parameter);
}

/* Steps that the parameter's state has had: as recorded, or all before. */
static fsdp_status_t
read_steps(const trace_source_t *s, const char *parameter, long *steps)
{
    const fsdp_trace_record_t *record = find_state(s, "step", parameter);
    fsdp_status_t status = FSDP_OK;
    *steps = s->first_step - 1;
    if (record == NULL)
        return FSDP_OK;
    double *value = read_whole(s, record, &status);
    if (value == NULL)
        return status;
    if (record->numel != 1 || value[0] != floor(value[0]) || value[0] < 0 ||
        value[0] > 1e9)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s: state.step/-/%s of step %ld is no number of "
                            "steps",
                            fsdp_trace_path(s->trace), parameter, record->step);
    else
        *steps = (long)value[0];
    fsdp_free(value);
    return status;
}

bool
trace_source_state(const trace_source_t *s, const char *state,
                   const char *parameter, double *values, long *steps)
{
    const fsdp_trace_record_t *record = find_state(s, state, parameter);
    return record != NULL &&
           fsdp_trace_read(s->trace, record, values, NULL, NULL) == FSDP_OK &&
           read_steps(s, parameter, steps) == FSDP_OK;
}

static fsdp_status_t
load_states(const trace_source_t *s, fsdp_parameter_t *parameter,
            fsdp_optimizer_t *optimizer, bool *some)
{
    const char *name;
    long steps;
    fsdp_status_t status = read_steps(s, parameter->name, &steps);
    for (int i = 0; status == FSDP_OK &&
                    (name = fsdp_optimizer_state_name(optimizer, i)) != NULL;
         i++) {
        const fsdp_trace_record_t *record =
            find_state(s, name, parameter->name);
        if (record == NULL)
            continue;
        *some = true;
        if (fsdp_optimizer_steps_of(optimizer, parameter) == 0)
            fsdp_optimizer_restore(optimizer, parameter, steps);
        void *state = fsdp_optimizer_state(optimizer, parameter, i);
        if (state != NULL)
            status = take(s, parameter, record, state);
    }
    return status;
}

/* Before the first step of all there are none. */
static fsdp_status_t
check_states(const trace_source_t *s, const fsdp_optimizer_t *optimizer,
             bool some)
{
    const char *name = fsdp_optimizer_state_name(optimizer, 0);
    if (s->first_step == 1 || name == NULL || some)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s lacks state.%s of step %ld, with which a replay of "
                      "step %ld begins; record from step 1, or the step before "
                      "with its states",
                      fsdp_trace_path(s->trace), name, s->first_step - 1,
                      s->first_step);
}

fsdp_status_t
trace_source_load(const trace_source_t *s, fsdp_module_t *model,
                  fsdp_optimizer_t *optimizer)
{
    size_t count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    fsdp_status_t status = FSDP_OK;
    bool some = false;
    for (size_t p = 0; p < count && status == FSDP_OK; p++)
        status = load_parameter(s, list[p]);
    for (size_t p = 0; p < count && status == FSDP_OK && optimizer != NULL; p++)
        status = load_states(s, list[p], optimizer, &some);
    if (status == FSDP_OK && optimizer != NULL)
        status = check_states(s, optimizer, some);
    fsdp_free(list);
    return status;
}
