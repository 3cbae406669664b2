/* Micro-batches and rates of recorded steps. */

#include <math.h>

#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "verify/trace/source.h"

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
    const fsdp_trace_record_t *x =
        trace_source_input(s, step, micro, trace_source_input_name(s));
    const fsdp_trace_record_t *y =
        trace_source_input(s, step, micro, "targets");
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
