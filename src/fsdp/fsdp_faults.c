#include "fsdp/fsdp_faults.h"

#include <string.h>

#include "fsdp/memory.h"
#include "tensor/kernels.h"
#include "tensor/vector.h"

static size_t
shard_bytes(const fsdp_param_t *param)
{
    return fsdp_param_padded_numel(param) *
           fsdp_dtype_size(param->parameter->dtype);
}

/* A copy of `bytes` bytes in *slot, which grows as needed once. */
static void
remember(void **slot, const void *data, size_t bytes)
{
    if (*slot == NULL)
        *slot = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    memcpy(*slot, data, bytes);
}

/* ---- all-gather --------------------------------------------------------- */

static bool prefetching;

void
fsdp_fault_prefetching(bool on)
{
    prefetching = on;
}

/* Could the chosen fault take an old shard for this one? */
static bool
remembers(const fsdp_param_t *param)
{
    switch (fsdp_fault_chosen()) {
    case FSDP_FAULT_STALE_SHARD:
        return param->rank == param->shard.world_size - 1;
    case FSDP_FAULT_STALE_LOW_COPY:
        return fsdp_param_data_dtype(param) != param->parameter->dtype;
    case FSDP_FAULT_STALE_PREFETCH:
        return true;
    default:
        return false;
    }
}

const void *
fsdp_fault_shard_to_gather(fsdp_param_t *param)
{
    if (!remembers(param))
        return param->sharded_data;
    if (fsdp_fault(fsdp_fault_chosen())) { /* before any: not filled yet */
        if (param->fault_data == NULL)
            param->fault_data = fsdp_calloc(FSDP_MEM_OTHER, shard_bytes(param));
        bool now =
            fsdp_fault_chosen() != FSDP_FAULT_STALE_PREFETCH || prefetching;
        return now ? param->fault_data : param->sharded_data;
    }
    remember(&param->fault_data, param->sharded_data, shard_bytes(param));
    return param->sharded_data;
}

int
fsdp_fault_neighbour(int r, int n)
{
    return fsdp_fault(FSDP_FAULT_SWAP_NEIGHBOURS) ? n - 1 - r : r;
}

/* The last one-dimensional parameter of each group is the bias that is hit. */
static fsdp_param_t *
bias_of(fsdp_param_t *const *params, int num_params)
{
    for (int p = num_params - 1; p >= 0; p--)
        if (params[p]->parameter->ndim == 1)
            return params[p];
    return NULL;
}

/* Before a first gradient is known, a small number of the rank's own. */
static void
move_replica(fsdp_param_t *param)
{
    size_t numel = fsdp_parameter_numel(param->parameter);
    fsdp_dtype_t dtype = fsdp_param_data_dtype(param);
    size_t size = fsdp_dtype_size(dtype);
    double small = (param->rank + 1) * 0x1p-10;
    if (param->fault_grad == NULL) {
        param->fault_grad = fsdp_alloc(FSDP_MEM_OTHER, numel * size);
        for (size_t i = 0; i < numel; i++)
            fsdp_convert(FSDP_FP64, &small, dtype,
                         (char *)param->fault_grad + i * size, 1);
    }
    fsdp_vector_add(dtype, param->unsharded_data, param->fault_grad, numel);
}

void
fsdp_fault_after_gather(fsdp_param_t *const *params, int num_params)
{
    fsdp_param_t *bias = bias_of(params, num_params);
    if (bias != NULL && fsdp_fault(FSDP_FAULT_UNREDUCED_REPLICA))
        move_replica(bias);
}

/* ---- reduce-scatter ----------------------------------------------------- */

void
fsdp_fault_cut(const fsdp_param_t *param, size_t *begin, size_t *rows)
{
    const fsdp_shard_t *shard = &param->shard;
    bool last = *rows > 0 && *begin + *rows == shard->num_rows;
    if (fsdp_fault(FSDP_FAULT_DROP_TAIL) && last)
        *rows = *rows < shard->chunk_rows ? 0 : *rows - 1;
    if (fsdp_fault(FSDP_FAULT_SHIFT_CHUNK) && *rows > 0) {
        *begin += 1;
        if (*begin + *rows > shard->num_rows)
            *rows -= 1;
    }
}

fsdp_reduce_order_t
fsdp_fault_order(fsdp_reduce_order_t order)
{
    return fsdp_fault(FSDP_FAULT_WRONG_ORDER) ? FSDP_ORDER_RING : order;
}

/* The bytes of the reduction before this one: what a buffer that is used again
 * too early would hold. */
static void *last_input;
static size_t last_bytes;

static void
reuse_buffer(void *input, size_t bytes)
{
    void *before = last_input;
    size_t before_bytes = last_bytes;
    last_input = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    last_bytes = bytes;
    memcpy(last_input, input, bytes);
    if (before != NULL && fsdp_fault(FSDP_FAULT_REUSE_BUFFER))
        memcpy(input, before, before_bytes < bytes ? before_bytes : bytes);
    fsdp_free(before);
}

/* Keeps a copy of the whole gradient of a one-dimensional parameter. */
static void
remember_grad(const fsdp_unsharded_grad_t *grad, fsdp_dtype_t dtype)
{
    fsdp_param_t *param = grad->param;
    size_t numel = fsdp_parameter_numel(param->parameter);
    if (param->parameter->ndim != 1 || grad->data == NULL)
        return;
    if (param->fault_grad == NULL)
        param->fault_grad =
            fsdp_alloc(FSDP_MEM_OTHER, numel * fsdp_dtype_size(dtype));
    fsdp_convert(grad->dtype, grad->data, dtype, param->fault_grad, numel);
}

