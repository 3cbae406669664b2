/* PyTorch: torch/distributed/fsdp/_runtime_utils.py: the hooks.  Unsharding is in
 * fsdp1_unshard.c, the reduction in fsdp1_reduce.c. */
#include "fsdp/fsdp1_state.h"
#include "fsdp/fsdp_common.h"
#include "fsdp/ops.h"
#include "fsdp/status.h"

/* ---- backward ------------------------------------------------------------ */

/* Without synchronisation, strategies that stay gathered after the forward stay
 * so after the backward too. */
bool
fsdp1_should_free_in_backward(const fsdp1_state_t *state)
{
    return fsdp_flat_param_uses_sharded_strategy(state->handle) &&
           (state->shared->sync_gradients ||
            fsdp_flat_param_reshards_after_forward(state->handle));
}

void
fsdp1_post_backward_reshard(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    fsdp1_reshard(state, fsdp1_should_free_in_backward(state));
    fsdp1_prefetch(state, tape);
}

/* PyTorch: _post_backward_hook(). */
static void
post_backward(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    fsdp_flat_param_handle_t *handle = state->handle;
    void *grad = fsdp_flat_param_take_grads(handle);
    if (grad == NULL)
        return;
    handle->training_state = FSDP_STATE_POST_BACKWARD;
    fsdp1_post_backward_reshard(state, tape);
    fsdp_flat_param_accumulate(handle, grad);
    if (state->shared->sync_gradients)
        fsdp1_reduce_grad(state, fsdp_flat_param_take_accumulated(handle));
    fsdp_emit_event(FSDP_EVENT_POST_BACKWARD, handle->unit,
                    handle->training_state);
}

/* The backward has passed where the unit's parameters were unsharded; the last
 * such place to be passed, that of the first use, has all gradients behind it.
 */
static void
passed_unshard(void *context, fsdp_tape_t *tape)
{
    fsdp1_state_t *state = context;
    const fsdp_flat_param_handle_t *handle = state->handle;
    if (state->marked_tape == tape && --state->marks_ahead > 0)
        return;
    for (int i = 0; i < handle->num_views; i++)
        if (handle->view[i].parameter->awaited_uses > 0)
            return;
    post_backward(state, tape);
}

/* In PyTorch the views into the flat parameter, which unshard() makes, are nodes
 * of the graph, and the older node runs later.  So the reduction of a unit
 * waits until the backward is back where the unit was unsharded, though all its
 * gradients may have come before: the root's comes last. */
void
fsdp1_register_post_backward(fsdp1_state_t *state, fsdp_tape_t *tape)
{
    if (!fsdp_tape_get_options(tape)->grad_enabled ||
        fsdp_tape_is_recomputing(tape))
        return;
    if (state->marked_tape != tape)
        state->marks_ahead = 0;
    state->marked_tape = tape;
    state->marks_ahead++;
    fsdp_tape_on_passed(tape, passed_unshard, state);
}

/* Of a unit that is frozen. */
static void
post_backward_reshard_only(void *context, fsdp_tape_t *tape)
{
    fsdp1_state_t *state = context;
    state->handle->training_state = FSDP_STATE_POST_BACKWARD;
    fsdp1_post_backward_reshard(state, tape);
}

/* A unit whose gradients were added up without synchronisation and that the last
 * backward did not reach is reduced all the same.  One that was gathered but not
 * used backward is freed, lest it be old in the next forward (PyTorch leaves it
 * so if the forward had let go of it).  PyTorch: _catch_all_reshard(),
 * _finalize_params(). */
static void
finish_state(fsdp1_state_t *state)
{
    fsdp_flat_param_handle_t *handle = state->handle;
    state->training_state = FSDP1_IDLE;
    if (handle == NULL)
        return;
    void *late = fsdp_flat_param_take_grads(handle);
    if (late != NULL)
        fsdp_flat_param_accumulate(handle, late);
    if (handle->unsharded != NULL &&
        fsdp_flat_param_uses_sharded_strategy(handle))
        fsdp1_reshard(state, fsdp1_should_free_in_backward(state));
    void *rest = state->shared->sync_gradients
                     ? fsdp_flat_param_take_accumulated(handle)
                     : NULL;
    if (rest != NULL)
        fsdp1_reduce_grad(state, rest);
    handle->ran_pre_backward_hook = false;
    handle->needs_pre_backward_unshard = false;
    handle->post_forward_index = -1;
    state->marked_tape = NULL;
    state->marks_ahead = 0;
    handle->training_state = FSDP_STATE_IDLE;
    handle->prefetched = false;
}

