#include "cli/model_folder.h"

#include <string.h>

#include "cli/plan.h"

/* Far more than any model has. */
enum { MAX_LAYERS = 10000 };

/* ---- --model FOLDER ------------------------------------------------------ */

static fsdp_status_t
check_given(const cli_options_t *o)
{
    static const char *const settled[] = {
        "layers",     "heads",  "kv-heads", "width", "intermediate-size",
        "vocab-size", "untied", "tied",     "init"};
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (cli_is_given(o, settled[i]))
            return fsdp_error(FSDP_ERR_USAGE,
                              "--%s and --model %s: the folder settles that; "
                              "leave --%s out",
                              settled[i], o->model_folder, settled[i]);
    return FSDP_OK;
}

static void
fill_gpt2(cli_options_t *o, const fsdp_gpt2_config_t *c)
{
    o->model = CLI_GPT2;
    o->layers = (long)c->n_layer;
    o->heads = (long)c->n_head;
    o->width = (long)c->n_embd;
    o->vocab_size = (long)c->vocab_size;
    o->untied = !c->tie_word_embeddings;
}

static void
fill_llama(cli_options_t *o, const fsdp_llama_config_t *c)
{
    o->model = CLI_LLAMA;
    o->layers = (long)c->num_hidden_layers;
    o->heads = (long)c->num_attention_heads;
    o->kv_heads = (long)c->num_key_value_heads;
    o->width = (long)c->hidden_size;
    o->intermediate_size = (long)c->intermediate_size;
    o->vocab_size = (long)c->vocab_size;
    o->tied = c->tie_word_embeddings;
}

static fsdp_status_t
fill_context(cli_options_t *o, size_t positions)
{
    if (!cli_is_given(o, "context") && (size_t)o->context > positions)
        o->context = (long)positions;
    if ((size_t)o->context <= positions)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "--context %ld: the model of %s has %zu positions; give "
                      "no more",
                      o->context, o->model_folder, positions);
}

/* One probability for all places is what the options know. */
static fsdp_status_t
fill_dropout(cli_options_t *o, const fsdp_hf_config_t *c)
{
    const fsdp_gpt2_config_t *g = &c->gpt2;
    if (cli_is_given(o, "dropout"))
        return FSDP_OK;
    o->dropout =
        c->model == FSDP_HF_GPT2 ? g->resid_pdrop : c->llama.attention_dropout;
    if (c->model != FSDP_HF_GPT2 ||
        (g->embd_pdrop == g->resid_pdrop && g->attn_pdrop == g->resid_pdrop))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "--model %s: its resid_pdrop, embd_pdrop and attn_pdrop "
                      "differ; give --dropout for all three",
                      o->model_folder);
}

fsdp_status_t
cli_folder_fill(cli_options_t *o)
{
    fsdp_hf_config_t config;
    fsdp_status_t status = fsdp_hf_folder_read_config(o->model_folder, &config);
    if (status == FSDP_OK)
        status = check_given(o);
    if (status != FSDP_OK)
        return status;
    o->init = o->model_folder;
    if (config.gpt2.n_layer > MAX_LAYERS ||
        config.llama.num_hidden_layers > MAX_LAYERS)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its config.json wants more than %d layers",
                          o->model_folder, MAX_LAYERS);
    if (config.model == FSDP_HF_GPT2)
        fill_gpt2(o, &config.gpt2);
    else
        fill_llama(o, &config.llama);
    status = fill_context(o, config.model == FSDP_HF_GPT2
                                 ? config.gpt2.n_positions
                                 : config.llama.max_position_embeddings);
    return status == FSDP_OK ? fill_dropout(o, &config) : status;
}

fsdp_status_t
cli_folder_settle(const cli_options_t *o, fsdp_hf_config_t *config)
{
    fsdp_status_t status = fsdp_hf_folder_read_config(o->model_folder, config);
    if (status != FSDP_OK)
        return status;
    config->gpt2.dtype = config->llama.dtype =
        o->dtype == 1 ? FSDP_FP64 : FSDP_FP32;
    config->gpt2.seed = config->llama.seed = (uint64_t)o->seed;
    config->gpt2.resid_pdrop = config->gpt2.embd_pdrop =
        config->gpt2.attn_pdrop = config->llama.attention_dropout = o->dropout;
    return FSDP_OK;
}

/* ---- --save FOLDER/ ------------------------------------------------------ */

bool
cli_is_save_folder(const char *path)
{
    size_t length = strlen(path);
    return path[length - 1] == '/' || fsdp_weights_is_folder(path);
}

static fsdp_status_t
shard_size(const cli_options_t *o, uint64_t *bytes)
{
    int64_t size;
    fsdp_status_t status =
        plan_parse_size("max-shard-size", o->max_shard_size, &size);
    *bytes = status == FSDP_OK ? (uint64_t)size : 0;
    return status;
}

fsdp_status_t
cli_folder_check_save(const cli_options_t *o)
{
    uint64_t bytes;
    bool folder = o->save != NULL && cli_is_save_folder(o->save);
    fsdp_status_t status = shard_size(o, &bytes);
    if (!folder &&
        (cli_is_given(o, "max-shard-size") || cli_is_given(o, "save-dtype")))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--max-shard-size and --save-dtype have a meaning "
                          "with a folder only; give --save FOLDER/, or leave "
                          "them out");
    if (status != FSDP_OK || !folder)
        return status;
    if (o->model == CLI_MLP)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--save %s: a folder holds a gpt2 or llama; give the "
                          "name of a file",
                          o->save);
    return cli_speaks() ? fsdp_hf_folder_check(o->save) : FSDP_OK;
}

fsdp_status_t
cli_folder_open_original(const cli_options_t *o, fsdp_weights_t **weights)
{
    fsdp_hf_config_t config;
    *weights = NULL;
    if (o->model_folder == NULL)
        return FSDP_OK;
    fsdp_status_t status = fsdp_weights_open(o->model_folder, weights);
    if (status == FSDP_OK)
        status = fsdp_hf_folder_read_config(o->model_folder, &config);
    if (status == FSDP_OK)
        status = fsdp_hf_folder_check_sizes(o->model_folder, *weights, &config);
    return status;
}

fsdp_status_t
cli_folder_save(const cli_task_t *task, const fsdp_weights_t *original,
                fsdp_module_t *model, fsdp_comm_t *comm)
{
    const cli_options_t *o = task->options;
    cli_metadata_t metadata;
    fsdp_hf_config_t config = {.model = o->model == CLI_LLAMA ? FSDP_HF_LLAMA
                                                              : FSDP_HF_GPT2,
                               .gpt2 = task->gpt2,
                               .llama = task->llama,
                               .stored = task->dtype};
    cli_task_metadata(task, &metadata);
    fsdp_hf_saving_t saving = {.config = &config,
                               .from = o->model_folder,
                               .like = original,
                               .tokenizer = o->tokenizer,
                               .dtype = cli_type(o->save_dtype),
                               .metadata =
                                   (const char *const(*)[2])metadata.pair,
                               .num_metadata = metadata.count};
    if (saving.dtype != FSDP_DTYPE_NONE)
        config.stored = saving.dtype;
    fsdp_status_t status = shard_size(o, &saving.max_shard_size);
    return status == FSDP_OK
               ? fsdp_hf_folder_save(model, comm, o->save, &saving)
               : status;
}
