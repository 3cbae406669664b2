#include "fsdp/fsdp_state.h"

#include <string.h>

#include "fsdp/fsdp_faults.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

/* ---- lazy init: the root is known when the first forward runs ------------ */

/* Parents first, each state once.  PyTorch: the walk of _lazy_init(). */
static void
collect_states(fsdp_module_t *module, fsdp_state_t *root)
{
    fsdp_state_t *state = module->fsdp_state;
    bool known = state == NULL;
    for (int i = 0; i < root->num_states && !known; i++)
        known = root->all_states[i] == state;
    if (!known)
        root->all_states[root->num_states++] = state;
    for (int i = 0; i < module->num_children; i++)
        collect_states(module->child[i], root);
}

static void
init_shared_state(fsdp_state_t *root)
{
    fsdp_comm_ctx_t *ctx = fsdp_calloc(FSDP_MEM_OTHER, sizeof *ctx);
    ctx->root = root;
    for (int i = 0; i < root->num_states; i++) {
        fsdp_state_t *state = root->all_states[i];
        FSDP_CHECK(state->comm_ctx == NULL,
                   "module \"%s\" ran before the root module \"%s\": run a "
                   "sharded model through its root first",
                   state->modules[0]->name, root->modules[0]->name);
        state->comm_ctx = ctx;
        ctx->users++;
        if (state->group == NULL)
            continue;
        state->group->comm_ctx = ctx;
        state->group->reshard_after_forward =
            state->reshard_after_forward == FSDP_RESHARD_TRUE ||
            (state->reshard_after_forward == FSDP_RESHARD_AUTO &&
             state != root);
    }
}

/* PyTorch: FSDPState._lazy_init(). */
static void
lazy_init(fsdp_state_t *state)
{
    if (state->comm_ctx != NULL)
        return;
    size_t num_modules = 0;
    for (int i = 0; i < state->num_modules; i++)
        num_modules += fsdp_module_modules(state->modules[i], NULL, 0);
    state->all_states =
        fsdp_alloc(FSDP_MEM_OTHER, num_modules * sizeof *state->all_states);
    for (int i = 0; i < state->num_modules; i++)
        collect_states(state->modules[i], state);
    init_shared_state(state);
}

/* ---- backward ----------------------------------------------------------- */

static void
post_backward(void *context, fsdp_tape_t *tape)
{
    fsdp_state_t *state = context;
    (void)tape;
    if (state->group != NULL)
        fsdp_param_group_post_backward(state->group);
}

static void
finish_state(fsdp_state_t *state)
{
    /* A module whose inputs need no gradient had no post-backward yet. */
    if (state->group != NULL &&
        state->group->training_state != FSDP_STATE_POST_BACKWARD)
        fsdp_param_group_post_backward(state->group);
    state->training_state = FSDP_STATE_IDLE;
    if (state->group == NULL)
        return;
    state->group->training_state = FSDP_STATE_IDLE;
    fsdp_param_group_finalize_backward(state->group);
}

/* PyTorch: FSDPState._root_post_backward_final_callback(). */
static void
root_post_backward_final_callback(void *context, fsdp_tape_t *tape)
{
    fsdp_state_t *root = context;
    fsdp_comm_ctx_t *ctx = root->comm_ctx;
    (void)tape;
    for (int i = 0; i < root->num_states; i++)
        finish_state(root->all_states[i]);
    fsdp_foreach_reduce_finish(&ctx->reduce_scatter_state);
    ctx->num_post_forward = 0;
    ctx->post_backward_final_callback_queued = false;
}

/* PyTorch: FSDPState._pre_backward(). */
static void
pre_backward(void *context, fsdp_tape_t *tape)
{
    fsdp_state_t *state = context;
    fsdp_comm_ctx_t *ctx = state->comm_ctx;
    state->training_state = FSDP_STATE_PRE_BACKWARD;
    if (!ctx->post_backward_final_callback_queued) {
        ctx->post_backward_final_callback_queued = true;
        fsdp_tape_queue_callback(tape, root_post_backward_final_callback,
                                 ctx->root);
    }
    if (state->group != NULL)
        fsdp_param_group_pre_backward(state->group);
}