void
fsdp_fault_before_reduce(fsdp_comm_t *comm, const fsdp_unsharded_grad_t *grads,
                         int num_grads, void *input, size_t bytes)
{
    fsdp_fault_kind_t kind = fsdp_fault_chosen();
    for (int p = 0; p < num_grads; p++) {
        fsdp_param_t *param = grads[p].param;
        if (kind == FSDP_FAULT_SKIP_BIAS_REDUCE)
            remember_grad(&grads[p], param->parameter->dtype);
        if (kind == FSDP_FAULT_UNREDUCED_REPLICA)
            remember_grad(&grads[p], fsdp_param_data_dtype(param));
    }
    if (fsdp_fault(FSDP_FAULT_SKIP_RANK) &&
        fsdp_comm_rank(comm) == fsdp_comm_size(comm) - 1)
        memset(input, 0, bytes);
    if (kind == FSDP_FAULT_REUSE_BUFFER)
        reuse_buffer(input, bytes);
}

int
fsdp_fault_divisions(void)
{
    if (fsdp_fault(FSDP_FAULT_SUM_NOT_MEAN))
        return 0;
    return fsdp_fault(FSDP_FAULT_MEAN_NOT_SUM) ? 2 : 1;
}

void
fsdp_fault_after_reduce(fsdp_param_t *param, void *grad, double factor)
{
    if (!fsdp_fault(FSDP_FAULT_SKIP_BIAS_REDUCE) || param->fault_grad == NULL)
        return;
    const fsdp_shard_t *shard = &param->shard;
    size_t size = fsdp_dtype_size(param->parameter->dtype);
    memcpy(grad,
           (const char *)param->fault_grad +
               fsdp_shard_begin(shard, param->rank) * size,
           fsdp_shard_rows(shard, param->rank) * size);
    if (factor != 0)
        fsdp_vector_divide(param->parameter->dtype, grad,
                           factor / shard->world_size,
                           fsdp_shard_rows(shard, param->rank));
}

/* ---- divisions ------------------------------------------------------------ */

void
fsdp_fault_divide_plan(fsdp_divide_plan_t *plan, const fsdp_param_t *param,
                       int replicas)
{
    const fsdp_parameter_t *p = param->parameter;
    if (p->num_parts > 1 && fsdp_fault(FSDP_FAULT_EXPERT_DIVIDE))
        plan->divide_reduced /= p->num_parts;
    if (fsdp_fault(FSDP_FAULT_REPLICAS_TWICE))
        plan->divide_reduced *= replicas;
    if (fsdp_fault(FSDP_FAULT_SKIP_POST_DIVIDE))
        plan->divide_output = 1;
    if (fsdp_fault(FSDP_FAULT_DIVIDE_EARLY)) {
        plan->divide_input *=
            plan->divide_scattered * plan->divide_reduced * plan->divide_output;
        plan->divide_scattered = plan->divide_reduced = plan->divide_output = 1;
    }
}

/* ---- types and sums -------------------------------------------------------- */

fsdp_dtype_t
fsdp_fault_reduce_dtype(const fsdp_param_t *param)
{
    return fsdp_fault(FSDP_FAULT_REDUCE_LOW) ? fsdp_param_data_dtype(param)
                                             : fsdp_param_reduce_dtype(param);
}

/* To the parameter's low type and back. */
static void
round_to_low(const fsdp_param_t *param, fsdp_dtype_t dtype, void *x,
             size_t numel)
{
    fsdp_dtype_t low = fsdp_param_data_dtype(param);
    void *rounded = fsdp_alloc(FSDP_MEM_OTHER, numel * fsdp_dtype_size(low));
    fsdp_convert(dtype, x, low, rounded, numel);
    fsdp_convert(low, rounded, dtype, x, numel);
    fsdp_free(rounded);
}

void
fsdp_fault_round_grad(const fsdp_param_t *param, void *grad, size_t numel)
{
    if (fsdp_fault(FSDP_FAULT_LOW_GRAD))
        round_to_low(param, param->parameter->dtype, grad, numel);
}

void
fsdp_fault_round_accumulated(fsdp_param_t *param)
{
    const fsdp_grad_sum_t *sum = &param->unsharded_accumulated_grad;
    for (int i = 0; fsdp_fault(FSDP_FAULT_ACCUMULATE_LOW) && i < sum->count;
         i++)
        round_to_low(param, fsdp_param_reduce_dtype(param), sum->part[i],
                     fsdp_parameter_numel(param->parameter));
}

void
fsdp_fault_lose(fsdp_fault_kind_t kind, fsdp_grad_sum_t *sum)
{
    if (fsdp_fault(kind))
        fsdp_grad_sum_clear(sum);
}

size_t
fsdp_fault_run_begin(const fsdp_shard_t *shard, size_t o, size_t begin,
                     size_t rows)
{
    if (fsdp_fault(FSDP_FAULT_STRIDED_AS_PLAIN))
        return (begin * shard->outer + o * rows) * shard->inner;
    return (o * shard->num_rows + begin) * shard->inner;
}

void
fsdp_fault_forget(void)
{
    fsdp_free(last_input);
    last_input = NULL;
    last_bytes = 0;
}
