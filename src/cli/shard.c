/* From options to a mesh and to units. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

fsdp_dtype_t
cli_type(int choice)
{
    static const fsdp_dtype_t types[] = {FSDP_DTYPE_NONE, FSDP_FP32, FSDP_FP64,
                                         FSDP_BF16, FSDP_FP16};
    return types[choice];
}

/* ---- the mesh --------------------------------------------------------------- */

/* A number from 1 on at *at, which moves behind it; 0: there is none. */
static int
read_size(const char **at)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    errno = 0;
    long size = strtol(*at, &end, 10);
    *at = end;
    return errno == 0 && size <= 1000000 ? (int)size : 0;
}

fsdp_status_t
cli_mesh_shape(const cli_options_t *options, int ranks, int *replicas,
               int *shards)
{
    const char *at = options->mesh;
    *replicas = 1;
    *shards = ranks;
    if (at == NULL)
        return FSDP_OK;
    *shards = read_size(&at);
    if (*at == 'x') {
        at++;
        *replicas = *shards;
        *shards = read_size(&at);
    }
    if (*at != '\0' || *shards == 0 || *replicas == 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--mesh %s: give replicas x shards, 2x%d for "
                          "instance, or the number of ranks",
                          options->mesh, ranks > 1 ? ranks / 2 : 1);
    if ((long)*replicas * *shards != ranks)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--mesh %s is for %ld ranks, but %d run; start as "
                          "many, or give --mesh %d",
                          options->mesh, (long)*replicas * *shards, ranks,
                          ranks);
    return FSDP_OK;
}

static bool
has_replicas(const cli_options_t *options)
{
    return options->mesh != NULL && strchr(options->mesh, 'x') != NULL;
}

static const char *const dims[] = {"replicate", "shard", "tp"};

fsdp_mesh_t *
cli_make_mesh(const cli_options_t *options)
{
    int size[3] = {1, 1, (int)options->tp};
    int ranks = fsdp_comm_size(fsdp_comm_world()) / size[2];
    int skipped = has_replicas(options) ? 0 : 1;
    if (cli_mesh_shape(options, ranks, &size[0], &size[1]) != FSDP_OK)
        return NULL;
    return fsdp_mesh_create(3 - skipped - (options->tp == 1), size + skipped,
                            dims + skipped);
}

fsdp_mesh_t *
cli_data_mesh(const cli_options_t *options, fsdp_mesh_t *mesh)
{
    int skipped = has_replicas(options) ? 0 : 1;
    return options->tp == 1
               ? mesh
               : fsdp_mesh_slice(mesh, 2 - skipped, dims + skipped);
}

static const char *const expert_dims[] = {"replicate", "shard", "expert"};

fsdp_mesh_t *
cli_make_expert_mesh(const cli_options_t *options)
{
    int size[3], shared = (int)options->expert_parallel;
    int ranks = fsdp_comm_size(fsdp_comm_world());
    int skipped = has_replicas(options) ? 0 : 1;
    if (shared == 1 ||
        cli_mesh_shape(options, ranks, &size[0], &size[1]) != FSDP_OK)
        return NULL;
    size[1] /= shared;
    size[2] = shared;
    return fsdp_mesh_create(3 - skipped, size + skipped, expert_dims + skipped);
}

fsdp_mesh_t *
cli_expert_data_mesh(const cli_options_t *options, fsdp_mesh_t *mesh)
{
    int skipped = has_replicas(options) ? 0 : 1;
    return mesh == NULL
               ? NULL
               : fsdp_mesh_slice(mesh, 2 - skipped, expert_dims + skipped);
}

fsdp_status_t
cli_parallelize(fsdp_module_t *model, const cli_options_t *options,
                fsdp_comm_t *comm)
{
    fsdp_tensor_parallel_t tp = {
        .degree = (int)options->tp,
        .comm = comm,
        .reduce_order = (fsdp_reduce_order_t)options->reduce_order,
    };
    if (options->tp == 1)
        return FSDP_OK;
    switch (options->model) {
    case CLI_GPT2:
        return fsdp_tensor_parallel_gpt2(model, &tp);
    case CLI_LLAMA:
        return fsdp_tensor_parallel_llama(model, &tp);
    default:
        return fsdp_tensor_parallel_mlp(model, &tp);
    }
}

