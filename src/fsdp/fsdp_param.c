#include "fsdp/fsdp_param.h"

#include <string.h>

#include "fsdp/fsdp_faults.h"
#include "fsdp/fsdp_param_group.h"
#include "fsdp/status.h"

/* ---- what others see ---------------------------------------------------- */

static fsdp_local_t
local_of(fsdp_parameter_t *parameter)
{
    fsdp_param_t *param = fsdp_param_of(parameter);
    size_t padded = fsdp_param_padded_numel(param);
    fsdp_layout_t layout = fsdp_layout_whole(parameter);
    layout.kind = FSDP_LAYOUT_CHUNKS;
    layout.dim = param->shard.dim;
    layout.num_ranks = param->shard.world_size;
    layout.rank = param->rank;
    layout.primary &= param->group->replicate_rank == 0;
    FSDP_CHECK(param->sharded_data != NULL,
               "parameter %s has no values yet: its initial values were put "
               "off; call fsdp_module_materialize()",
               parameter->name);
    return (fsdp_local_t){
        .data = param->sharded_data,
        .grad = fsdp_grad_sum_read(&param->grad, parameter->dtype, padded),
        .numel = fsdp_layout_numel(&layout),
        .padded_numel = padded,
        .layout = layout,
        .comm = param->group->comm,
    };
}

static void
zero_grad(fsdp_parameter_t *parameter)
{
    fsdp_param_t *param = fsdp_param_of(parameter);
    fsdp_grad_sum_clear(&param->grad);
    fsdp_grad_sum_clear(&param->unsharded_accumulated_grad);
}

static const char *
unit_of(const fsdp_parameter_t *parameter)
{
    return fsdp_param_of(parameter)->group->module_fqn;
}

static const fsdp_manager_t manager = {local_of, zero_grad, unit_of};

fsdp_param_t *
fsdp_param_of(const fsdp_parameter_t *parameter)
{
    return parameter->managed != NULL && parameter->managed->manager == &manager
               ? (fsdp_param_t *)parameter->managed
               : NULL;
}

/* ---- life --------------------------------------------------------------- */

void
fsdp_param_materialize(fsdp_param_t *param)
{
    const fsdp_parameter_t *parameter = param->parameter;
    size_t size = fsdp_dtype_size(parameter->dtype);
    if (param->sharded_data == NULL)
        param->sharded_data =
            fsdp_offload_calloc(param->group->offload, FSDP_MEM_PARAM_SHARD,
                                fsdp_param_padded_numel(param) * size);
    fsdp_layout_t layout = local_of(param->parameter).layout;
    fsdp_run_t run = {0};
    while (fsdp_layout_next_run(&layout, &run))
        fsdp_parameter_init_range(parameter, run.element, run.count,
                                  (char *)param->sharded_data +
                                      run.local * size);
    fsdp_offload_release(param->sharded_data,
                         fsdp_param_padded_numel(param) * size);
}

fsdp_param_t *
fsdp_param_create(fsdp_parameter_t *parameter, struct fsdp_param_group *group,
                  int dim)
{
    fsdp_param_t *param = fsdp_calloc(FSDP_MEM_OTHER, sizeof *param);
    param->parameter = parameter;
    param->group = group;
    param->rank = fsdp_comm_rank(group->comm);
    param->shard = fsdp_shard_make(parameter, dim, fsdp_comm_size(group->comm));
    param->managed.manager = &manager;
    parameter->managed = &param->managed;
    fsdp_param_init_dtype_attrs(param, &group->mp_policy);
    if (!group->defer_init)
        fsdp_param_materialize(param);
    return param;
}

void
fsdp_param_destroy(fsdp_param_t **param)
{
    fsdp_param_t *p = *param;
    fsdp_param_to_sharded(p);
    fsdp_offload_free(p->sharded_data);
    fsdp_free(p->fault_data);
    fsdp_free(p->fault_grad);
    fsdp_grad_sum_clear(&p->grad);
    fsdp_grad_sum_clear(&p->unsharded_accumulated_grad);
    p->parameter->managed = NULL;
    p->parameter->data_dtype = p->parameter->dtype;
    fsdp_free(p);
    *param = NULL;
}

/* ---- types -------------------------------------------------------------- */

