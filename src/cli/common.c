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

static bool
is_a(const fsdp_module_t *model, const char *kind)
{
    return strcmp(model->kind, kind) == 0;
}

static int
count_units(const fsdp_module_t *model)
{
    if (is_a(model, "GPT2LMHeadModel"))
        return (int)fsdp_gpt2_get_config(model)->n_layer;
    if (is_a(model, "LlamaForCausalLM"))
        return (int)fsdp_llama_get_config(model)->num_hidden_layers;
    return fsdp_mlp_num_layers(model);
}

static fsdp_module_t *
unit(fsdp_module_t *model, int i)
{
    if (is_a(model, "GPT2LMHeadModel"))
        return fsdp_gpt2_block(model, i);
    if (is_a(model, "LlamaForCausalLM"))
        return fsdp_llama_block(model, i);
    return fsdp_mlp_layer(model, i);
}

fsdp_status_t
cli_shard(fsdp_module_t *model, const fsdp_options_t *options, double divide)
{
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < count_units(model) && status == FSDP_OK; i++)
        status = shard_unit(unit(model, i), options, divide);
    return status == FSDP_OK ? shard_unit(model, options, divide) : status;
}
