/* Units of FSDP1, and the stages of ZeRO. */

#include "cli/cli.h"

bool
cli_is_fsdp1(const cli_options_t *options)
{
    return options->api == CLI_FSDP1 || options->strategy > 0;
}

static fsdp1_options_t
unit_options(const cli_options_t *options, fsdp_mesh_t *mesh, double divide)
{
    fsdp1_options_t unit = fsdp1_options_default();
    unit.mesh = mesh;
    unit.sharding_strategy =
        (fsdp_sharding_strategy_t)options->sharding_strategy;
    unit.backward_prefetch =
        (fsdp_backward_prefetch_t)options->backward_prefetch_policy;
    unit.mixed_precision.param_dtype = cli_type(options->param_dtype);
    unit.mixed_precision.reduce_dtype = cli_type(options->reduce_dtype);
    unit.mixed_precision.cast_root_forward_inputs =
        !options->no_cast_forward_inputs;
    unit.gradient_divide_factor = divide;
    unit.reduce_order = (fsdp_reduce_order_t)options->reduce_order;
    return unit;
}

static fsdp_status_t
make_unit(fsdp_module_t *module, const cli_options_t *options,
          const fsdp1_options_t *unit)
{
    if (options->strategy > 0)
        return fsdp_zero(module, (fsdp_zero_stage_t)(options->strategy - 1),
                         unit);
    return fsdp_fully_sharded_data_parallel(module, unit);
}

fsdp_status_t
cli_shard1(fsdp_module_t *model, const cli_options_t *options,
           fsdp_mesh_t *mesh, double divide)
{
    fsdp1_options_t unit = unit_options(options, mesh, divide);
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; cli_unit(model, i) != NULL && status == FSDP_OK; i++)
        status = make_unit(cli_unit(model, i), options, &unit);
    for (int i = 0; cli_unit(model, i + 1) != NULL && status == FSDP_OK; i++)
        if (options->activation_checkpointing)
            status = fsdp_checkpoint_wrapper(cli_unit(model, i));
    return status;
}
