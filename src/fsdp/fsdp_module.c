/* PyTorch: class FSDPModule of _fully_shard.py. */
#include "fsdp/fsdp_module.h"

#include <math.h>
#include <string.h>

#include "fsdp/fsdp_module_internal.h"
#include "fsdp/memory.h"

/* ---- finding the groups -------------------------------------------------- */

static fsdp_status_t
check_sharded(const fsdp_module_t *module)
{
    if (module->fsdp_state != NULL)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "module \"%s\" was not given to fully_shard",
                      module->name);
}

static bool
some_sharded_below(const fsdp_module_t *module)
{
    bool some = module->fsdp_state != NULL;
    for (int i = 0; i < module->num_children && !some; i++)
        some = some_sharded_below(module->child[i]);
    return some;
}

static void
visit(fsdp_module_t *module, bool recurse, fsdp_group_fn_t fn, void *value)
{
    fsdp_state_t *state = module->fsdp_state;
    for (int g = 0; state != NULL && g < state->num_groups; g++)
        fn(state->groups[g], value);
    for (int i = 0; recurse && i < module->num_children; i++)
        visit(module->child[i], true, fn, value);
}

/* Tells the groups of the module (and of those below it) something. */
fsdp_status_t
fsdp_tell_groups(fsdp_module_t *module, bool recurse, fsdp_group_fn_t fn,
                 void *value)
{
    if (!recurse || !some_sharded_below(module)) {
        fsdp_status_t status = check_sharded(module);
        if (status != FSDP_OK)
            return status;
    }
    visit(module, recurse, fn, value);
    return FSDP_OK;
}

/* ---- switches ------------------------------------------------------------ */

