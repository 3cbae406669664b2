#include "fsdp/activation_checkpoint.h"

static fsdp_values_t
run_again(void *context, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_module_t *module = context;
    return module->recomputed(module, tape, inputs);
}

static fsdp_values_t
checkpointed_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                     fsdp_values_t inputs)
{
    return fsdp_tape_checkpoint(tape, run_again, self, inputs);
}

fsdp_status_t
fsdp_checkpoint_wrapper(fsdp_module_t *module)
{
    if (module->recomputed != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "module \"%s\" has an activation checkpoint "
                          "already; wrap each module once",
                          module->name);
    module->recomputed = module->forward;
    module->forward = checkpointed_forward;
    return FSDP_OK;
}
