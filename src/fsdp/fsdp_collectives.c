#include "fsdp/fsdp_collectives.h"

#include <string.h>

#include "fsdp/fsdp_faults.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "tensor/kernels.h"

/* S: what one rank holds of all of them. */
static size_t
group_padded_numel(fsdp_param_t *const *params, int num_params)
{
    size_t numel = 0;
    for (int p = 0; p < num_params; p++)
        numel += fsdp_param_padded_numel(params[p]);
    return numel;
}

static const char *
ledger_unit(const char *unit)
{
    return unit[0] != '\0' ? unit : "(root)";
}

/* ---- all-gather --------------------------------------------------------- */

/* PyTorch: all_gather_copy_in. */
static void
all_gather_copy_in(fsdp_param_t *const *params, int num_params, size_t size,
                   char *row)
{
    for (int p = 0; p < num_params; p++) {
        size_t bytes = fsdp_param_padded_numel(params[p]) * size;
        memcpy(row, fsdp_fault_shard_to_gather(params[p]), bytes);
        row += bytes;
    }
}

fsdp_all_gather_result_t *
fsdp_foreach_all_gather(fsdp_comm_t *comm, const char *unit,
                        fsdp_param_t *const *params, int num_params)
{
    fsdp_all_gather_result_t *result =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *result);
    int world_size = fsdp_comm_size(comm);
    if (world_size == 1)
        return result;

    fsdp_dtype_t dtype = params[0]->parameter->dtype;
    size_t size = fsdp_dtype_size(dtype);
    size_t numel = group_padded_numel(params, num_params);
    result->output =
        fsdp_alloc(FSDP_MEM_COMM, (size_t)world_size * numel * size);
    char *mine =
        (char *)result->output + (size_t)fsdp_comm_rank(comm) * numel * size;
    all_gather_copy_in(params, num_params, size, mine);
    result->work = fsdp_all_gather_start(comm, ledger_unit(unit), dtype, mine,
                                         result->output, numel);
    return result;
}

/* Row r of the parameter comes from row r of [W, S], at its columns. */
static void
copy_out_param(fsdp_param_t *param, const char *output, size_t row_bytes)
{
    size_t bytes = fsdp_param_padded_numel(param) *
                   fsdp_dtype_size(param->parameter->dtype);
    char *whole = param->unsharded_data;
    for (int r = 0; r < param->shard.world_size; r++)
        memcpy(whole + (size_t)r * bytes, output + (size_t)r * row_bytes,
               bytes);
}

/* One rank: the shard is all of it. */
static void
copy_shard(fsdp_param_t *param)
{
    memcpy(param->unsharded_data, fsdp_fault_shard_to_gather(param),
           fsdp_param_padded_numel(param) *
               fsdp_dtype_size(param->parameter->dtype));
}

void
fsdp_foreach_all_gather_copy_out(fsdp_all_gather_result_t **result,
                                 fsdp_param_t *const *params, int num_params)
{
    fsdp_all_gather_result_t *r = *result;
    fsdp_work_wait(&r->work);

    size_t size = fsdp_dtype_size(params[0]->parameter->dtype);
    size_t row_bytes = group_padded_numel(params, num_params) * size;
    const char *column = r->output;
    for (int p = 0; p < num_params; p++) {
        fsdp_param_alloc_unsharded(params[p]);
        if (r->output == NULL) {
            copy_shard(params[p]);
        } else {
            copy_out_param(params[p], column, row_bytes);
            column += fsdp_param_padded_numel(params[p]) * size;
        }
    }
    fsdp_fault_after_gather(params, num_params);
    for (int p = 0; p < num_params; p++)
        fsdp_emit_gathered(params[p]->parameter, params[p]->unsharded_data);
    fsdp_free(r->output);
    fsdp_free(r);
    *result = NULL;
}

void
fsdp_all_gather_discard(fsdp_all_gather_result_t **result)
{
    fsdp_work_wait(&(*result)->work);
    fsdp_free((*result)->output);
    fsdp_free(*result);
    *result = NULL;
}

/* ---- reduce-scatter ----------------------------------------------------- */

