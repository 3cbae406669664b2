/* A state comes to life with fully_shard(), learns who its root is when the first
 * forward runs, and goes with its modules. */
#include <string.h>

#include "fsdp/fsdp_faults.h"
#include "fsdp/fsdp_state.h"
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

/* The root does not reshard after its forward, unless that was asked for: its
 * parameters are needed again at once. */
static void
init_group(fsdp_param_group_t *group, const fsdp_state_t *state,
           const fsdp_state_t *root, fsdp_comm_ctx_t *ctx)
{
    int reshard = state->reshard_after_forward;
    group->comm_ctx = ctx;
    if (reshard == FSDP_RESHARD_AUTO)
        reshard = state == root ? FSDP_RESHARD_FALSE : FSDP_RESHARD_TRUE;
    fsdp_param_group_set_reshard_after_forward(group, reshard);
    fsdp_param_group_lazy_init(group);
}

static void
init_shared_state(fsdp_state_t *root)
{
    fsdp_comm_ctx_t *ctx = fsdp_calloc(FSDP_MEM_OTHER, sizeof *ctx);
    ctx->root = root;
    ctx->is_last_backward = root->is_last_backward;
    for (int i = 0; i < root->num_states; i++) {
        fsdp_state_t *state = root->all_states[i];
        FSDP_CHECK(state->comm_ctx == NULL,
                   "module \"%s\" ran before the root module \"%s\": run a "
                   "sharded model through its root first",
                   state->modules[0]->name, root->modules[0]->name);
        state->comm_ctx = ctx;
        ctx->users++;
        for (int g = 0; g < state->num_groups; g++)
            init_group(state->groups[g], state, root, ctx);
    }
}

/* PyTorch: FSDPState._lazy_init(). */
void
fsdp_state_lazy_init(fsdp_state_t *state)
{
    if (state->comm_ctx != NULL)
        return;
    FSDP_CHECK(state->num_modules == 1,
               "the root of a sharded model is a list of %d modules (\"%s\", "
               "...); give their common parent to fully_shard as well",
               state->num_modules, state->modules[0]->name);
    size_t num_modules = fsdp_module_modules(state->modules[0], NULL, 0);
    state->all_states =
        fsdp_alloc(FSDP_MEM_OTHER, num_modules * sizeof *state->all_states);
    collect_states(state->modules[0], state);
    init_shared_state(state);
}

/* ---- life --------------------------------------------------------------- */

static void
drop_comm_ctx(fsdp_comm_ctx_t *ctx)
{
    if (ctx == NULL || --ctx->users > 0)
        return;
    fsdp_foreach_reduce_discard(&ctx->reduce_scatter_state);
    fsdp_free(ctx->post_forward_order);
    fsdp_free(ctx);
}

/* Called once by each module of the state.  The first to go takes the groups
 * with it, since their parameters go next; the last one the state. */
static void
free_context(void *context)
{
    fsdp_state_t *state = context;
    if (state->modules_alive == state->num_modules) {
        drop_comm_ctx(state->comm_ctx);
        for (int g = 0; g < state->num_groups; g++)
            fsdp_param_group_destroy(&state->groups[g]);
        fsdp_fault_forget();
    }
    if (--state->modules_alive > 0)
        return;
    fsdp_free(state->groups);
    fsdp_free(state->all_states);
    fsdp_free(state->forward_prefetch.state);
    fsdp_free(state->backward_prefetch.state);
    fsdp_free(state->to_run_forward);
    fsdp_free(state->modules);
    fsdp_free(state);
}

fsdp_state_t *
fsdp_state_create(fsdp_module_t *const *modules, int num_modules,
                  fsdp_param_group_t **groups, int num_groups,
                  const fsdp_options_t *options)
{
    fsdp_state_t *state = fsdp_calloc(FSDP_MEM_OTHER, sizeof *state);
    size_t bytes = (size_t)num_modules * sizeof *state->modules;
    state->modules = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    memcpy(state->modules, modules, bytes);
    state->num_modules = state->modules_alive = num_modules;
    state->to_run_forward = fsdp_calloc(FSDP_MEM_OTHER, (size_t)num_modules);
    state->groups = groups;
    state->num_groups = num_groups;
    for (int g = 0; g < num_groups; g++) {
        groups[g]->state = state;
        groups[g]->index = g;
        groups[g]->num_groups = num_groups;
    }
    state->reshard_after_forward = options->reshard_after_forward;
    state->mp_policy = options->mp_policy;
    state->is_last_backward = true;

    fsdp_state_hook(state, free_context);
    return state;
}
