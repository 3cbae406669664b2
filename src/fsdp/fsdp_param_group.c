#include "fsdp/fsdp_param_group.h"

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"

fsdp_param_group_t *
fsdp_param_group_create(const char *module_fqn,
                        fsdp_parameter_t *const *parameters, int num_params,
                        const fsdp_options_t *options)
{
    fsdp_param_group_t *group = fsdp_calloc(FSDP_MEM_OTHER, sizeof *group);
    group->module_fqn = fsdp_strdup(module_fqn);
    group->comm = fsdp_mesh_shard_comm(options->mesh);
    group->reduce_order = options->reduce_order;
    group->num_params = num_params;
    group->fsdp_params = fsdp_alloc(
        FSDP_MEM_OTHER, (size_t)num_params * sizeof *group->fsdp_params);
    for (int p = 0; p < num_params; p++)
        group->fsdp_params[p] =
            fsdp_param_create(parameters[p], group, fsdp_comm_rank(group->comm),
                              fsdp_comm_size(group->comm));
    return group;
}

void
fsdp_param_group_destroy(fsdp_param_group_t **group)
{
    fsdp_param_group_t *g = *group;
    if (g->all_gather_result != NULL)
        fsdp_all_gather_discard(&g->all_gather_result);
    for (int p = 0; p < g->num_params; p++)
        fsdp_param_destroy(&g->fsdp_params[p]);
    fsdp_free(g->fsdp_params);
    fsdp_free(g->post_forward_indices);
    fsdp_free(g->module_fqn);
    fsdp_free(g);
    *group = NULL;
}

bool
fsdp_param_group_is_unsharded(const fsdp_param_group_t *group)
{
    return group->fsdp_params[0]->sharded_state == FSDP_UNSHARDED;
}

static void
emit(const fsdp_param_group_t *group, fsdp_event_kind_t kind)
{
    fsdp_emit_event(kind, group->module_fqn, group->training_state);
}

/* ---- unshard and reshard ------------------------------------------------ */

void
fsdp_param_group_unshard(fsdp_param_group_t *group)
{
    if (group->all_gather_result != NULL) /* called already, pending wait */
        return;
    if (fsdp_param_group_is_unsharded(group))
        return;
    emit(group, FSDP_EVENT_UNSHARD);
    group->all_gather_result = fsdp_foreach_all_gather(
        group->comm, group->module_fqn, group->fsdp_params, group->num_params);
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
    emit(group, FSDP_EVENT_WAIT_FOR_UNSHARD);
}

static void
to_sharded(fsdp_param_group_t *group)
{
    if (!fsdp_param_group_is_unsharded(group))
        return;
    for (int p = 0; p < group->num_params; p++)
        fsdp_param_to_sharded(group->fsdp_params[p]);
    emit(group, FSDP_EVENT_RESHARD);
}

void
fsdp_param_group_reshard(fsdp_param_group_t *group)
{
    if (group->training_state == FSDP_STATE_FORWARD &&
        !group->reshard_after_forward)
        return;
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

/* A list of `size`-byte items that doubles as it grows. */
static void *
with_room(void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    *room = *room > 0 ? 2 * *room : 16;
    void *grown = fsdp_alloc(FSDP_MEM_OTHER, *room * size);
    if (count > 0)
        memcpy(grown, list, count * size);
    fsdp_free(list);
    return grown;
}

static void
record_post_forward(fsdp_param_group_t *group)
{
    fsdp_comm_ctx_t *ctx = group->comm_ctx;
    group->post_forward_indices =
        with_room(group->post_forward_indices, group->num_indices,
                  &group->index_room, sizeof *group->post_forward_indices);
    group->post_forward_indices[group->num_indices++] = ctx->num_post_forward;
    ctx->post_forward_order =
        with_room(ctx->post_forward_order, ctx->num_post_forward,
                  &ctx->post_forward_room, sizeof *ctx->post_forward_order);
    ctx->post_forward_order[ctx->num_post_forward++] = group;
}

/* PyTorch records forwards without a backward too (evaluation), which then
 * mislead the next backward's prefetch into one all-gather too many. */
void
fsdp_param_group_post_forward(fsdp_param_group_t *group, bool record)
{
    fsdp_param_group_reshard(group);
    if (record)
        record_post_forward(group);
    group->training_state = FSDP_STATE_IDLE;
}

/* ---- backward ----------------------------------------------------------- */

/* The group that ran before this one in the forward is needed next. */
static void
backward_prefetch(fsdp_param_group_t *group)
{
    if (group->num_indices == 0)
        return;
    size_t current = group->post_forward_indices[--group->num_indices];
    if (current == 0)
        return;
    fsdp_param_group_t *target =
        group->comm_ctx->post_forward_order[current - 1];
    fsdp_training_state_t before = target->training_state;
    target->training_state = FSDP_STATE_PRE_BACKWARD;
    fsdp_param_group_unshard(target);
    target->training_state = before;
}

void
fsdp_param_group_pre_backward(fsdp_param_group_t *group)
{
    if (group->training_state == FSDP_STATE_PRE_BACKWARD)
        return; /* another output of the same use */
    group->training_state = FSDP_STATE_PRE_BACKWARD;
    fsdp_param_group_unshard(group); /* nothing to do if prefetched */
    fsdp_param_group_wait_for_unshard(group);
    backward_prefetch(group);
}

/* Reduces the gradients that have come; none, no collective. */
static void
reduce_grads(fsdp_param_group_t *group, fsdp_param_t **with_grad,
             int num_with_grad)
{
    fsdp_comm_ctx_t *ctx = group->comm_ctx;
    double factor = group->gradient_divide_factor;
    if (factor == 0.0)
        factor = fsdp_comm_size(group->comm);
    /* The group before frees its buffers now: one reduction is in flight. */
    fsdp_foreach_reduce_finish(&ctx->reduce_scatter_state);
    if (fsdp_comm_size(group->comm) > 1)
        emit(group, FSDP_EVENT_REDUCE_SCATTER);
    ctx->reduce_scatter_state =
        fsdp_foreach_reduce(group->comm, group->module_fqn, with_grad,
                            num_with_grad, group->reduce_order, factor);
}

void
fsdp_param_group_post_backward(fsdp_param_group_t *group)
{
    group->training_state = FSDP_STATE_POST_BACKWARD;
    fsdp_param_t **with_grad = fsdp_alloc(
        FSDP_MEM_OTHER, (size_t)group->num_params * sizeof *with_grad);
    int count = 0;
    for (int p = 0; p < group->num_params; p++)
        if (group->fsdp_params[p]->parameter->grad != NULL)
            with_grad[count++] = group->fsdp_params[p];
    fsdp_param_group_reshard(group); /* before the reduction needs memory */
    if (count > 0)
        reduce_grads(group, with_grad, count);
    fsdp_free(with_grad);
    emit(group, FSDP_EVENT_POST_BACKWARD);
}

void
fsdp_param_group_finalize_backward(fsdp_param_group_t *group)
{
    if (group->all_gather_result != NULL) /* prefetched, but not used */
        fsdp_all_gather_discard(&group->all_gather_result);
    group->num_indices = 0;
}
