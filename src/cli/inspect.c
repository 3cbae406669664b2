/* fsdp inspect: how a model is cut, or what a file holds. */
#include "cli/inspect.h"

static fsdp_status_t
draw(const cli_options_t *options)
{
    cli_task_t task;
    plan_config_t config;
    fsdp_status_t status = plan_config_make(options, false, &task, &config);
    if (status == FSDP_OK) {
        plan_sim_t *sim = plan_sim_open(&config);
        if (cli_speaks())
            inspect_draw(sim);
        plan_sim_close(&sim);
    }
    cli_task_close(&task);
    return status;
}

/* Opening one checks all its files, on all ranks. */
static fsdp_status_t
print_checkpoint(const char *path)
{
    fsdp_checkpoint_t *checkpoint;
    fsdp_status_t status =
        fsdp_checkpoint_open(path, fsdp_comm_world(), &checkpoint);
    if (status != FSDP_OK)
        return status;
    if (cli_speaks())
        fsdp_checkpoint_print(checkpoint, stdout);
    fsdp_checkpoint_close(&checkpoint);
    return FSDP_OK;
}

fsdp_status_t
cli_inspect(const cli_options_t *options)
{
    fsdp_status_t status = FSDP_OK;
    if (options->file == NULL)
        status = draw(options);
    else if (fsdp_checkpoint_exists(options->file))
        status = print_checkpoint(options->file);
    else if (cli_speaks())
        status = inspect_file(options->file);
    return fsdp_comm_agree(fsdp_comm_world(), status);
}