static void
post_backward_final_callback(void *context, fsdp_tape_t *tape)
{
    fsdp1_state_t *root = context;
    fsdp1_shared_t *shared = root->shared;
    (void)tape;
    fsdp_exec_order_next_iter(&shared->exec_order_data);
    for (int i = 0; i < root->num_states; i++)
        finish_state(root->all_states[i]);
    fsdp1_reduce_grad_finish(shared);
    for (int i = 0; i < root->num_states && shared->sync_gradients; i++)
        if (root->all_states[i]->handle != NULL)
            fsdp_flat_param_prepare_gradient_for_optim(
                root->all_states[i]->handle);
    shared->post_backward_callback_queued = false;
}

/* Of the first gradient of an output that comes; others of the unit, and of
 * earlier uses, find it done. */
static void
pre_backward(void *context, fsdp_tape_t *tape)
{
    fsdp1_state_t *state = context;
    fsdp1_shared_t *shared = state->shared;
    fsdp_flat_param_handle_t *handle = state->handle;
    if (handle != NULL && handle->ran_pre_backward_hook)
        return;
    if (!shared->post_backward_callback_queued) {
        shared->post_backward_callback_queued = true;
        fsdp_tape_queue_callback(tape, post_backward_final_callback,
                                 shared->root);
    }
    state->training_state = FSDP1_FORWARD_BACKWARD;
    if (handle == NULL)
        return;
    handle->training_state = FSDP_STATE_PRE_BACKWARD;
    if (handle->needs_pre_backward_unshard)
        fsdp1_unshard_and_wait(state, tape);
    handle->needs_pre_backward_unshard = false;
    fsdp1_prefetch(state, tape);
    handle->ran_pre_backward_hook = true;
}

/* ---- forward ------------------------------------------------------------- */

static fsdp_values_t
cast_inputs(fsdp_tape_t *tape, fsdp_values_t inputs, fsdp_dtype_t dtype)
{
    for (int i = 0; i < inputs.count; i++) {
        fsdp_tensor_t *x = inputs.tensor[i];
        if (dtype != FSDP_DTYPE_NONE && fsdp_dtype_is_floating(x->dtype))
            inputs.tensor[i] = fsdp_cast(tape, x, dtype);
    }
    return inputs;
}

/* PyTorch: _root_pre_forward(). */
static fsdp_values_t
root_pre_forward(fsdp1_state_t *state, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp1_lazy_init(state);
    if (state->shared->root != state)
        return inputs;
    for (int i = 0; i < state->num_states; i++) {
        fsdp_flat_param_handle_t *handle = state->all_states[i]->handle;
        if (handle == NULL || !state->options.forward_prefetch)
            continue;
        handle->needs_pre_forward_unshard = true;
        handle->prefetched = false;
    }
    if (!state->options.mixed_precision.cast_root_forward_inputs)
        return inputs;
    return cast_inputs(tape, inputs,
                       state->options.mixed_precision.param_dtype);
}

/* A frozen unit is done when the gradients of its inputs have come.  PyTorch:
 * _register_post_backward_reshard_only_hook(). */
static fsdp_values_t
register_reshard_only(fsdp1_state_t *state, fsdp_tape_t *tape,
                      fsdp_values_t inputs)
{
    fsdp_flat_param_handle_t *handle = state->handle;
    handle->requires_grad = false;
    for (int i = 0; i < handle->num_views; i++) {
        fsdp_parameter_t *p = handle->view[i].parameter;
        handle->requires_grad |= p->requires_grad;
    }
    if (handle->requires_grad)
        return inputs;
    return fsdp_tape_after_grads(tape, inputs, post_backward_reshard_only,
                                 state);
}

