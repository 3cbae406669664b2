#include "fsdp/zero.h"

#include <string.h>

#include "fsdp/fsdp1_init_utils.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

static const char *const names[] = {"ddp", "zero1", "zero2", "zero3"};

const char *
fsdp_zero_stage_name(fsdp_zero_stage_t stage)
{
    return names[stage];
}

bool
fsdp_zero_stage_from_name(const char *name, fsdp_zero_stage_t *stage)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *stage = (fsdp_zero_stage_t)i;
        return true;
    }
    return false;
}

static fsdp_handle_strategy_t
strategy_of(fsdp_zero_stage_t stage)
{
    switch (stage) {
    case FSDP_ZERO1:
        return FSDP_HANDLE_ZERO1;
    case FSDP_ZERO2:
        return FSDP_HANDLE_ZERO2;
    case FSDP_ZERO3:
        return FSDP_HANDLE_FULL_SHARD;
    default:
        return FSDP_HANDLE_NO_SHARD;
    }
}

/* All units of a model are of one stage (on one rank every stage is DDP). */
static fsdp_status_t
check_units(fsdp_module_t *module, fsdp_handle_strategy_t strategy)
{
    int count = 0;
    fsdp_status_t status = FSDP_OK;
    fsdp1_state_t **below = fsdp1_states_below(module, &count);
    for (int i = 0; i < count && status == FSDP_OK; i++) {
        if (below[i]->handle == NULL ||
            below[i]->handle->strategy == strategy ||
            fsdp_comm_size(below[i]->handle->comm) == 1)
            continue;
        status = fsdp_error(FSDP_ERR_USAGE,
                            "unit \"%s\" is of another stage or strategy than "
                            "\"%s\"; give all units of a model one stage",
                            below[i]->module->name, module->name);
    }
    fsdp_free(below);
    return status;
}

fsdp_status_t
fsdp_zero(fsdp_module_t *module, fsdp_zero_stage_t stage,
          const fsdp1_options_t *options)
{
    fsdp_handle_strategy_t strategy = strategy_of(stage);
    if (options != NULL &&
        fsdp_sharding_strategy_is_hybrid(options->sharding_strategy))
        return fsdp_error(FSDP_ERR_USAGE,
                          "stage %s of ZeRO with a hybrid strategy; leave the "
                          "strategy at its default",
                          fsdp_zero_stage_name(stage));
    fsdp_status_t status = fsdp1_check_options(options);
    if (status == FSDP_OK)
        status = check_units(module, strategy);
    if (status == FSDP_OK)
        status = fsdp1_auto_wrap(module, strategy, options);
    return status == FSDP_OK ? fsdp1_init_unit(module, strategy, options)
                             : status;
}

void
fsdp_zero_gather_parameters(fsdp_module_t *root)
{
    int count = 0;
    fsdp1_state_t **units = fsdp1_states_below(root, &count);
    for (int i = 0; i < count; i++)
        if (units[i]->handle != NULL &&
            fsdp_flat_param_keeps_whole(units[i]->handle))
            fsdp_flat_param_gather_updates(units[i]->handle);
    fsdp_free(units);
}
