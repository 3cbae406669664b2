/* PyTorch: FSDPModule.unshard() and reshard(), and how values get into shards. */
#include "fsdp/fsdp_module_internal.h"
#include "fsdp/memory.h"

/* ---- unshard and reshard ------------------------------------------------- */

struct fsdp_unshard_handle {
    fsdp_state_t *state; /* borrowed */
};

static void
wait_for(fsdp_param_group_t *group, void *value)
{
    (void)value;
    fsdp_param_group_wait_for_unshard(group);
}

static void
start(fsdp_param_group_t *group, void *value)
{
    (void)value;
    fsdp_param_group_lazy_init(group);
    fsdp_param_group_unshard(group);
}

fsdp_status_t
fsdp_module_unshard(fsdp_module_t *module, bool async_op,
                    fsdp_unshard_handle_t **handle)
{
    if (handle != NULL)
        *handle = NULL;
    if (async_op && handle == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp_module_unshard: async_op needs a place for the "
                          "handle");
    fsdp_status_t status = fsdp_tell_groups(module, false, start, NULL);
    if (status != FSDP_OK)
        return status;
    if (!async_op)
        return fsdp_tell_groups(module, false, wait_for, NULL);
    *handle = fsdp_alloc(FSDP_MEM_OTHER, sizeof **handle);
    (*handle)->state = module->fsdp_state;
    return FSDP_OK;
}

void
fsdp_unshard_handle_wait(fsdp_unshard_handle_t **handle)
{
    if (*handle == NULL)
        return;
    fsdp_state_t *state = (*handle)->state;
    for (int g = 0; g < state->num_groups; g++)
        fsdp_param_group_wait_for_unshard(state->groups[g]);
    fsdp_free(*handle);
    *handle = NULL;
}

static void
reshard(fsdp_param_group_t *group, void *value)
{
    (void)value;
    fsdp_param_group_reshard(group);
}

fsdp_status_t
fsdp_module_reshard(fsdp_module_t *module)
{
    return fsdp_tell_groups(module, false, reshard, NULL);
}

/* ---- values -------------------------------------------------------------- */

static void
materialize(fsdp_param_group_t *group, void *value)
{
    for (int p = 0; p < group->num_params; p++) {
        group->fsdp_params[p]->parameter->seed = *(uint64_t *)value;
        fsdp_param_materialize(group->fsdp_params[p]);
    }
}

fsdp_status_t
fsdp_module_materialize(fsdp_module_t *module, uint64_t seed)
{
    return fsdp_tell_groups(module, true, materialize, &seed);
}

/* What fsdp_module_broadcast_from_rank0() was told. */
typedef struct source {
    void (*whole)(void *context, const fsdp_parameter_t *parameter, void *out);
    void *context;
} source_t;

/* One parameter at a time is whole. */
static void
take_from_rank0(fsdp_param_t *param, const source_t *source)
{
    fsdp_comm_t *world = fsdp_comm_world();
    fsdp_parameter_t *parameter = param->parameter;
    size_t size = fsdp_dtype_size(parameter->dtype);
    fsdp_param_materialize(param);
    fsdp_local_t local = fsdp_parameter_local(parameter);
    size_t numel = fsdp_layout_whole_numel(&local.layout);
    void *whole = fsdp_alloc(FSDP_MEM_COMM, numel * size);
    if (fsdp_comm_rank(world) == 0)
        source->whole(source->context, parameter, whole);
    fsdp_broadcast(world, parameter->name, parameter->dtype, whole, numel, 0);
    fsdp_layout_take(&local.layout, size, whole, local.data);
    fsdp_free(whole);
}

static void
broadcast(fsdp_param_group_t *group, void *value)
{
    for (int p = 0; p < group->num_params; p++)
        take_from_rank0(group->fsdp_params[p], value);
}

fsdp_status_t
fsdp_module_broadcast_from_rank0(
    fsdp_module_t *module,
    void (*whole)(void *context, const fsdp_parameter_t *parameter, void *out),
    void *context)
{
    source_t source = {whole, context};
    return fsdp_tell_groups(module, true, broadcast, &source);
}
