#include "fsdp/fsdp_param_group.h"

#include "base/grow.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

/* ---- life --------------------------------------------------------------- */

static void
take_options(fsdp_param_group_t *group, const fsdp_options_t *options)
{
    group->reduce_grads = group->all_reduce_grads = true;
    group->reshard_after_backward = group->unshard_in_backward = true;
    group->mp_policy = options->mp_policy;
    group->reduce_order = options->reduce_order;
    group->averaging = options->averaging;
    group->defer_init = options->defer_init;
    if (options->offload_policy.directory != NULL) {
        fsdp_status_t status = fsdp_offload_open(
            options->offload_policy.directory, &group->offload);
        FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    }
}

fsdp_param_group_t *
fsdp_param_group_create(const char *module_fqn, fsdp_mesh_t *mesh,
                        fsdp_parameter_t *const *parameters, const int *dim,
                        int num_params, const fsdp_options_t *options)
{
    fsdp_param_group_t *group = fsdp_calloc(FSDP_MEM_OTHER, sizeof *group);
    group->module_fqn = fsdp_strdup(module_fqn);
    group->mesh = mesh;
    group->comm = fsdp_mesh_shard_comm(mesh);
    group->replicate_comm = fsdp_mesh_replicate_comm(mesh);
    if (group->replicate_comm != NULL)
        group->replicate_rank = fsdp_comm_rank(group->replicate_comm);
    take_options(group, options);
    group->num_params = num_params;
    group->fsdp_params = fsdp_alloc(
        FSDP_MEM_OTHER, (size_t)num_params * sizeof *group->fsdp_params);
    for (int p = 0; p < num_params; p++)
        group->fsdp_params[p] = fsdp_param_create(parameters[p], group, dim[p]);
    return group;
}

void
fsdp_param_group_destroy(fsdp_param_group_t **group)
{
    fsdp_param_group_t *g = *group;
    fsdp_all_gather_discard(&g->all_gather_result);
    fsdp_grad_sum_clear(&g->partial_reduce_output.sum);
    for (int p = 0; p < g->num_params; p++)
        fsdp_param_destroy(&g->fsdp_params[p]);
    fsdp_offload_close(&g->offload);
    fsdp_free(g->fsdp_params);
    fsdp_free(g->post_forward_indices);
    fsdp_free(g->module_fqn);
    fsdp_free(g);
    *group = NULL;
}

void
fsdp_param_group_set_reshard_after_forward(fsdp_param_group_t *group, int k)
{
    int ranks = fsdp_comm_size(group->comm);
    bool some =
        k != FSDP_RESHARD_TRUE && k != FSDP_RESHARD_FALSE && k > 1 && k < ranks;
    group->reshard_after_forward = k != FSDP_RESHARD_FALSE && k != 1;
    if (ranks == 1 && k == 1)
        group->reshard_after_forward = false;
    group->post_forward_comm =
        some ? fsdp_mesh_shard_groups(group->mesh, k) : NULL;
}

void
fsdp_param_group_lazy_init(fsdp_param_group_t *group)
{
    for (int p = 0; p < group->num_params; p++) {
        const fsdp_param_t *param = group->fsdp_params[p];
        FSDP_CHECK(param->sharded_data != NULL,
                   "parameter %s has no values yet: its initial values were "
                   "put off; call fsdp_module_materialize() before the forward",
                   param->parameter->name);
    }
}

fsdp_sharded_state_t
fsdp_param_group_sharded_state(const fsdp_param_group_t *group)
{
    return group->fsdp_params[0]->sharded_state;
}

void
fsdp_param_group_emit(const fsdp_param_group_t *group, fsdp_event_kind_t kind)
{
    fsdp_emit_event(kind, group->module_fqn, group->training_state);
}

/* ---- unshard and reshard ------------------------------------------------ */

static void
prefetch_offloaded(const fsdp_param_group_t *group)
{
    for (int p = 0; p < group->num_params && group->offload != NULL; p++) {
        const fsdp_param_t *param = group->fsdp_params[p];
        fsdp_offload_prefetch(param->sharded_data,
                              fsdp_param_padded_numel(param) *
                                  fsdp_dtype_size(param->parameter->dtype));
    }
}

