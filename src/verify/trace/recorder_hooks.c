/* What happens inside a micro-batch, as it happens. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/recorder.h"

/* ---- activations ----------------------------------------------------------- */

/* Does the linear layer have some of the columns only, of its inputs or of its
 * outputs?  (Ranks that share a batch then have the others.) */
static void
choose_columns(const fsdp_module_t *module, bool output, trace_thing_t *thing)
{
    const fsdp_parameter_t *weight =
        module->num_parameters > 0 ? module->parameter[0] : NULL;
    if (weight == NULL || weight->ndim != 2 || thing->ndim < 1 ||
        weight->num_parts == 1 || weight->part_dim != (output ? 0 : 1))
        return;
    size_t columns = thing->shape[thing->ndim - 1];
    thing->columns = columns;
    thing->first_column = columns * (size_t)weight->part;
    thing->shape[thing->ndim - 1] = columns * (size_t)weight->num_parts;
}

static void
add_activation(const recorded_call_t *call, fsdp_trace_phase_t phase,
               bool output, const fsdp_tensor_t *tensor)
{
    fsdp_trace_recorder_t *r = call->unit->recorder;
    trace_thing_t thing = {.phase = phase,
                           .micro = r->micro,
                           .name = call->unit->name,
                           .call = call->number,
                           .dtype = tensor->dtype,
                           .ndim = tensor->ndim};
    memcpy(thing.shape, tensor->shape, sizeof thing.shape);
    choose_columns(call->unit->module, output, &thing);
    trace_writer_add(r->writer, &thing, tensor->data);
}

static fsdp_tensor_t *
first_floating(fsdp_values_t values)
{
    for (int i = 0; i < values.count; i++)
        if (fsdp_dtype_is_floating(values.tensor[i]->dtype))
            return values.tensor[i];
    return NULL;
}

/* ---- gradients of activations ------------------------------------------------ */

static void
on_input_grad(void *context, fsdp_tape_t *tape)
{
    const recorded_call_t *call = context;
    if (call->unit->recorder->writer == NULL || call->input == NULL)
        return;
    const fsdp_tensor_t *grad = fsdp_tape_grad(tape, call->input);
    if (grad != NULL)
        add_activation(call, FSDP_TRACE_INPUT_GRAD, false, grad);
}

static void
on_output_grad(void *context, fsdp_tape_t *tape)
{
    const recorded_call_t *call = context;
    if (call->unit->recorder->writer == NULL)
        return;
    const fsdp_tensor_t *grad = fsdp_tape_grad(tape, call->output);
    if (grad != NULL)
        add_activation(call, FSDP_TRACE_OUTPUT_GRAD, true, grad);
}

/* ---- hooks ------------------------------------------------------------------- */

static bool
is_recording(const recorded_unit_t *unit, const fsdp_tape_t *tape)
{
    return unit->recorder->writer != NULL && !fsdp_tape_is_recomputing(tape);
}

/* Passes the inputs through a node of our own, so that their gradients are those
 * of this call alone, whoever else uses them. */
static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    recorded_unit_t *unit = context;
    fsdp_trace_recorder_t *r = unit->recorder;
    (void)module;
    if (!is_recording(unit, tape))
        return inputs;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    recorded_call_t *call = fsdp_alloc(FSDP_MEM_BASELINE, sizeof *call);
    *call = (recorded_call_t){
        .unit = unit, .number = ++unit->calls, .next = r->calls};
    r->calls = call;
    inputs = fsdp_tape_after_grads(tape, inputs, on_input_grad, call);
    call->input = first_floating(inputs);
    if (call->input != NULL)
        add_activation(call, FSDP_TRACE_UNIT_INPUT, false, call->input);
    fsdp_memory_override(former);
    return inputs;
}

/* The call of the unit that is not over yet: calls of one unit do not nest. */
static recorded_call_t *
running_call(const recorded_unit_t *unit)
{
    recorded_call_t *call = unit->recorder->calls;
    while (call != NULL && (call->unit != unit || call->output != NULL))
        call = call->next;
    return call;
}

static void
note_order(fsdp_trace_recorder_t *r, const char *name)
{
    for (int i = 0; i < r->num_ordered; i++)
        if (r->order[i] == name)
            return;
    r->order[r->num_ordered++] = name;
}

