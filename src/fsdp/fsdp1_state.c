/* PyTorch: torch/distributed/fsdp/_common_utils.py, _FSDPState, and the lazy
 * init of _runtime_utils.py. */
#include "fsdp/fsdp1_state.h"

#include "fsdp/memory.h"
#include "fsdp/status.h"

static void free_context(void *context);

fsdp1_state_t *
fsdp1_state_of(const fsdp_module_t *module)
{
    for (int i = 0; i < module->num_hooks; i++)
        if (module->hooks[i].free_context == free_context)
            return module->hooks[i].context;
    return NULL;
}

fsdp1_state_t **
fsdp1_states_below(fsdp_module_t *module, int *count)
{
    size_t num_modules = fsdp_module_modules(module, NULL, 0);
    fsdp_module_t **modules =
        fsdp_alloc(FSDP_MEM_OTHER, num_modules * sizeof *modules);
    fsdp1_state_t **states =
        fsdp_alloc(FSDP_MEM_OTHER, num_modules * sizeof *states);
    fsdp_module_modules(module, modules, num_modules);
    *count = 0;
    for (size_t i = 0; i < num_modules; i++) {
        states[*count] = fsdp1_state_of(modules[i]);
        if (states[*count] != NULL)
            (*count)++;
    }
    fsdp_free(modules);
    return states;
}

/* PyTorch: _lazy_init(), _share_state_and_init_handle_attrs(). */
void
fsdp1_lazy_init(fsdp1_state_t *state)
{
    if (state->shared != NULL)
        return;
    fsdp1_shared_t *shared = fsdp_calloc(FSDP_MEM_OTHER, sizeof *shared);
    shared->root = state;
    shared->sync_gradients = true;
    state->all_states = fsdp1_states_below(state->module, &state->num_states);
    for (int i = 0; i < state->num_states; i++) {
        fsdp1_state_t *below = state->all_states[i];
        FSDP_CHECK(below->shared == NULL,
                   "unit \"%s\" ran before the root unit \"%s\": run a wrapped "
                   "model through its root first",
                   below->module->name, state->module->name);
        below->shared = shared;
        shared->users++;
    }
    fsdp_exec_order_init(&shared->exec_order_data, state);
}

/* ---- life ---------------------------------------------------------------- */

static void
drop_shared(fsdp1_shared_t *shared)
{
    if (shared == NULL)
        return;
    fsdp1_reduce_grad_finish(shared);
    if (--shared->users > 0)
        return;
    fsdp_exec_order_destroy(&shared->exec_order_data);
    fsdp_free(shared->in_flight.handle);
    fsdp_free(shared);
}

static void
free_context(void *context)
{
    fsdp1_state_t *state = context;
    drop_shared(state->shared);
    if (state->summoned_copy)
        fsdp_free(state->summoned);
    if (state->handle != NULL)
        fsdp_flat_param_handle_destroy(&state->handle);
    fsdp_free(state->all_states);
    fsdp_free(state);
}

fsdp1_state_t *
fsdp1_state_create(fsdp_module_t *module, const fsdp1_options_t *options,
                   fsdp_handle_strategy_t strategy,
                   fsdp_flat_param_handle_t *handle)
{
    fsdp1_state_t *state = fsdp_calloc(FSDP_MEM_OTHER, sizeof *state);
    state->module = module;
    state->options = *options;
    state->strategy = strategy;
    state->handle = handle;
    if (handle != NULL)
        handle->state = state;
    fsdp_module_hooks_t hooks = fsdp1_runtime_hooks(state);
    hooks.free_context = free_context;
    fsdp_module_add_hooks(module, &hooks);
    return state;
}