static void
set_reduce_grads(fsdp_param_group_t *group, void *value)
{
    group->reduce_grads = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_requires_gradient_sync(fsdp_module_t *module,
                                       bool requires_sync, bool recurse)
{
    return fsdp_tell_groups(module, recurse, set_reduce_grads, &requires_sync);
}

static void
set_all_reduce_grads(fsdp_param_group_t *group, void *value)
{
    group->all_reduce_grads = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_requires_all_reduce(fsdp_module_t *module,
                                    bool requires_all_reduce, bool recurse)
{
    return fsdp_tell_groups(module, recurse, set_all_reduce_grads,
                            &requires_all_reduce);
}

static void
set_reshard_after_backward(fsdp_param_group_t *group, void *value)
{
    group->reshard_after_backward = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_reshard_after_backward(fsdp_module_t *module, bool on,
                                       bool recurse)
{
    return fsdp_tell_groups(module, recurse, set_reshard_after_backward, &on);
}

static void
set_unused(fsdp_param_group_t *group, void *value)
{
    group->reduce_scatter_unused_params = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_reduce_scatter_unused_params(fsdp_module_t *module, bool enable,
                                             bool recurse)
{
    return fsdp_tell_groups(module, recurse, set_unused, &enable);
}

static void
set_unshard_in_backward(fsdp_param_group_t *group, void *value)
{
    group->unshard_in_backward = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_unshard_in_backward(fsdp_module_t *module, bool unshard)
{
    return fsdp_tell_groups(module, false, set_unshard_in_backward, &unshard);
}

static void
set_force_sum(fsdp_param_group_t *group, void *value)
{
    group->force_sum = *(bool *)value;
}

fsdp_status_t
fsdp_module_set_force_sum_reduction_for_comms(fsdp_module_t *module, bool force)
{
    return fsdp_tell_groups(module, false, set_force_sum, &force);
}

static void
set_divide_factor(fsdp_param_group_t *group, void *value)
{
    group->gradient_divide_factor = *(double *)value;
}

fsdp_status_t
fsdp_module_set_gradient_divide_factor(fsdp_module_t *module, double factor)
{
    if (!(factor > 0.0) || isinf(factor))
        return fsdp_error(FSDP_ERR_USAGE,
                          "a gradient divide factor of %g; it must be "
                          "positive",
                          factor);
    return fsdp_tell_groups(module, false, set_divide_factor, &factor);
}

static void
set_custom(fsdp_param_group_t *group, void *value)
{
    group->custom = *(const fsdp_custom_comm_t *)value;
}

fsdp_status_t
fsdp_module_set_custom_comm(fsdp_module_t *module,
                            const fsdp_custom_comm_t *comm)
{
    fsdp_custom_comm_t copy =
        comm != NULL ? *comm : (fsdp_custom_comm_t){.context = NULL};
    return fsdp_tell_groups(module, false, set_custom, &copy);
}

typedef struct hook {
    void (*fn)(void *context, fsdp_dtype_t dtype, void *output, size_t numel);
    void *context;
} hook_t;

static void
set_hook(fsdp_param_group_t *group, void *value)
{
    const hook_t *hook = value;
    group->all_reduce_hook = hook->fn;
    group->hook_context = hook->context;
}

fsdp_status_t
fsdp_module_set_all_reduce_hook(fsdp_module_t *module,
                                void (*hook)(void *context, fsdp_dtype_t dtype,
                                             void *output, size_t numel),
                                void *context)
{
    hook_t value = {hook, context};
    return fsdp_tell_groups(module, false, set_hook, &value);
}

/* ---- settings of states -------------------------------------------------- */

static void
set_reshard(fsdp_module_t *module, bool on, bool recurse)
{
    fsdp_state_t *state = module->fsdp_state;
    int k = on ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
    if (state != NULL)
        state->reshard_after_forward = k; /* for lazy init, if it is to come */
    for (int g = 0; state != NULL && g < state->num_groups; g++)
        fsdp_param_group_set_reshard_after_forward(state->groups[g], k);
    for (int i = 0; recurse && i < module->num_children; i++)
        set_reshard(module->child[i], on, true);
}

fsdp_status_t
fsdp_module_set_reshard_after_forward(fsdp_module_t *module, bool on,
                                      bool recurse)
{
    fsdp_status_t status = FSDP_OK;
    if (!recurse || !some_sharded_below(module))
        status = check_sharded(module);
    if (status == FSDP_OK)
        set_reshard(module, on, recurse);
    return status;
}

fsdp_status_t
fsdp_module_set_is_last_backward(fsdp_module_t *module, bool is_last_backward)
{
    fsdp_status_t status = check_sharded(module);
    if (status != FSDP_OK)
        return status;
    fsdp_state_t *state = module->fsdp_state;
    state->is_last_backward = is_last_backward; /* for lazy init */
    if (state->comm_ctx != NULL)
        state->comm_ctx->is_last_backward = is_last_backward;
    return FSDP_OK;
}

static fsdp_status_t
set_prefetch(fsdp_module_t *module, fsdp_state_list_t *list,
             fsdp_module_t *const *modules, int num_modules)
{
    for (int i = 0; i < num_modules; i++)
        if (modules[i]->fsdp_state == NULL)
            return check_sharded(modules[i]);
    (void)module;
    fsdp_free(list->state);
    list->count = num_modules;
    list->state =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)num_modules * sizeof *list->state);
    for (int i = 0; i < num_modules; i++)
        list->state[i] = modules[i]->fsdp_state;
    return FSDP_OK;
}

fsdp_status_t
fsdp_module_set_modules_to_forward_prefetch(fsdp_module_t *module,
                                            fsdp_module_t *const *modules,
                                            int num_modules)
{
    fsdp_status_t status = check_sharded(module);
    return status == FSDP_OK
               ? set_prefetch(module, &module->fsdp_state->forward_prefetch,
                              modules, num_modules)
               : status;
}

fsdp_status_t
fsdp_module_set_modules_to_backward_prefetch(fsdp_module_t *module,
                                             fsdp_module_t *const *modules,
                                             int num_modules)
{
    fsdp_status_t status = check_sharded(module);
    return status == FSDP_OK
               ? set_prefetch(module, &module->fsdp_state->backward_prefetch,
                              modules, num_modules)
               : status;
}

fsdp_status_t
fsdp_module_reset_iter_state(fsdp_module_t *module)
{
    fsdp_status_t status = check_sharded(module);
    if (status != FSDP_OK)
        return status;
    const fsdp_comm_ctx_t *ctx = module->fsdp_state->comm_ctx;
    if (ctx != NULL && ctx->root != module->fsdp_state)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp_module_reset_iter_state: module \"%s\" is not "
                          "the root; call it on \"%s\"",
                          module->name, ctx->root->modules[0]->name);
    if (ctx != NULL)
        fsdp_state_reset_iter(module->fsdp_state);
    return FSDP_OK;
}
