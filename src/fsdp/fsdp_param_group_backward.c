/* A parameter group in the backward. */
#include "fsdp/fsdp_faults.h"
#include "fsdp/fsdp_param_group.h"
#include "fsdp/memory.h"

void
fsdp_param_group_prefetch_unshard(fsdp_param_group_t *target,
                                  fsdp_training_state_t state)
{
    fsdp_training_state_t before = target->training_state;
    target->training_state = state;
    fsdp_fault_prefetching(state == FSDP_STATE_PRE_BACKWARD);
    fsdp_param_group_unshard(target);
    fsdp_fault_prefetching(false);
    target->training_state = before;
}

/* All groups of the module that ran before this group's, the latest first. */
static void
prefetch_module_before(const fsdp_param_group_t *group, size_t current)
{
    const fsdp_comm_ctx_t *ctx = group->comm_ctx;
    const struct fsdp_state *before = NULL;
    while (current-- > 0) {
        fsdp_param_group_t *target = ctx->post_forward_order[current];
        if (target->state == group->state)
            continue;
        if (before != NULL && target->state != before)
            return;
        before = target->state;
        fsdp_param_group_prefetch_unshard(target, FSDP_STATE_PRE_BACKWARD);
    }
}

/* The group that ran before this one in the forward is needed next.  Of a
 * module with several groups the second one looks ahead: it comes last but one
 * in the backward. */
static void
backward_prefetch(fsdp_param_group_t *group)
{
    if (group->num_indices == 0)
        return; /* cleared, when there are several backwards */
    size_t current = group->post_forward_indices[--group->num_indices];
    if (group->num_groups > 1) {
        if (group->index == 1)
            prefetch_module_before(group, current);
    } else if (current > 0) {
        fsdp_param_group_prefetch_unshard(
            group->comm_ctx->post_forward_order[current - 1],
            FSDP_STATE_PRE_BACKWARD);
    }
}

void
fsdp_param_group_pre_backward(fsdp_param_group_t *group, bool default_prefetch)
{
    if (group->training_state == FSDP_STATE_PRE_BACKWARD)
        return; /* another output of the same use */
    group->training_state = FSDP_STATE_PRE_BACKWARD;
    fsdp_param_group_unshard(group); /* nothing to do if prefetched */
    fsdp_param_group_wait_for_unshard(group);
    if (default_prefetch)
        backward_prefetch(group);
}

/* The whole gradient of a parameter: of this backward, or with those of the ones
 * before that did not reduce.  False: there is none, or not all of it: of a
 * module that ran twice the first post-backward comes too early.  (PyTorch
 * reduces then what the backwards before have left, and the rest by itself: one
 * rounding more.) */
static bool
whole_grad(const fsdp_param_group_t *group, fsdp_param_t *param,
           fsdp_unsharded_grad_t *grad)
{
    fsdp_parameter_t *parameter = param->parameter;
    *grad = (fsdp_unsharded_grad_t){.param = param};
    if (parameter->awaited_uses > 0)
        return false;
    if (param->unsharded_accumulated_grad.count > 0) {
        grad->dtype = fsdp_param_reduce_dtype(param);
        grad->data =
            fsdp_grad_sum_read(&param->unsharded_accumulated_grad, grad->dtype,
                               fsdp_parameter_numel(parameter));
        return true;
    }
    grad->dtype = fsdp_param_data_dtype(param);
    if (parameter->grad != NULL)
        grad->data = parameter->grad->data;
    return parameter->grad != NULL ||
           (group->reduce_scatter_unused_params && parameter->requires_grad);
}

/* Also the number of ranks that it must be the same on: a rank that has none
 * would leave the others waiting (the ledger check tells). */
static int
collect_grads(const fsdp_param_group_t *group, fsdp_unsharded_grad_t *grads)
{
    int count = 0;
    for (int p = 0; p < group->num_params; p++)
        if (whole_grad(group, group->fsdp_params[p], &grads[count]))
            count++;
    return count;
}

/* Only after the copy-in can they be freed. */
static void
free_grads(const fsdp_unsharded_grad_t *grads, int count)
{
    for (int p = 0; p < count; p++) {
        fsdp_parameter_zero_grad(grads[p].param->parameter);
        fsdp_grad_sum_clear(&grads[p].param->unsharded_accumulated_grad);
    }
}

static fsdp_reduce_options_t
reduce_options(fsdp_param_group_t *group)
{
    return (fsdp_reduce_options_t){
        .unit = group->module_fqn,
        .shard_comm = group->comm,
        .replicate_comm = group->replicate_comm,
        .order = group->reduce_order,
        .averaging = group->averaging,
        .divide_factor = group->gradient_divide_factor,
        .force_sum = group->force_sum,
        .all_reduce = group->all_reduce_grads,
        .partial = &group->partial_reduce_output,
        .custom = group->custom,
        .all_reduce_hook = group->all_reduce_hook,
        .hook_context = group->hook_context,
        .offload = group->offload,
    };
}

/* Reduces the gradients that have come; none, no collective. */
static void
reduce_grads(fsdp_param_group_t *group, const fsdp_unsharded_grad_t *grads,
             int count)
{
    fsdp_comm_ctx_t *ctx = group->comm_ctx;
    fsdp_reduce_options_t options = reduce_options(group);
    /* The group before frees its buffers now: one reduction is in flight. */
    fsdp_foreach_reduce_finish(&ctx->reduce_scatter_state);
    if (fsdp_comm_size(group->comm) > 1)
        fsdp_param_group_emit(group, FSDP_EVENT_REDUCE_SCATTER);
    ctx->reduce_scatter_state = fsdp_foreach_reduce(&options, grads, count);
    free_grads(grads, count);
}

static void
accumulate(fsdp_param_group_t *group, bool all)
{
    for (int p = 0; p < group->num_params; p++) {
        fsdp_param_t *param = group->fsdp_params[p];
        if (all || param->unsharded_accumulated_grad.count > 0)
            fsdp_param_accumulate_unsharded_grad(param);
    }
}

/* Of a module that ran twice the first post-backward has not all uses yet. */
static void
show_unreduced(const fsdp_param_group_t *group)
{
    for (int p = 0; p < group->num_params; p++) {
        fsdp_parameter_t *parameter = group->fsdp_params[p]->parameter;
        if (parameter->awaited_uses == 0)
            fsdp_emit_unreduced(parameter);
    }
}

void
fsdp_param_group_post_backward(fsdp_param_group_t *group)
{
    group->training_state = FSDP_STATE_POST_BACKWARD;
    show_unreduced(group);
    accumulate(group, !group->reduce_grads);
    if (group->reshard_after_backward)
        fsdp_param_group_reshard(group); /* before the reduction needs memory */
    if (group->reduce_grads) {
        fsdp_unsharded_grad_t *grads = fsdp_alloc(
            FSDP_MEM_OTHER, (size_t)group->num_params * sizeof *grads);
        int count = collect_grads(group, grads);
        if (count > 0)
            reduce_grads(group, grads, count);
        fsdp_free(grads);
    }
    fsdp_param_group_emit(group, FSDP_EVENT_POST_BACKWARD);
}

void
fsdp_param_group_finalize_backward(fsdp_param_group_t *group)
{
    /* prefetched, but not used */
    fsdp_all_gather_discard(&group->all_gather_result);
    group->num_indices = 0;
}
