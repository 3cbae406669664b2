#include "fsdp/fsdp_state.h"

#include <string.h>

#include "fsdp/fault.h"
#include "fsdp/ops.h"

/* ---- casts -------------------------------------------------------------- */

static fsdp_values_t
cast_values(fsdp_tape_t *tape, fsdp_values_t values, fsdp_dtype_t dtype)
{
    for (int i = 0; i < values.count && dtype != FSDP_DTYPE_NONE; i++)
        if (fsdp_dtype_is_floating(values.tensor[i]->dtype))
            values.tensor[i] = fsdp_cast(tape, values.tensor[i], dtype);
    return values;
}

static fsdp_values_t
cast_forward_inputs(const fsdp_state_t *state, fsdp_tape_t *tape,
                    fsdp_values_t inputs)
{
    if (!state->mp_policy.cast_forward_inputs)
        return inputs;
    return cast_values(tape, inputs, state->mp_policy.param_dtype);
}

static fsdp_values_t
cast_output_dtype(const fsdp_state_t *state, fsdp_tape_t *tape,
                  fsdp_values_t outputs)
{
    return fsdp_fault(FSDP_FAULT_OUTPUT_UNCAST)
               ? outputs
               : cast_values(tape, outputs, state->mp_policy.output_dtype);
}

/* ---- which of a list of modules have run --------------------------------- */

static void
expect_all(fsdp_state_t *state)
{
    state->num_to_run = state->num_modules;
    memset(state->to_run_forward, 1, (size_t)state->num_modules);
}

static void
expect_none(fsdp_state_t *state)
{
    state->num_to_run = 0;
    memset(state->to_run_forward, 0, (size_t)state->num_modules);
}

/* Is this call the one that completes the list? */
static bool
completes(fsdp_state_t *state, const fsdp_module_t *module)
{
    int i = 0;
    if (state->num_modules == 1)
        return true;
    while (state->modules[i] != module)
        i++;
    if (!state->to_run_forward[i])
        return false; /* called once more, by itself */
    state->to_run_forward[i] = false;
    return --state->num_to_run == 0;
}

/* ---- backward ----------------------------------------------------------- */

static void
post_backward(void *context, fsdp_tape_t *tape)
{
    (void)tape;
    fsdp_param_group_post_backward(context);
}

/* The groups of a state go in reverse, as the backward meets them. */
static void
finish_state(fsdp_state_t *state)
{
    expect_none(state);
    for (int g = state->num_groups - 1; g >= 0; g--) {
        fsdp_param_group_t *group = state->groups[g];
        /* A module whose inputs need no gradient had no post-backward yet. */
        if (group->training_state != FSDP_STATE_POST_BACKWARD)
            fsdp_param_group_post_backward(group);
        group->training_state = FSDP_STATE_IDLE;
    }
    state->training_state = FSDP_STATE_IDLE;
    for (int g = 0; g < state->num_groups && state->comm_ctx->is_last_backward;
         g++)
        fsdp_param_group_finalize_backward(state->groups[g]);
}

/* PyTorch: FSDPState._root_post_backward_final_callback(). */
static void
root_post_backward_final_callback(void *context, fsdp_tape_t *tape)
{
    fsdp_state_t *root = context;
    fsdp_comm_ctx_t *ctx = root->comm_ctx;
    (void)tape;
    ctx->iter_forward_root = NULL;
    for (int i = 0; i < root->num_states; i++)
        finish_state(root->all_states[i]);
    if (ctx->is_last_backward) {
        fsdp_foreach_reduce_finish(&ctx->reduce_scatter_state);
        ctx->num_post_forward = 0;
    }
    ctx->post_backward_final_callback_queued = false;
}

static void
prefetch(const fsdp_state_list_t *list, fsdp_training_state_t training_state)
{
    bool backward = training_state == FSDP_STATE_PRE_BACKWARD;
    for (int i = 0; i < list->count; i++) {
        const fsdp_state_t *state = list->state[i];
        int n = state->num_groups;
        for (int g = 0; g < n; g++)
            fsdp_param_group_prefetch_unshard(
                state->groups[backward ? n - 1 - g : g], training_state);
    }
}

/* PyTorch: FSDPState._pre_backward(). */
static void
pre_backward(void *context, fsdp_tape_t *tape)
{
    fsdp_state_t *state = context;
    fsdp_comm_ctx_t *ctx = state->comm_ctx;
    bool default_prefetch = state->backward_prefetch.count == 0;
    state->training_state = FSDP_STATE_PRE_BACKWARD;
    if (!ctx->post_backward_final_callback_queued) {
        ctx->post_backward_final_callback_queued = true;
        fsdp_tape_queue_callback(tape, root_post_backward_final_callback,
                                 ctx->root);
    }
    for (int g = 0; g < state->num_groups; g++)
        fsdp_param_group_pre_backward(state->groups[g], default_prefetch);
    prefetch(&state->backward_prefetch, FSDP_STATE_PRE_BACKWARD);
}

/* ---- forward ------------------------------------------------------------ */

