/* What stands at the beginning and at the end of a step. */

#include <string.h>

#include "base/grow.h"
#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "verify/trace/recorder.h"

/* ---- parameters ------------------------------------------------------------- */

void
recorder_add_local(trace_writer_t *writer, const recorded_parameter_t *param,
                   fsdp_trace_phase_t phase, int micro, const void *data)
{
    trace_thing_t thing = {.phase = phase,
                           .micro = micro,
                           .name = param->parameter->name,
                           .dtype = param->parameter->dtype,
                           .ndim = param->parameter->ndim,
                           .layout = &param->local};
    memcpy(thing.shape, param->shape, sizeof thing.shape);
    trace_writer_add(writer, &thing, data);
}

static void
add_number(trace_writer_t *writer, fsdp_trace_phase_t phase, int micro,
           const char *name, fsdp_dtype_t dtype, double value)
{
    trace_thing_t thing = {.phase = phase,
                           .micro = micro,
                           .name = name,
                           .dtype = dtype,
                           .ndim = 1,
                           .shape = {1}};
    double room;
    fsdp_convert(FSDP_FP64, &value, dtype, &room, 1);
    trace_writer_add(writer, &thing, &room);
}

static fsdp_trace_phase_t
state_phase(const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "state.%s", name);
    return fsdp_trace_phase_from_name(text);
}

/* Of an optimizer that counts steps, as PyTorch's AdamW. */
static void
add_state_steps(fsdp_trace_recorder_t *r, trace_writer_t *writer)
{
    for (int p = 0; p < r->num_params; p++) {
        fsdp_parameter_t *parameter = r->param[p].parameter;
        long steps = fsdp_optimizer_steps_of(r->options.optimizer, parameter);
        if (steps > 0)
            add_number(writer, FSDP_TRACE_STATE_STEP, -1, parameter->name,
                       FSDP_FP32, (double)steps);
    }
}

void
recorder_add_state(fsdp_trace_recorder_t *r, trace_writer_t *writer)
{
    fsdp_optimizer_t *optimizer = r->options.optimizer;
    const char *name;
    for (int p = 0; p < r->num_params; p++)
        recorder_add_local(writer, &r->param[p], FSDP_TRACE_PARAMETER, -1,
                           fsdp_parameter_local(r->param[p].parameter).data);
    for (int i = 0; (name = fsdp_optimizer_state_name(optimizer, i)) != NULL;
         i++)
        for (int p = 0; p < r->num_params; p++) {
            void *state =
                fsdp_optimizer_state(optimizer, r->param[p].parameter, i);
            if (state != NULL)
                recorder_add_local(writer, &r->param[p], state_phase(name), -1,
                                   state);
        }
    if (r->options.about->optimizer == FSDP_TRACE_ADAMW)
        add_state_steps(r, writer);
}

static void
add_gradients(fsdp_trace_recorder_t *r, fsdp_trace_phase_t phase)
{
    for (int p = 0; p < r->num_params; p++) {
        void *grad = fsdp_parameter_local(r->param[p].parameter).grad;
        if (grad != NULL)
            recorder_add_local(r->writer, &r->param[p], phase, -1, grad);
    }
}

/* ---- in a micro-batch --------------------------------------------------------- */

void
fsdp_trace_recorder_input(fsdp_trace_recorder_t *r, const char *name,
                          const fsdp_tensor_t *tensor)
{
    if (r->writer == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    trace_thing_t thing = {.phase = FSDP_TRACE_INPUT,
                           .micro = r->micro,
                           .name = name,
                           .dtype = tensor->dtype,
                           .ndim = tensor->ndim};
    memcpy(thing.shape, tensor->shape, sizeof thing.shape);
    trace_writer_add(r->writer, &thing, tensor->data);
    fsdp_memory_override(former);
}

void
fsdp_trace_recorder_loss(fsdp_trace_recorder_t *r, const fsdp_tensor_t *loss)
{
    if (r->writer == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    add_number(r->writer, FSDP_TRACE_LOSS, r->micro, "loss", loss->dtype,
               fsdp_tensor_get(loss, 0));
    fsdp_memory_override(former);
}

/* ---- after the last ------------------------------------------------------------ */

void
fsdp_trace_recorder_gradients(fsdp_trace_recorder_t *r)
{
    if (r->writer == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    add_gradients(r, FSDP_TRACE_GRAD);
    fsdp_memory_override(former);
}

void
fsdp_trace_recorder_norm(fsdp_trace_recorder_t *r, double norm)
{
    if (r->writer == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    add_number(r->writer, FSDP_TRACE_NORM, -1, "norm",
               r->param[0].parameter->dtype, norm);
    if (r->options.about->grad_clip > 0)
        add_gradients(r, FSDP_TRACE_CLIPPED_GRAD);
    fsdp_memory_override(former);
}

static void
note_step(fsdp_trace_recorder_t *r, long step, double lr)
{
    r->step = fsdp_grow(FSDP_MEM_BASELINE, r->step, (size_t)r->num_steps,
                        &r->room, 16, sizeof *r->step);
    r->step[r->num_steps++] = (fsdp_trace_step_t){step, lr};
}

void
fsdp_trace_recorder_update(fsdp_trace_recorder_t *r, double lr)
{
    if (r->writer == NULL)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    recorder_add_state(r, r->writer);
    recorder_add_ledger(r);
    note_step(r, r->now, lr);
    fsdp_memory_override(former);
}

/* ---- the ledger ----------------------------------------------------------------- */

/* Counted anew in each step, so that it does not matter what was before. */
static void
add_collective(trace_writer_t *writer, fsdp_ledger_entry_t entry,
               uint64_t sequence)
{
    entry.sequence = sequence;
    trace_writer_add_collective(writer, &entry);
}

/* Of more collectives than the ledger keeps, the last. */
void
recorder_add_ledger(fsdp_trace_recorder_t *r)
{
    for (int c = 0; c < r->num_watched; c++) {
        uint64_t length = fsdp_ledger_length(r->watched[c]);
        for (uint64_t i = length - r->seen[c]; i > 0; i--) {
            const fsdp_ledger_entry_t *entry =
                fsdp_ledger_latest(r->watched[c], (size_t)i - 1);
            if (entry != NULL)
                add_collective(r->writer, *entry, length - r->seen[c] - i + 1);
        }
    }
    recorder_skip_ledger(r);
}

void
recorder_skip_ledger(fsdp_trace_recorder_t *r)
{
    for (int c = 0; c < r->num_watched; c++)
        r->seen[c] = fsdp_ledger_length(r->watched[c]);
}
