/* This rank's part of a parameter, for those who only want that. */

#include <string.h>

#include "fsdp/fsdp_param_group.h"
#include "fsdp/fully_shard.h"
#include "fsdp/memory.h"

static fsdp_local_t
whole(fsdp_parameter_t *parameter)
{
    fsdp_parameter_data(parameter); /* made if it is new */
    size_t numel = fsdp_parameter_numel(parameter);
    return (fsdp_local_t){
        .data = parameter->data,
        .grad = parameter->grad != NULL ? parameter->grad->data : NULL,
        .rows = parameter->shape[0],
        .numel = numel,
        .padded_numel = numel,
    };
}

fsdp_local_t
fsdp_parameter_local(fsdp_parameter_t *parameter)
{
    fsdp_param_t *param = parameter->fsdp_param;
    if (param == NULL)
        return whole(parameter);
    size_t padded = fsdp_param_padded_numel(param);
    size_t rows = fsdp_shard_rows(&param->shard, param->rank);
    return (fsdp_local_t){
        .data = param->sharded_data,
        .grad = fsdp_grad_sum_read(&param->grad, parameter->dtype, padded),
        .begin = fsdp_shard_begin(&param->shard, param->rank),
        .rows = rows,
        .numel = rows * param->shard.row_numel,
        .padded_numel = padded,
        .comm = param->group->comm,
    };
}

void
fsdp_parameter_local_zero_grad(fsdp_parameter_t *parameter)
{
    fsdp_parameter_zero_grad(parameter);
    if (parameter->fsdp_param != NULL)
        fsdp_grad_sum_clear(&parameter->fsdp_param->grad);
}

const char *
fsdp_parameter_unit(const fsdp_parameter_t *parameter)
{
    return parameter->fsdp_param != NULL
               ? parameter->fsdp_param->group->module_fqn
               : NULL;
}

void
fsdp_parameter_gather(fsdp_parameter_t *parameter, const void *local,
                      fsdp_comm_t *comm, int root, void *out)
{
    fsdp_local_t mine = fsdp_parameter_local(parameter);
    size_t size = fsdp_dtype_size(parameter->dtype);
    size_t bytes = fsdp_parameter_numel(parameter) * size;
    bool is_root = fsdp_comm_rank(comm) == root;
    if (local == NULL)
        local = mine.data;
    if (mine.comm == NULL) { /* everybody has all of it */
        if (is_root)
            memcpy(out, local, bytes);
        return;
    }
    /* Chunk after chunk is the whole parameter, padding at the end. */
    size_t padded = mine.padded_numel * (size_t)fsdp_comm_size(comm) * size;
    void *all = is_root ? fsdp_alloc(FSDP_MEM_COMM, padded) : NULL;
    fsdp_gather(comm, parameter->name, parameter->dtype, local, all,
                mine.padded_numel, root);
    if (is_root)
        memcpy(out, all, bytes);
    fsdp_free(all);
}
