/* PyTorch: torch/distributed/fsdp/_runtime_utils.py: unsharding a unit, when it
 * is needed and before; the rate limiter of _limiter_utils.py. */
#include "fsdp/fsdp1_state.h"

void
fsdp1_forget_in_flight(fsdp1_shared_t *shared,
                       const fsdp_flat_param_handle_t *handle)
{
    fsdp_handle_list_t *list = &shared->in_flight;
    int kept = 0;
    for (int i = 0; i < list->count; i++)
        if (list->handle[i] != handle)
            list->handle[kept++] = list->handle[i];
    list->count = kept;
}

/* PyTorch: _FreeEventQueue.dequeue_if_needed(): there the CPU waits until
 * memory is free; here until the oldest all-gather is over. */
static void
limit_all_gathers(fsdp1_shared_t *shared)
{
    if (shared->in_flight.count < FSDP_MAX_INFLIGHT_ALL_GATHERS)
        return;
    fsdp_flat_param_handle_t *oldest = shared->in_flight.handle[0];
    fsdp_work_wait(&oldest->all_gather);
    fsdp1_forget_in_flight(shared, oldest);
}

/* PyTorch: _unshard(). */
void
fsdp1_unshard(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    fsdp_flat_param_handle_t *handle = state->handle;
    if (handle->training_state == FSDP_STATE_FORWARD)
        fsdp1_register_post_backward(state, tape);
    if (!fsdp_flat_param_needs_unshard(handle)) {
        fsdp_flat_param_unshard(handle);
        return;
    }
    if (state->options.limit_all_gathers)
        limit_all_gathers(state->shared);
    fsdp_flat_param_unshard(handle);
    fsdp_handle_list_add(&state->shared->in_flight, handle);
}

void
fsdp1_unshard_and_wait(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    if (!state->handle->prefetched)
        fsdp1_unshard(state, tape);
    fsdp_flat_param_wait(state->handle);
    fsdp1_forget_in_flight(state->shared, state->handle);
}

/* PyTorch: _reshard(). */
void
fsdp1_reshard(fsdp1_state_t *state, bool free_it)
{
    if (state->handle->all_gather != NULL)
        fsdp1_forget_in_flight(state->shared, state->handle);
    fsdp_flat_param_reshard(state->handle, free_it);
    state->handle->prefetched = false;
}

/* PyTorch: _get_handle_to_prefetch(). */
static fsdp_flat_param_handle_t *
handle_to_prefetch(const fsdp1_state_t *state)
{
    const fsdp_exec_order_data_t *order = &state->shared->exec_order_data;
    fsdp_flat_param_handle_t *current = state->handle, *target = NULL;
    fsdp_backward_prefetch_t when = state->options.backward_prefetch;
    if ((current->training_state == FSDP_STATE_PRE_BACKWARD &&
         when == FSDP_BACKWARD_PRE) ||
        (current->training_state == FSDP_STATE_POST_BACKWARD &&
         when == FSDP_BACKWARD_POST)) {
        target =
            fsdp_exec_order_get_handle_to_backward_prefetch(order, current);
        if (target != NULL && !target->needs_pre_backward_unshard)
            target = NULL;
    } else if (current->training_state == FSDP_STATE_FORWARD &&
               state->options.forward_prefetch) {
        target = fsdp_exec_order_get_handle_to_forward_prefetch(order, current);
        if (target != NULL && !target->needs_pre_forward_unshard)
            target = NULL;
    }
    return target != NULL && !target->prefetched ? target : NULL;
}

void
fsdp1_prefetch(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    fsdp_flat_param_handle_t *target = handle_to_prefetch(state);
    if (target == NULL)
        return;
    fsdp_training_state_t before = target->training_state;
    bool forward = state->handle->training_state == FSDP_STATE_FORWARD;
    target->training_state =
        forward ? FSDP_STATE_FORWARD : FSDP_STATE_PRE_BACKWARD;
    fsdp1_unshard(target->state, tape);
    target->training_state = before;
    target->prefetched = true;
}