/* One rank's chunk of one gradient, zeros after it. */
static char *
copy_in_chunk(const fsdp_param_t *param, int rank, char *out)
{
    const fsdp_shard_t *shard = &param->shard;
    size_t row_bytes =
        shard->row_numel * fsdp_dtype_size(param->parameter->dtype);
    size_t begin = fsdp_shard_begin(shard, rank);
    size_t rows = fsdp_shard_rows(shard, rank);
    fsdp_fault_cut(param, &begin, &rows);

    size_t bytes = rows * row_bytes;
    size_t padded = shard->chunk_rows * row_bytes;
    if (bytes > 0)
        memcpy(out,
               (const char *)param->parameter->grad->data + begin * row_bytes,
               bytes);
    memset(out + bytes, 0, padded - bytes);
    return out + padded;
}

void
fsdp_foreach_reduce_scatter_copy_in(fsdp_param_t *const *params, int num_params,
                                    void *out)
{
    char *to = out;
    for (int rank = 0; rank < params[0]->shard.world_size; rank++)
        for (int p = 0; p < num_params; p++)
            to = copy_in_chunk(params[p], rank, to);
}

static fsdp_reduce_scatter_state_t *
state_create(fsdp_param_t *const *params, int num_params,
             fsdp_reduce_order_t order, double divide_factor)
{
    fsdp_reduce_scatter_state_t *state =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *state);
    state->params =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)num_params * sizeof *state->params);
    memcpy(state->params, params, (size_t)num_params * sizeof *params);
    state->num_params = num_params;
    state->dtype = params[0]->parameter->dtype;
    state->order = fsdp_fault_order(order);
    state->divide_factor = divide_factor;
    return state;
}

fsdp_reduce_scatter_state_t *
fsdp_foreach_reduce(fsdp_comm_t *comm, const char *unit,
                    fsdp_param_t *const *params, int num_params,
                    fsdp_reduce_order_t order, double divide_factor)
{
    fsdp_reduce_scatter_state_t *state =
        state_create(params, num_params, order, divide_factor);
    size_t world_size = (size_t)fsdp_comm_size(comm);
    size_t numel = group_padded_numel(params, num_params);
    size_t size = fsdp_dtype_size(state->dtype);

    state->input = fsdp_alloc(FSDP_MEM_COMM, world_size * numel * size);
    state->output =
        world_size == 1 ? NULL : fsdp_alloc(FSDP_MEM_COMM, numel * size);
    fsdp_foreach_reduce_scatter_copy_in(params, num_params, state->input);
    fsdp_fault_before_reduce(comm, params, num_params, state->input,
                             world_size * numel * size);
    for (int p = 0; p < num_params; p++)
        fsdp_parameter_zero_grad(params[p]->parameter);
    if (world_size > 1)
        state->work = fsdp_reduce_scatter_start(
            comm, ledger_unit(unit), state->dtype, state->order, state->input,
            state->output, numel);
    return state;
}

/* This rank's rows of one gradient: divided, then added to what is there. */
static void
view_out(const fsdp_reduce_scatter_state_t *state, fsdp_param_t *param,
         const char *reduced)
{
    size_t numel = fsdp_param_padded_numel(param);
    size_t bytes = numel * fsdp_dtype_size(state->dtype);
    void *grad = fsdp_alloc(FSDP_MEM_GRAD_SHARD, bytes);
    memcpy(grad, reduced, bytes);
    double factor = state->divide_factor;
    int times = fsdp_fault_divisions();
    fsdp_fault_after_reduce(param, grad, &factor);
    for (int i = 0; i < times && factor != 1.0; i++)
        fsdp_kernels(state->dtype)->divide(grad, factor, grad, numel);
    fsdp_emit_reduced(param->parameter, grad);
    fsdp_grad_sum_add(&param->grad, state->dtype, state->order, grad, numel);
}

void
fsdp_foreach_reduce_finish(fsdp_reduce_scatter_state_t **state)
{
    fsdp_reduce_scatter_state_t *s = *state;
    if (s == NULL)
        return;
    fsdp_work_wait(&s->work);
    const char *reduced = s->output != NULL ? s->output : s->input;
    for (int p = 0; p < s->num_params; p++) {
        view_out(s, s->params[p], reduced);
        reduced +=
            fsdp_param_padded_numel(s->params[p]) * fsdp_dtype_size(s->dtype);
    }
    fsdp_free(s->input);
    fsdp_free(s->output);
    fsdp_free(s->params);
    fsdp_free(s);
    *state = NULL;
}
