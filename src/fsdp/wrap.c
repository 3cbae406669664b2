/* PyTorch: torch/distributed/fsdp/wrap.py and _wrap_utils.py. */
#include "fsdp/wrap.h"

#include <string.h>

#include "fsdp/fsdp1_init_utils.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

/* ---- policies ------------------------------------------------------------ */

fsdp_wrap_policy_t
fsdp_size_based_auto_wrap_policy(size_t min_num_params)
{
    return (fsdp_wrap_policy_t){
        .kind = FSDP_WRAP_SIZE_BASED,
        .min_num_params = min_num_params > 0 ? min_num_params : 100000000};
}

fsdp_wrap_policy_t
fsdp_module_wrap_policy(const char *const *module_kinds, int num_module_kinds)
{
    return (fsdp_wrap_policy_t){.kind = FSDP_WRAP_MODULE,
                                .module_kinds = module_kinds,
                                .num_module_kinds = num_module_kinds};
}

fsdp_wrap_policy_t
fsdp_transformer_auto_wrap_policy(const char *const *module_kinds,
                                  int num_module_kinds)
{
    return fsdp_module_wrap_policy(module_kinds, num_module_kinds);
}

fsdp_wrap_policy_t
fsdp_lambda_auto_wrap_policy(bool (*fn)(void *context, fsdp_module_t *module),
                             void *context)
{
    return (fsdp_wrap_policy_t){
        .kind = FSDP_WRAP_LAMBDA, .lambda_fn = fn, .context = context};
}

fsdp_wrap_policy_t
fsdp_always_wrap_policy(void)
{
    return (fsdp_wrap_policy_t){.kind = FSDP_WRAP_ALWAYS};
}

fsdp_wrap_policy_t
fsdp_custom_policy(bool (*fn)(void *context, fsdp_module_t *module,
                              struct fsdp1_options *options),
                   void *context)
{
    return (fsdp_wrap_policy_t){
        .kind = FSDP_WRAP_CUSTOM, .custom_fn = fn, .context = context};
}

/* ---- applying one -------------------------------------------------------- */

typedef struct wrapping {
    const fsdp1_options_t *options;
    fsdp_handle_strategy_t strategy;
    fsdp_status_t status;
} wrapping_t;

static bool
is_kind(const fsdp_module_t *module, const char *const *kinds, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(module->kind, kinds[i]) == 0)
            return true;
    return false;
}

static const char *const excluded[] = {"ModuleList", "ModuleDict"};
static const char *const leaves[] = {"MultiheadAttention"};

/* The policy's word on one module, of whose elements `numel` are in no unit;
 * it may change the options. */
static bool
is_to_be_wrapped(const fsdp_wrap_policy_t *policy, fsdp_module_t *module,
                 size_t numel, fsdp1_options_t *options)
{
    switch (policy->kind) {
    case FSDP_WRAP_SIZE_BASED:
        return numel >= policy->min_num_params && !is_kind(module, excluded, 2);
    case FSDP_WRAP_MODULE:
        return is_kind(module, policy->module_kinds, policy->num_module_kinds);
    case FSDP_WRAP_LAMBDA:
        return policy->lambda_fn(policy->context, module);
    case FSDP_WRAP_CUSTOM:
        return policy->custom_fn(policy->context, module, options);
    default:
        return policy->kind == FSDP_WRAP_ALWAYS;
    }
}

static void
wrap_module(wrapping_t *w, fsdp_module_t *module, size_t numel)
{
    fsdp1_options_t options = *w->options;
    if (!is_to_be_wrapped(&w->options->auto_wrap_policy, module, numel,
                          &options))
        return;
    fsdp_handle_strategy_t strategy = w->strategy;
    if (options.sharding_strategy != w->options->sharding_strategy)
        strategy = fsdp1_handle_strategy(options.sharding_strategy);
    options.auto_wrap_policy = (fsdp_wrap_policy_t){0};
    w->status = fsdp1_check_options(&options);
    if (w->status == FSDP_OK)
        w->status = fsdp1_init_unit(module, strategy, &options);
}

/* Elements below the module that are not ignored. */
static size_t
numel_of(fsdp_module_t *module, const fsdp1_options_t *options)
{
    size_t count = fsdp_module_parameters(module, NULL, 0), numel = 0;
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_OTHER, (count + 1) * sizeof *list);
    fsdp_module_parameters(module, list, count);
    for (size_t i = 0; i < count; i++)
        if (!fsdp1_is_ignored(options, list[i]))
            numel += fsdp_parameter_numel(list[i]);
    fsdp_free(list);
    return numel;
}

/* Children first; returns how many elements are in units now.  Whether to look
 * into a module is a question of its own (`recurse` in PyTorch), which only the
 * size-based policy may answer with no.  PyTorch: _recursive_wrap(),
 * _post_order_apply(). */
static size_t
wrap_below(wrapping_t *w, fsdp_module_t *module, bool is_root)
{
    const fsdp_wrap_policy_t *policy = &w->options->auto_wrap_policy;
    size_t numel = numel_of(module, w->options), wrapped = 0;
    if (policy->kind == FSDP_WRAP_SIZE_BASED &&
        (numel < policy->min_num_params || is_kind(module, leaves, 1)))
        return 0;
    for (int i = 0; i < module->num_children && w->status == FSDP_OK; i++)
        wrapped += wrap_below(w, module->child[i], false);
    if (is_root || w->status != FSDP_OK)
        return wrapped;
    wrap_module(w, module, numel - wrapped);
    return fsdp1_is_wrapped(module) ? numel : wrapped;
}

fsdp_status_t
fsdp1_auto_wrap(fsdp_module_t *root, fsdp_handle_strategy_t strategy,
                const fsdp1_options_t *options)
{
    wrapping_t w = {options, strategy, FSDP_OK};
    if (options->auto_wrap_policy.kind == FSDP_WRAP_NONE)
        return FSDP_OK;
    int count = 0;
    fsdp1_state_t **below = fsdp1_states_below(root, &count);
    const char *name = count > 0 ? below[0]->module->name : NULL;
    fsdp_free(below);
    if (count > 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: a policy is applied to modules that are not "
                          "wrapped, but \"%s\" is",
                          name);
    wrap_below(&w, root, true);
    return w.status;
}

/* ---- enable_wrap() ------------------------------------------------------- */

static fsdp1_options_t enabled_options;
static bool enabled;

fsdp_status_t
fsdp_enable_wrap(const struct fsdp1_options *options)
{
    if (enabled)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp_enable_wrap() inside another; end that first "
                          "with fsdp_disable_wrap()");
    enabled_options = *options;
    enabled = true;
    return FSDP_OK;
}

void
fsdp_disable_wrap(void)
{
    enabled = false;
}

fsdp_status_t
fsdp_wrap(fsdp_module_t *module, const struct fsdp1_options *override)
{
    if (!enabled)
        return FSDP_OK;
    return fsdp_fully_sharded_data_parallel(
        module, override != NULL ? override : &enabled_options);
}