void
fsdp_param_group_unshard(fsdp_param_group_t *group)
{
    fsdp_sharded_state_t state = fsdp_param_group_sharded_state(group);
    if (group->all_gather_result != NULL) /* called already, pending wait */
        return;
    if (state == FSDP_UNSHARDED)
        return;
    if (!group->unshard_in_backward &&
        group->training_state == FSDP_STATE_PRE_BACKWARD)
        return;
    fsdp_param_group_emit(group, FSDP_EVENT_UNSHARD);
    prefetch_offloaded(group);
    group->all_gather_result = fsdp_foreach_all_gather(
        state == FSDP_SHARDED_POST_FORWARD ? group->post_forward_comm
                                           : group->comm,
        group->module_fqn, group->fsdp_params, group->num_params,
        &group->custom);
}

void
fsdp_param_group_wait_for_unshard(fsdp_param_group_t *group)
{
    if (group->all_gather_result == NULL)
        return;
    fsdp_foreach_all_gather_copy_out(&group->all_gather_result,
                                     group->fsdp_params, group->num_params);
    for (int p = 0; p < group->num_params; p++)
        fsdp_param_to_unsharded(group->fsdp_params[p]);
    fsdp_param_group_emit(group, FSDP_EVENT_WAIT_FOR_UNSHARD);
}

static void
to_sharded(fsdp_param_group_t *group)
{
    if (fsdp_param_group_sharded_state(group) == FSDP_SHARDED)
        return;
    for (int p = 0; p < group->num_params; p++)
        fsdp_param_to_sharded(group->fsdp_params[p]);
    fsdp_param_group_emit(group, FSDP_EVENT_RESHARD);
}

static void
to_sharded_post_forward(fsdp_param_group_t *group)
{
    if (fsdp_param_group_sharded_state(group) != FSDP_UNSHARDED)
        return;
    for (int p = 0; p < group->num_params; p++)
        fsdp_param_to_sharded_post_forward(
            group->fsdp_params[p], fsdp_comm_rank(group->post_forward_comm),
            fsdp_comm_size(group->post_forward_comm));
    fsdp_param_group_emit(group, FSDP_EVENT_RESHARD);
}

void
fsdp_param_group_reshard(fsdp_param_group_t *group)
{
    if (group->training_state != FSDP_STATE_FORWARD)
        to_sharded(group);
    else if (group->reshard_after_forward && group->post_forward_comm != NULL)
        to_sharded_post_forward(group);
    else if (group->reshard_after_forward)
        to_sharded(group);
}

void
fsdp_param_group_reset_iter_state(fsdp_param_group_t *group)
{
    fsdp_all_gather_discard(&group->all_gather_result);
    fsdp_grad_sum_clear(&group->partial_reduce_output.sum);
    for (int p = 0; p < group->num_params; p++) {
        fsdp_param_t *param = group->fsdp_params[p];
        fsdp_grad_sum_clear(&param->unsharded_accumulated_grad);
        fsdp_parameter_forget_backward(param->parameter);
    }
    group->num_indices = 0;
    group->training_state = FSDP_STATE_IDLE;
    to_sharded(group);
}

/* ---- forward ------------------------------------------------------------ */

void
fsdp_param_group_pre_forward(fsdp_param_group_t *group)
{
    group->training_state = FSDP_STATE_FORWARD;
    fsdp_param_group_unshard(group);
    fsdp_param_group_wait_for_unshard(group);
}

static void
record_post_forward(fsdp_param_group_t *group)
{
    fsdp_comm_ctx_t *ctx = group->comm_ctx;
    group->post_forward_indices = fsdp_grow(
        FSDP_MEM_OTHER, group->post_forward_indices, group->num_indices,
        &group->index_room, 16, sizeof *group->post_forward_indices);
    group->post_forward_indices[group->num_indices++] = ctx->num_post_forward;
    ctx->post_forward_order = fsdp_grow(
        FSDP_MEM_OTHER, ctx->post_forward_order, ctx->num_post_forward,
        &ctx->post_forward_room, 16, sizeof *ctx->post_forward_order);
    ctx->post_forward_order[ctx->num_post_forward++] = group;
}

/* PyTorch records forwards without a backward too (evaluation), which then
 * mislead the next backward's prefetch into one all-gather too many. */
void
fsdp_param_group_post_forward(fsdp_param_group_t *group, bool record,
                              bool recomputing)
{
    if (!recomputing)
        fsdp_param_group_reshard(group);
    if (record && !recomputing)
        record_post_forward(group);
    group->training_state = FSDP_STATE_IDLE;
}
