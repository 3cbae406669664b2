#include "fsdp/fsdp_param.h"

#include <string.h>

#include "fsdp/fsdp_param_group.h"

static void
init_sharded_data(fsdp_param_t *param)
{
    const fsdp_parameter_t *parameter = param->parameter;
    const fsdp_shard_t *shard = &param->shard;
    size_t size = fsdp_dtype_size(parameter->dtype);

    param->sharded_data = fsdp_calloc(FSDP_MEM_PARAM_SHARD,
                                      fsdp_shard_padded_numel(shard) * size);
    fsdp_parameter_init_range(
        parameter, fsdp_shard_begin(shard, param->rank) * shard->row_numel,
        fsdp_shard_rows(shard, param->rank) * shard->row_numel,
        param->sharded_data);
}

/* ---- what others see ---------------------------------------------------- */

static fsdp_local_t
local_of(fsdp_parameter_t *parameter)
{
    fsdp_param_t *param = fsdp_param_of(parameter);
    size_t padded = fsdp_param_padded_numel(param);
    fsdp_layout_t layout = fsdp_layout_whole(parameter);
    layout.kind = FSDP_LAYOUT_CHUNKS;
    layout.num_ranks = param->shard.world_size;
    layout.rank = param->rank;
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
    fsdp_grad_sum_clear(&fsdp_param_of(parameter)->grad);
}

static const char *
unit_of(const fsdp_parameter_t *parameter)
{
    return fsdp_param_of(parameter)->group->module_fqn;
}

static const fsdp_manager_t manager = {local_of, zero_grad, unit_of};

/* ---- life --------------------------------------------------------------- */

fsdp_param_t *
fsdp_param_create(fsdp_parameter_t *parameter, struct fsdp_param_group *group,
                  int rank, int world_size)
{
    fsdp_param_t *param = fsdp_calloc(FSDP_MEM_OTHER, sizeof *param);
    param->parameter = parameter;
    param->group = group;
    param->shard = fsdp_shard_make(
        parameter->shape[0], fsdp_parameter_row_numel(parameter), world_size);
    param->rank = rank;
    init_sharded_data(param);
    param->managed.manager = &manager;
    parameter->managed = &param->managed;
    return param;
}

void
fsdp_param_destroy(fsdp_param_t **param)
{
    fsdp_param_t *p = *param;
    if (p->sharded_state == FSDP_UNSHARDED)
        fsdp_param_to_sharded(p);
    fsdp_free(p->unsharded_data);
    fsdp_free(p->sharded_data);
    fsdp_free(p->fault_data);
    fsdp_free(p->fault_grad);
    fsdp_grad_sum_clear(&p->grad);
    p->parameter->managed = NULL;
    fsdp_free(p);
    *param = NULL;
}

size_t
fsdp_param_padded_numel(const fsdp_param_t *param)
{
    return fsdp_shard_padded_numel(&param->shard);
}

void
fsdp_param_alloc_unsharded(fsdp_param_t *param)
{
    size_t numel =
        (size_t)param->shard.world_size * fsdp_param_padded_numel(param);
    param->unsharded_data =
        fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM,
                   numel * fsdp_dtype_size(param->parameter->dtype));
}

void
fsdp_param_to_unsharded(fsdp_param_t *param)
{
    param->parameter->data = param->unsharded_data;
    param->sharded_state = FSDP_UNSHARDED;
}

void
fsdp_param_to_sharded(fsdp_param_t *param)
{
    param->parameter->data = NULL;
    fsdp_free(param->unsharded_data);
    param->unsharded_data = NULL;
    param->sharded_state = FSDP_SHARDED;
}
