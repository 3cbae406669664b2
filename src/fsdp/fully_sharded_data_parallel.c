#include "fsdp/fully_sharded_data_parallel.h"

#include <string.h>

#include "fsdp/fsdp1_init_utils.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

/* ---- names --------------------------------------------------------------- */

static const char *const strategy_names[] = {"FULL_SHARD", "SHARD_GRAD_OP",
                                             "NO_SHARD", "HYBRID_SHARD",
                                             "_HYBRID_SHARD_ZERO2"};

const char *
fsdp_sharding_strategy_name(fsdp_sharding_strategy_t strategy)
{
    return strategy_names[strategy];
}

bool
fsdp_sharding_strategy_from_name(const char *name,
                                 fsdp_sharding_strategy_t *strategy)
{
    for (int i = 0; i < 5; i++) {
        const char *known = strategy_names[i];
        if (strcmp(name, known) != 0 &&
            (known[0] != '_' || strcmp(name, known + 1) != 0))
            continue;
        *strategy = (fsdp_sharding_strategy_t)i;
        return true;
    }
    return false;
}

bool
fsdp_sharding_strategy_is_hybrid(fsdp_sharding_strategy_t strategy)
{
    return strategy == FSDP_HYBRID_SHARD || strategy == FSDP_HYBRID_SHARD_ZERO2;
}

static const char *const prefetch_names[] = {"BACKWARD_PRE", "BACKWARD_POST",
                                             "NONE"};

const char *
fsdp_backward_prefetch_name(fsdp_backward_prefetch_t prefetch)
{
    return prefetch_names[prefetch];
}

bool
fsdp_backward_prefetch_from_name(const char *name,
                                 fsdp_backward_prefetch_t *prefetch)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, prefetch_names[i]) != 0)
            continue;
        *prefetch = (fsdp_backward_prefetch_t)i;
        return true;
    }
    return false;
}

/* ---- wrapping ------------------------------------------------------------ */

fsdp1_options_t
fsdp1_options_default(void)
{
    return (fsdp1_options_t){
        .sharding_strategy = FSDP_FULL_SHARD,
        .backward_prefetch = FSDP_BACKWARD_PRE,
        .mixed_precision = {.cast_root_forward_inputs = true},
        .limit_all_gathers = true,
        .reduce_order = FSDP_ORDER_TREE,
    };
}

fsdp_status_t
fsdp_fully_sharded_data_parallel(fsdp_module_t *module,
                                 const fsdp1_options_t *options)
{
    fsdp_status_t status = fsdp1_check_options(options);
    if (status != FSDP_OK)
        return status;
    fsdp_handle_strategy_t strategy =
        fsdp1_handle_strategy(options->sharding_strategy);
    status = fsdp1_auto_wrap(module, strategy, options);
    return status == FSDP_OK ? fsdp1_init_unit(module, strategy, options)
                             : status;
}

bool
fsdp1_is_wrapped(const fsdp_module_t *module)
{
    return fsdp1_state_of(module) != NULL;
}

fsdp_sharding_strategy_t
fsdp1_strategy(const fsdp_module_t *module)
{
    const fsdp1_state_t *state = fsdp1_state_of(module);
    FSDP_CHECK(state != NULL, "module \"%s\" is no unit of FSDP1",
               module->name);
    switch (state->strategy) {
    case FSDP_HANDLE_FULL_SHARD:
        return FSDP_FULL_SHARD;
    case FSDP_HANDLE_NO_SHARD:
        return FSDP_NO_SHARD;
    case FSDP_HANDLE_HYBRID_SHARD:
        return FSDP_HYBRID_SHARD;
    case FSDP_HANDLE_HYBRID_SHARD_ZERO2:
        return FSDP_HYBRID_SHARD_ZERO2;
    default: /* ZeRO-1 and 2 too: whole from forward to backward */
        return FSDP_SHARD_GRAD_OP;
    }
}

/* PyTorch: no_sync(). */
fsdp_status_t
fsdp1_set_requires_gradient_sync(fsdp_module_t *root, bool requires_sync)
{
    fsdp1_state_t *state = fsdp1_state_of(root);
    if (state == NULL)
        return fsdp_error(FSDP_ERR_USAGE, "FSDP1: module \"%s\" is not wrapped",
                          root->name);
    fsdp1_lazy_init(state);
    if (state->shared->root != state)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: no_sync on the inner unit \"%s\"; set it on "
                          "the root \"%s\"",
                          root->name, state->shared->root->module->name);
    if (state->training_state != FSDP1_IDLE)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: no_sync set inside a forward or backward, or "
                          "while parameters are summoned");
    state->shared->sync_gradients = requires_sync;
    return FSDP_OK;
}