/* ---- settings of units ------------------------------------------------------- */

fsdp_mixed_precision_policy_t
cli_mp_policy(const cli_options_t *options)
{
    return (fsdp_mixed_precision_policy_t){
        .param_dtype = cli_type(options->param_dtype),
        .reduce_dtype = cli_type(options->reduce_dtype),
        .output_dtype = cli_type(options->output_dtype),
        .cast_forward_inputs = !options->no_cast_forward_inputs,
    };
}

double
cli_divide_factor(const cli_options_t *options, int ranks, int micros)
{
    if (options->divide_factor == NULL)
        return (double)micros * ranks;
    return strtod(options->divide_factor, NULL); /* "default": 0 */
}

static int
reshard_setting(const char *text)
{
    if (strcmp(text, "true") == 0)
        return FSDP_RESHARD_TRUE;
    if (strcmp(text, "false") == 0)
        return FSDP_RESHARD_FALSE;
    return strcmp(text, "auto") == 0 ? FSDP_RESHARD_AUTO
                                     : (int)strtol(text, NULL, 10);
}

/* The largest dimension among the first and those that can be cut evenly. */
static fsdp_shard_placement_t
largest_dim(void *context, const fsdp_parameter_t *parameter)
{
    fsdp_mesh_t *mesh = context;
    size_t shards = (size_t)fsdp_comm_size(fsdp_mesh_shard_comm(mesh));
    fsdp_shard_placement_t placement = {0};
    for (int d = 1; d < parameter->ndim; d++)
        if (parameter->shape[d] > parameter->shape[placement.dim] &&
            parameter->shape[d] % shards == 0)
            placement.dim = d;
    return placement;
}

static fsdp_options_t
unit_options(const cli_options_t *options, fsdp_mesh_t *mesh)
{
    fsdp_options_t unit = fsdp_options_default();
    unit.mesh = mesh;
    unit.reshard_after_forward = reshard_setting(options->reshard);
    unit.reduce_order = (fsdp_reduce_order_t)options->reduce_order;
    unit.averaging = (fsdp_averaging_t)options->averaging;
    unit.mp_policy = cli_mp_policy(options);
    unit.offload_policy.directory = options->offload;
    if (options->shard_placement == CLI_SHARD_LARGEST) {
        unit.shard_placement_fn = largest_dim;
        unit.placement_context = mesh;
    }
    return unit;
}

/* ---- units --------------------------------------------------------------------- */

static int
count_blocks(const fsdp_module_t *model)
{
    if (strcmp(model->kind, "GPT2LMHeadModel") == 0)
        return (int)fsdp_gpt2_get_config(model)->n_layer;
    if (strcmp(model->kind, "LlamaForCausalLM") == 0)
        return (int)fsdp_llama_get_config(model)->num_hidden_layers;
    return fsdp_mlp_num_layers(model);
}

fsdp_module_t *
cli_unit(fsdp_module_t *model, int i)
{
    int blocks = count_blocks(model);
    if (i == blocks)
        return model;
    if (i < 0 || i > blocks)
        return NULL;
    if (strcmp(model->kind, "GPT2LMHeadModel") == 0)
        return fsdp_gpt2_block(model, i);
    if (strcmp(model->kind, "LlamaForCausalLM") == 0)
        return fsdp_llama_block(model, i);
    return fsdp_mlp_layer(model, i);
}

/* What the model returns is the root's output; its units hand on what the next
 * one computes with. */
