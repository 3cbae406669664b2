/* What several commands need. */

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

bool
cli_speaks(void)
{
    return fsdp_comm_rank(fsdp_comm_world()) == 0;
}

void
cli_choose_threads(long asked)
{
    int cores = fsdp_cpu_count();
    int ranks = fsdp_comm_size(fsdp_comm_world());
    const char *env = getenv("OMP_NUM_THREADS");
    long threads = asked;
    if (threads == 0 && env != NULL)
        threads = strtol(env, NULL, 10);
    if (threads < 1)
        threads = cores > ranks ? cores / ranks : 1;
    fsdp_set_num_threads((int)threads);
    if (cli_speaks() && threads > 1 && threads * ranks > cores)
        fprintf(stderr,
                "fsdp: warning: %d ranks of %ld threads on %d cores; "
                "--threads %d would be faster\n",
                ranks, threads, cores, cores > ranks ? cores / ranks : 1);
}

/* The module's unit, and its divide factor. */
static fsdp_status_t
shard_unit(fsdp_module_t *module, const fsdp_options_t *options, double divide)
{
    fsdp_status_t status = fully_shard(module, options);
    if (status == FSDP_OK && divide > 0)
        status = fsdp_module_set_gradient_divide_factor(module, divide);
    return status;
}

fsdp_status_t
cli_shard(fsdp_module_t *model, const fsdp_options_t *options, double divide)
{
    bool gpt2 = strcmp(model->kind, "GPT2LMHeadModel") == 0;
    int units = gpt2 ? (int)fsdp_gpt2_get_config(model)->n_layer
                     : fsdp_mlp_num_layers(model);
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < units && status == FSDP_OK; i++)
        status = shard_unit(gpt2 ? fsdp_gpt2_block(model, i)
                                 : fsdp_mlp_layer(model, i),
                            options, divide);
    return status == FSDP_OK ? shard_unit(model, options, divide) : status;
}