static void
check_may_run(const fsdp1_state_t *state)
{
    FSDP_CHECK(state->training_state != FSDP1_SUMMON_FULL_PARAMS,
               "unit \"%s\" runs while its parameters are summoned; call "
               "fsdp1_release_full_params() first",
               state->module->name);
    FSDP_CHECK(state->handle == NULL || !state->handle->gather_forgotten,
               "unit \"%s\": gradients were forgotten after a backward, but "
               "the parameters not gathered; call "
               "fsdp_zero_gather_parameters() after each optimizer step",
               state->module->name);
}

/* In a recomputed forward (activation checkpointing) of a unit that is in its
 * backward the parameters are there already.  The cast is made again there: it
 * is a part of what is computed again. */
static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    fsdp1_state_t *state = context;
    fsdp_flat_param_handle_t *handle = state->handle;
    const fsdp_mixed_precision_t *mixed = &state->options.mixed_precision;
    (void)module;
    check_may_run(state);
    inputs = root_pre_forward(state, tape, inputs);
    bool recompute =
        handle != NULL && handle->training_state == FSDP_STATE_PRE_BACKWARD;
    if (handle != NULL && !recompute) {
        state->training_state = FSDP1_FORWARD_BACKWARD;
        fsdp_exec_order_record_pre_forward(
            &state->shared->exec_order_data, handle,
            fsdp_tape_get_options(tape)->training &&
                !fsdp_tape_is_recomputing(tape));
        handle->training_state = FSDP_STATE_FORWARD;
        fsdp1_unshard_and_wait(state, tape);
        handle->needs_pre_forward_unshard = false;
        fsdp1_prefetch(state, tape);
    }
    if (handle != NULL && mixed->cast_forward_inputs)
        inputs = cast_inputs(tape, inputs, mixed->param_dtype);
    if (handle == NULL || recompute ||
        !fsdp_tape_get_options(tape)->grad_enabled)
        return inputs;
    return register_reshard_only(state, tape, inputs);
}

/* Outputs that need a gradient gather the unit again.  PyTorch:
 * _register_pre_backward_hooks(). */
static void
register_pre_backward(fsdp1_state_t *state, fsdp_tape_t *tape,
                      fsdp_values_t outputs)
{
    fsdp_flat_param_handle_t *handle = state->handle;
    if (handle != NULL) {
        handle->needs_pre_backward_unshard = false;
        handle->ran_pre_backward_hook = false;
    }
    for (int i = 0; i < outputs.count; i++) {
        if (!outputs.tensor[i]->requires_grad)
            continue;
        fsdp_tape_on_grad(tape, outputs.tensor[i], pre_backward, state);
        if (handle != NULL)
            handle->needs_pre_backward_unshard = true;
    }
}

/* PyTorch records forwards without gradients too, which have no backward to
 * look them up, nor to clear the list. */
static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    fsdp1_state_t *state = context;
    fsdp_flat_param_handle_t *handle = state->handle;
    bool grad_enabled = fsdp_tape_get_options(tape)->grad_enabled;
    (void)module;
    if (handle != NULL && handle->training_state == FSDP_STATE_PRE_BACKWARD)
        return outputs;
    if (fsdp_tape_is_recomputing(tape)) { /* stays for its backward, next */
        state->training_state = FSDP1_IDLE;
        if (handle != NULL)
            handle->training_state = FSDP_STATE_IDLE;
        return outputs;
    }
    if (handle != NULL) {
        if (grad_enabled)
            fsdp_exec_order_record_post_forward(&state->shared->exec_order_data,
                                                handle);
        bool is_root = state->shared->root == state;
        fsdp1_reshard(
            state, !is_root && fsdp_flat_param_reshards_after_forward(handle));
    }
    if (grad_enabled)
        register_pre_backward(state, tape, outputs);
    state->training_state = FSDP1_IDLE;
    if (handle != NULL)
        handle->training_state = FSDP_STATE_IDLE;
    return outputs;
}

fsdp_module_hooks_t
fsdp1_runtime_hooks(fsdp1_state_t *state)
{
    return (fsdp_module_hooks_t){
        .context = state,
        .pre_forward = pre_forward,
        .post_forward = post_forward,
    };
}