/* In the recomputation of a checkpoint the pre-backward has gathered already,
 * unless a post-backward has freed since. */
static void
ensure_unsharded(fsdp_state_t *state)
{
    for (int g = 0; g < state->num_groups; g++) {
        fsdp_param_group_unshard(state->groups[g]);
        fsdp_param_group_wait_for_unshard(state->groups[g]);
    }
}

static void
root_pre_forward(fsdp_state_t *state)
{
    fsdp_state_lazy_init(state);
    if (state->comm_ctx->iter_forward_root == NULL)
        state->comm_ctx->iter_forward_root = state;
}

/* PyTorch: FSDPParamGroup.pre_forward(), whose hook is on the inputs. */
static fsdp_values_t
enter_group(fsdp_param_group_t *group, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    /* Another module of the list has entered already if it is in FORWARD. */
    bool entering = group->training_state != FSDP_STATE_FORWARD;
    fsdp_param_group_pre_forward(group);
    return entering ? fsdp_tape_after_grads(tape, inputs, post_backward, group)
                    : inputs;
}

/* PyTorch: FSDPState._pre_forward(). */
static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    fsdp_state_t *state = context;
    (void)module;
    if (state->num_modules > 1 && state->num_to_run == 0)
        expect_all(state);
    if (state->training_state == FSDP_STATE_PRE_BACKWARD) {
        ensure_unsharded(state);
        return cast_forward_inputs(state, tape, inputs);
    }
    bool first = state->training_state != FSDP_STATE_FORWARD;
    state->training_state = FSDP_STATE_FORWARD;
    if (first)
        root_pre_forward(state);
    inputs = cast_forward_inputs(state, tape, inputs);
    for (int g = 0; g < state->num_groups; g++)
        inputs = enter_group(state->groups[g], tape, inputs);
    if (first)
        prefetch(&state->forward_prefetch, FSDP_STATE_FORWARD);
    return inputs;
}

static void
register_pre_backward(fsdp_state_t *state, fsdp_tape_t *tape,
                      fsdp_values_t outputs)
{
    for (int i = 0; i < outputs.count; i++)
        if (outputs.tensor[i]->requires_grad)
            fsdp_tape_on_grad(tape, outputs.tensor[i], pre_backward, state);
}

static void
leave_groups(fsdp_state_t *state, fsdp_tape_t *tape)
{
    bool record = fsdp_tape_get_options(tape)->grad_enabled;
    for (int g = 0; g < state->num_groups; g++)
        fsdp_param_group_post_forward(state->groups[g], record,
                                      fsdp_tape_is_recomputing(tape));
}

/* Lists of which the forward has run only some modules end with the root. */
static fsdp_values_t
force_complete_incomplete_states(fsdp_state_t *root, fsdp_tape_t *tape,
                                 fsdp_values_t outputs)
{
    const fsdp_state_t *all = root->comm_ctx->root;
    for (int i = all->num_states - 1; i >= 0; i--) {
        fsdp_state_t *state = all->all_states[i];
        if (state == root || state->num_to_run == 0)
            continue;
        leave_groups(state, tape);
        register_pre_backward(state, tape, outputs);
        state->training_state = FSDP_STATE_IDLE;
        outputs = cast_output_dtype(state, tape, outputs);
        expect_none(state);
    }
    return outputs;
}

/* PyTorch: FSDPState._post_forward(). */
static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    fsdp_state_t *state = context;
    bool completed = completes(state, module);
    if (!completed || state->training_state == FSDP_STATE_PRE_BACKWARD)
        return cast_output_dtype(state, tape, outputs);

    leave_groups(state, tape);
    register_pre_backward(state, tape, outputs);
    state->training_state = FSDP_STATE_IDLE;
    if (state->comm_ctx->iter_forward_root == state) {
        outputs = force_complete_incomplete_states(state, tape, outputs);
        state->comm_ctx->iter_forward_root = NULL;
    }
    return cast_output_dtype(state, tape, outputs);
}

void
fsdp_state_reset_iter(fsdp_state_t *root)
{
    fsdp_comm_ctx_t *ctx = root->comm_ctx;
    fsdp_foreach_reduce_discard(&ctx->reduce_scatter_state);
    ctx->num_post_forward = 0;
    ctx->iter_forward_root = NULL;
    ctx->post_backward_final_callback_queued = false;
    for (int i = 0; i < root->num_states; i++) {
        fsdp_state_t *state = root->all_states[i];
        expect_none(state);
        state->training_state = FSDP_STATE_IDLE;
        for (int g = 0; g < state->num_groups; g++)
            fsdp_param_group_reset_iter_state(state->groups[g]);
    }
}

void
fsdp_state_hook(fsdp_state_t *state, void (*free_context)(void *context))
{
    fsdp_module_hooks_t hooks = {.context = state,
                                 .pre_forward = pre_forward,
                                 .post_forward = post_forward,
                                 .free_context = free_context};
    for (int i = 0; i < state->num_modules; i++) {
        fsdp_module_add_hooks(state->modules[i], &hooks);
        state->modules[i]->fsdp_state = state;
    }
}