/* A scalar is the loss: it is recorded as that. */
static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    recorded_unit_t *unit = context;
    (void)module;
    if (!is_recording(unit, tape))
        return outputs;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    recorded_call_t *call = running_call(unit);
    fsdp_tensor_t *output = first_floating(outputs);
    note_order(unit->recorder, unit->name);
    if (call != NULL && output != NULL && output->ndim > 0) {
        call->output = output;
        add_activation(call, FSDP_TRACE_UNIT_OUTPUT, true, output);
        if (output->requires_grad)
            fsdp_tape_on_grad(tape, output, on_output_grad, call);
    }
    fsdp_memory_override(former);
    return outputs;
}

/* ---- parameters --------------------------------------------------------------- */

static const recorded_parameter_t *
find_param(const fsdp_trace_recorder_t *r, const fsdp_parameter_t *parameter)
{
    for (int p = 0; p < r->num_params; p++)
        if (r->param[p].parameter == parameter)
            return &r->param[p];
    return NULL;
}

static void
add_whole(fsdp_trace_recorder_t *r, fsdp_trace_phase_t phase,
          const fsdp_parameter_t *parameter, fsdp_dtype_t dtype,
          const void *data)
{
    const recorded_parameter_t *param = find_param(r, parameter);
    if (r->writer == NULL || param == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    trace_thing_t thing = {.phase = phase,
                           .micro = r->micro,
                           .name = parameter->name,
                           .dtype = dtype,
                           .ndim = parameter->ndim,
                           .layout = &param->whole};
    memcpy(thing.shape, param->shape, sizeof thing.shape);
    trace_writer_add(r->writer, &thing, data);
    fsdp_memory_override(former);
}

static void
on_gathered(void *context, fsdp_parameter_t *parameter, const void *data)
{
    add_whole(context, FSDP_TRACE_GATHERED_PARAMETER, parameter,
              parameter->data_dtype, data);
}

static void
on_unreduced(void *context, fsdp_parameter_t *parameter, const void *grad)
{
    add_whole(context, FSDP_TRACE_UNREDUCED_GRAD, parameter,
              parameter->grad->dtype, grad);
}

/* The highest global micro-batch in the sum. */
static int
last_summed(const fsdp_trace_recorder_t *r)
{
    int ranks = r->replicas * r->shards;
    bool each = r->options.about->gradient_sync == FSDP_SYNC_EACH;
    return (each ? r->j + 1 : r->options.about->micro_batches) * ranks - 1;
}

static void
on_reduced(void *context, fsdp_parameter_t *parameter, const void *grad)
{
    fsdp_trace_recorder_t *r = context;
    const recorded_parameter_t *param = find_param(r, parameter);
    if (r->writer == NULL || param == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    recorder_add_local(r->writer, param, FSDP_TRACE_REDUCED_GRAD,
                       last_summed(r), grad);
    fsdp_memory_override(former);
}

/* ---- begin and end ------------------------------------------------------------- */

void
recorder_watch(fsdp_trace_recorder_t *r)
{
    for (int u = 0; u < r->num_units; u++) {
        fsdp_module_hooks_t hooks = {.context = &r->unit[u],
                                     .pre_forward = pre_forward,
                                     .post_forward = post_forward};
        fsdp_module_add_hooks(r->unit[u].module, &hooks);
    }
    fsdp_observer_t observer = {.context = r,
                                .gathered = on_gathered,
                                .unreduced = on_unreduced,
                                .reduced = on_reduced};
    fsdp_add_observer(&observer);
}

void
recorder_unwatch(fsdp_trace_recorder_t *r)
{
    for (int u = 0; u < r->num_units; u++)
        fsdp_module_remove_hooks(r->unit[u].module, &r->unit[u]);
    fsdp_remove_observer(r);
}

void
recorder_forget_calls(fsdp_trace_recorder_t *r)
{
    while (r->calls != NULL) {
        recorded_call_t *call = r->calls;
        r->calls = call->next;
        fsdp_free(call);
    }
    for (int u = 0; u < r->num_units; u++)
        r->unit[u].calls = 0;
}