/* ---- forward ------------------------------------------------------------ */

static int
module_index(const fsdp_state_t *state, const fsdp_module_t *module)
{
    int i = 0;
    while (state->modules[i] != module)
        i++;
    return i;
}

/* The first of the state's modules to run gathers for all of them.
 * PyTorch: FSDPState._pre_forward(). */
static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    fsdp_state_t *state = context;
    (void)module;
    if (state->num_to_run > 0) /* another of the list came first */
        return inputs;
    state->num_to_run = state->num_modules;
    memset(state->to_run_forward, 1, (size_t)state->num_modules);

    state->training_state = FSDP_STATE_FORWARD;
    if (state->comm_ctx == NULL)
        lazy_init(state);
    if (state->comm_ctx->iter_forward_root == NULL)
        state->comm_ctx->iter_forward_root = state;
    if (state->group == NULL)
        return inputs;
    fsdp_param_group_pre_forward(state->group);
    return fsdp_tape_after_grads(tape, inputs, post_backward, state);
}

/* The last of the state's modules to run frees.
 * PyTorch: FSDPState._post_forward(). */
static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    fsdp_state_t *state = context;
    bool *to_run = &state->to_run_forward[module_index(state, module)];
    if (*to_run) {
        *to_run = false;
        state->num_to_run--;
    }
    if (state->num_to_run > 0)
        return outputs;

    if (state->group != NULL)
        fsdp_param_group_post_forward(
            state->group, fsdp_tape_get_options(tape)->grad_enabled);
    state->training_state = FSDP_STATE_IDLE;
    for (int i = 0; i < outputs.count; i++)
        if (outputs.tensor[i]->requires_grad)
            fsdp_tape_on_grad(tape, outputs.tensor[i], pre_backward, state);
    if (state->comm_ctx->iter_forward_root == state)
        state->comm_ctx->iter_forward_root = NULL;
    return outputs;
}

/* ---- life --------------------------------------------------------------- */

static void
drop_comm_ctx(fsdp_comm_ctx_t *ctx)
{
    if (ctx == NULL || --ctx->users > 0)
        return;
    fsdp_foreach_reduce_finish(&ctx->reduce_scatter_state);
    fsdp_free(ctx->post_forward_order);
    fsdp_free(ctx);
}

/* Called once by each module of the state.  The first to go takes the group
 * with it, since its parameters go next; the last one the state. */
static void
free_context(void *context)
{
    fsdp_state_t *state = context;
    if (state->modules_alive == state->num_modules) {
        drop_comm_ctx(state->comm_ctx);
        if (state->group != NULL)
            fsdp_param_group_destroy(&state->group);
        fsdp_fault_forget();
    }
    if (--state->modules_alive > 0)
        return;
    fsdp_free(state->all_states);
    fsdp_free(state->to_run_forward);
    fsdp_free(state->modules);
    fsdp_free(state);
}

fsdp_state_t *
fsdp_state_create(fsdp_module_t *const *modules, int num_modules,
                  fsdp_param_group_t *group, const fsdp_options_t *options)
{
    fsdp_state_t *state = fsdp_calloc(FSDP_MEM_OTHER, sizeof *state);
    size_t bytes = (size_t)num_modules * sizeof *state->modules;
    state->modules = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    memcpy(state->modules, modules, bytes);
    state->num_modules = state->modules_alive = num_modules;
    state->to_run_forward = fsdp_calloc(FSDP_MEM_OTHER, (size_t)num_modules);
    state->group = group;
    state->reshard_after_forward = options->reshard_after_forward;

    fsdp_module_hooks_t hooks = {.context = state,
                                 .pre_forward = pre_forward,
                                 .post_forward = post_forward,
                                 .free_context = free_context};
    for (int i = 0; i < num_modules; i++) {
        fsdp_module_add_hooks(modules[i], &hooks);
        modules[i]->fsdp_state = state;
    }
    return state;
}