static fsdp_status_t
make_unit(fsdp_module_t *module, const cli_options_t *o, fsdp_options_t unit,
          double divide, bool is_root)
{
    if (!is_root)
        unit.mp_policy.output_dtype = FSDP_DTYPE_NONE;
    fsdp_status_t status = fully_shard(module, &unit);
    if (status == FSDP_OK && divide > 0)
        status = fsdp_module_set_gradient_divide_factor(module, divide);
    if (status == FSDP_OK && o->force_sum)
        status = fsdp_module_set_force_sum_reduction_for_comms(module, true);
    return status;
}

/* The experts of each block, over the ranks that have the same ones.  What comes
 * of theirs is a sum over all the ranks that sent them rows, so the mean is over
 * all ranks too. */
static fsdp_status_t
make_experts(fsdp_module_t *model, const cli_options_t *o, fsdp_mesh_t *mesh,
             double divide)
{
    fsdp_options_t unit = unit_options(o, mesh);
    fsdp_status_t status = FSDP_OK;
    if (divide == 0)
        divide = fsdp_comm_size(fsdp_comm_world());
    for (int i = 0; i < count_blocks(model) && status == FSDP_OK; i++)
        status = make_unit(fsdp_gpt2_experts(model, i), o, unit, divide, false);
    return status;
}

/* The n units after unit i in the forward, of which the root is the first, or
 * in the backward, whose order is the other way round. */
static fsdp_status_t
set_prefetch(fsdp_module_t *model, int i, long n, bool forward)
{
    enum { MOST = 1000 };
    fsdp_module_t *list[MOST];
    int blocks = count_blocks(model), count = 0;
    for (long k = 1; k <= n && count < MOST; k++) {
        long next = forward ? (i == blocks ? -1 : i) + k : i - k;
        if (next >= 0 && next < blocks)
            list[count++] = cli_unit(model, (int)next);
    }
    return forward ? fsdp_module_set_modules_to_forward_prefetch(
                         cli_unit(model, i), list, count)
                   : fsdp_module_set_modules_to_backward_prefetch(
                         cli_unit(model, i), list, count);
}

static fsdp_status_t
set_up_unit(fsdp_module_t *model, int i, const cli_options_t *o)
{
    fsdp_status_t status = FSDP_OK;
    if (o->activation_checkpointing && cli_unit(model, i) != model)
        status = fsdp_checkpoint_wrapper(cli_unit(model, i));
    if (status == FSDP_OK && o->forward_prefetch >= 0)
        status = set_prefetch(model, i, o->forward_prefetch, true);
    if (status == FSDP_OK && o->backward_prefetch >= 0)
        status = set_prefetch(model, i, o->backward_prefetch, false);
    return status;
}

fsdp_status_t
cli_shard(fsdp_module_t *model, const cli_options_t *options, fsdp_mesh_t *mesh,
          fsdp_mesh_t *experts, double divide)
{
    fsdp_options_t unit = unit_options(options, mesh);
    fsdp_status_t status = FSDP_OK;
    if (cli_is_fsdp1(options))
        return cli_shard1(model, options, mesh, divide);
    if (experts != NULL)
        status = make_experts(model, options, experts, divide);
    for (int i = 0; cli_unit(model, i) != NULL && status == FSDP_OK; i++)
        status = make_unit(cli_unit(model, i), options, unit, divide,
                           cli_unit(model, i) == model);
    for (int i = 0; cli_unit(model, i) != NULL && status == FSDP_OK; i++)
        status = set_up_unit(model, i, options);
    return status;
}

/* ---- synchronisation ----------------------------------------------------------- */

fsdp_status_t
cli_choose_sync(fsdp_module_t *model, const cli_options_t *options, int j,
                int m)
{
    bool last = j == m - 1;
    switch (options->gradient_sync) {
    case FSDP_SYNC_LAST:
        return cli_is_fsdp1(options)
                   ? fsdp1_set_requires_gradient_sync(model, last)
                   : fsdp_module_set_requires_gradient_sync(model, last, true);
    case FSDP_SYNC_LAST_ALL_REDUCE:
        return fsdp_module_set_requires_all_reduce(model, last, true);
    default:
        return FSDP_OK;
    }
}
