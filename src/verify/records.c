#include "verify/records.h"

#include <string.h>

#include "base/grow.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "verify/value.h"

/* One call of a hooked module, whose input gradients are to come. */
typedef struct watched_call {
    watch_t *watch;
    fsdp_values_t inputs;
    int32_t
        *rows; /* of each source and expert, [num_rows]; NULL: not experts */
    size_t num_rows;
    struct watched_call *next;
} watched_call_t;

void
recorder_add(recorder_t *recorder, record_kind_t kind, const char *unit,
             int param, fsdp_dtype_t dtype, const void *data, size_t numel,
             size_t padded_numel)
{
    recorder->list =
        fsdp_grow(FSDP_MEM_BASELINE, recorder->list, (size_t)recorder->count,
                  &recorder->room, 64, sizeof *recorder->list);
    size_t size = fsdp_dtype_size(dtype);
    record_t *record = &recorder->list[recorder->count++];
    *record = (record_t){
        .kind = kind,
        .sequence = recorder->sequence++,
        .unit = unit,
        .param = param,
        .dtype = dtype,
        .numel = padded_numel,
        .data = fsdp_calloc(FSDP_MEM_BASELINE, padded_numel * size),
    };
    if (numel > 0)
        memcpy(record->data, data, numel * size);
    if (kind == RECORD_OUTPUT)
        recorder->last_output = record->sequence;
}

void
recorder_clear(recorder_t *recorder)
{
    while (recorder->count > 0) {
        record_t *last = &recorder->list[--recorder->count];
        fsdp_free(last->data);
        fsdp_free(last->rows);
    }
    while (recorder->calls != NULL) {
        watched_call_t *call = recorder->calls;
        recorder->calls = call->next;
        fsdp_free(call->rows);
        fsdp_free(call);
    }
    recorder->sequence = recorder->last_output = 0;
}

void
recorder_destroy(recorder_t *recorder)
{
    recorder_clear(recorder);
    fsdp_free(recorder->list);
    *recorder = (recorder_t){0};
}

/* ---- hooks -------------------------------------------------------------- */

static int32_t *
copied(const int32_t *rows, size_t n)
{
    int32_t *copy = fsdp_alloc(FSDP_MEM_BASELINE, n * sizeof *copy);
    memcpy(copy, rows, n * sizeof *copy);
    return copy;
}

/* The counts may be gone when the gradients come. */
static void
keep_rows(watched_call_t *call, fsdp_values_t inputs)
{
    if (!call->watch->shared_out)
        return;
    const fsdp_tensor_t *counts = inputs.tensor[1];
    FSDP_CHECK(inputs.count == 2 && counts->dtype == FSDP_INT32,
               "unit %s has no counts of rows", call->watch->unit);
    call->num_rows = fsdp_tensor_numel(counts);
    call->rows = copied(counts->data, call->num_rows);
}

static void
add_tensor(recorder_t *recorder, record_kind_t kind, const watched_call_t *call,
           const fsdp_tensor_t *tensor)
{
    if (!value_is_floating(tensor->dtype))
        return;
    size_t numel = fsdp_tensor_numel(tensor);
    recorder_add(recorder, kind, call->watch->unit, -1, tensor->dtype,
                 tensor->data, numel, numel);
    record_t *record = &recorder->list[recorder->count - 1];
    if (tensor->ndim > 0)
        record->columns = tensor->shape[tensor->ndim - 1];
    if (call->rows != NULL) {
        record->rows = copied(call->rows, call->num_rows);
        record->num_rows = call->num_rows;
    }
}

static void
record_input_grads(void *context, fsdp_tape_t *tape)
{
    watched_call_t *call = context;
    recorder_t *recorder = *call->watch->recorder;
    if (!recorder->on)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    for (int i = 0; i < call->inputs.count; i++) {
        const fsdp_tensor_t *grad =
            fsdp_tape_grad(tape, call->inputs.tensor[i]);
        if (grad != NULL)
            add_tensor(recorder, RECORD_INPUT_GRAD, call, grad);
    }
    fsdp_memory_override(former);
}

/* Passes the inputs through a node of our own, so that their gradients are those
 * of this module's use alone, whoever else uses them. */
static fsdp_values_t
watch_inputs(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t inputs)
{
    (void)module;
    watch_t *watch = context;
    recorder_t *recorder = *watch->recorder;
    if (!recorder->on || fsdp_tape_is_recomputing(tape))
        return inputs;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    watched_call_t *call = fsdp_alloc(FSDP_MEM_BASELINE, sizeof *call);
    *call = (watched_call_t){.watch = watch, .next = recorder->calls};
    recorder->calls = call;
    keep_rows(call, inputs);
    call->inputs =
        watch->recomputed
            ? inputs
            : fsdp_tape_after_grads(tape, inputs, record_input_grads, call);
    fsdp_memory_override(former);
    return call->inputs;
}

static fsdp_values_t
watch_outputs(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
              fsdp_values_t outputs)
{
    (void)module;
    watch_t *watch = context;
    recorder_t *recorder = *watch->recorder;
    if (!recorder->on || fsdp_tape_is_recomputing(tape))
        return outputs;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    const watched_call_t *call = recorder->calls;
    while (call->watch != watch)
        call = call->next;
    for (int i = 0; i < outputs.count; i++)
        add_tensor(recorder, RECORD_OUTPUT, call, outputs.tensor[i]);
    fsdp_memory_override(former);
    return outputs;
}

void
watch_begin(watch_t *watch, recorder_t **recorder, fsdp_module_t *module,
            const char *unit)
{
    watch->recorder = recorder;
    watch->module = module;
    watch->unit = unit;
    fsdp_module_hooks_t hooks = {
        .context = watch,
        .pre_forward = watch_inputs,
        .post_forward = watch_outputs,
    };
    fsdp_module_add_hooks(module, &hooks);
}

void
watch_end(watch_t *watch)
{
    fsdp_module_remove_hooks(watch->module, watch);
}