/* Where no cast is needed none is made; the second clamp must not undo what the
 * first one left: with parameters and param_dtype in bfloat16, a reduce_dtype of
 * float32 stays. */
void
fsdp_param_init_dtype_attrs(fsdp_param_t *param,
                            const fsdp_mixed_precision_policy_t *policy)
{
    fsdp_parameter_t *parameter = param->parameter;
    bool floating = fsdp_dtype_is_floating(parameter->dtype);
    param->param_dtype = policy->param_dtype;
    param->reduce_dtype = policy->reduce_dtype;
    if (param->reduce_dtype == param->param_dtype)
        param->reduce_dtype = FSDP_DTYPE_NONE;
    if (param->param_dtype == parameter->dtype || !floating)
        param->param_dtype = FSDP_DTYPE_NONE;
    parameter->data_dtype = fsdp_param_data_dtype(param);
}

fsdp_dtype_t
fsdp_param_data_dtype(const fsdp_param_t *param)
{
    return param->param_dtype != FSDP_DTYPE_NONE ? param->param_dtype
                                                 : param->parameter->dtype;
}

fsdp_dtype_t
fsdp_param_reduce_dtype(const fsdp_param_t *param)
{
    return param->reduce_dtype != FSDP_DTYPE_NONE
               ? param->reduce_dtype
               : fsdp_param_data_dtype(param);
}

/* ---- sharded and unsharded ----------------------------------------------- */

size_t
fsdp_param_padded_numel(const fsdp_param_t *param)
{
    return fsdp_shard_padded_numel(&param->shard);
}

size_t
fsdp_param_gathered_numel(const fsdp_param_t *param)
{
    return (size_t)param->shard.world_size * fsdp_param_padded_numel(param);
}

void
fsdp_param_alloc_unsharded(fsdp_param_t *param)
{
    param->unsharded_data =
        fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM,
                   fsdp_param_gathered_numel(param) *
                       fsdp_dtype_size(fsdp_param_data_dtype(param)));
}

static void
free_post_forward(fsdp_param_t *param)
{
    fsdp_free(param->post_forward_data);
    param->post_forward_data = NULL;
}

static void
free_unsharded(fsdp_param_t *param)
{
    param->parameter->data = NULL;
    fsdp_free(param->unsharded_data);
    param->unsharded_data = NULL;
}

void
fsdp_param_to_unsharded(fsdp_param_t *param)
{
    param->parameter->data = param->unsharded_data;
    free_post_forward(param);
    param->sharded_state = FSDP_UNSHARDED;
}

void
fsdp_param_to_sharded(fsdp_param_t *param)
{
    free_unsharded(param);
    free_post_forward(param);
    param->sharded_state = FSDP_SHARDED;
}

void
fsdp_param_to_sharded_post_forward(fsdp_param_t *param, int rank, int k)
{
    size_t bytes = fsdp_param_gathered_numel(param) / (size_t)k *
                   fsdp_dtype_size(fsdp_param_data_dtype(param));
    param->post_forward_data = fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM, bytes);
    memcpy(param->post_forward_data,
           (char *)param->unsharded_data + (size_t)rank * bytes, bytes);
    free_unsharded(param);
    param->sharded_state = FSDP_SHARDED_POST_FORWARD;
}

/* ---- gradients without synchronisation ----------------------------------- */

void
fsdp_param_accumulate_unsharded_grad(fsdp_param_t *param)
{
    fsdp_tensor_t *grad = param->parameter->grad;
    if (grad == NULL)
        return;
    size_t numel = fsdp_tensor_numel(grad);
    fsdp_dtype_t dtype = fsdp_param_reduce_dtype(param);
    void *term =
        fsdp_alloc(FSDP_MEM_UNSHARDED_GRAD, numel * fsdp_dtype_size(dtype));
    fsdp_convert(grad->dtype, grad->data, dtype, term, numel);
    fsdp_parameter_zero_grad(param->parameter);
    fsdp_fault_lose(FSDP_FAULT_LOSE_ACCUMULATED,
                    &param->unsharded_accumulated_grad);
    fsdp_grad_sum_add(&param->unsharded_accumulated_grad, dtype,
                      param->group->reduce_order, term, numel);
    fsdp_fault_round_accumulated(param);
}
