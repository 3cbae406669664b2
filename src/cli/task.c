#include "cli/task.h"

#include <stdlib.h>

#include "cli/llama.h"
#include "cli/model_folder.h"
#include "verify/trace/source.h"

/* The number of heads, or of experts for a token, shows in no shape: only the
 * metadata can tell. */
static fsdp_status_t
check_init(const cli_options_t *o)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(o->init, &file);
    if (status != FSDP_OK)
        return status;
    status =
        cli_metadata_check_option(file, o->init, "n_head", "heads", o->heads);
    if (status == FSDP_OK && o->experts > 0)
        status = cli_metadata_check_option(file, o->init, "num_experts_per_tok",
                                           "experts-per-token",
                                           o->experts_per_token);
    fsdp_safetensors_close(&file);
    return status;
}

static fsdp_status_t
settle_gpt2(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    if (o->width % o->heads != 0)
        return fsdp_error(
            FSDP_ERR_USAGE,
            "--heads %ld does not divide --width %ld; give --width "
            "%ld",
            o->heads, o->width, (o->width / o->heads + 1) * o->heads);
    task->gpt2 = fsdp_gpt2_config_default();
    task->gpt2.n_layer = (size_t)o->layers;
    task->gpt2.n_head = (size_t)o->heads;
    task->gpt2.n_embd = (size_t)o->width;
    task->gpt2.n_positions = (size_t)o->context;
    task->gpt2.vocab_size = (size_t)o->vocab_size;
    task->gpt2.resid_pdrop = o->dropout;
    task->gpt2.embd_pdrop = o->dropout;
    task->gpt2.attn_pdrop = o->dropout;
    task->gpt2.tie_word_embeddings = !o->untied;
    task->gpt2.n_experts = (size_t)o->experts;
    task->gpt2.n_experts_per_tok = (size_t)o->experts_per_token;
    task->gpt2.router_aux_loss_coef = o->router_aux_loss;
    task->gpt2.dtype = task->dtype;
    task->gpt2.seed = (uint64_t)o->seed;
    return o->init != NULL ? check_init(o) : FSDP_OK;
}

static fsdp_status_t
settle_folder(cli_task_t *task)
{
    fsdp_hf_config_t config;
    fsdp_status_t status = cli_folder_settle(task->options, &config);
    task->gpt2 = config.gpt2;
    task->llama = config.llama;
    return status;
}

static fsdp_status_t
settle_text(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    fsdp_status_t status = o->model_folder != NULL ? settle_folder(task)
                           : o->model == CLI_LLAMA
                               ? cli_llama_settle(o, task->dtype, &task->llama)
                               : settle_gpt2(task);
    if (status != FSDP_OK || o->data == NULL)
        return status;
    return cli_open_text_data(task);
}

/* "64,32" between the features and the classes of the data. */
static fsdp_status_t
settle_widths(cli_task_t *task)
{
    const char *text = task->options->hidden;
    fsdp_mlp_config_t *mlp = &task->mlp;
    mlp->width[0] = fsdp_dataset_features(task->data);
    for (const char *at = text;;) {
        char *end;
        long width = strtol(at, &end, 10);
        if (end == at || width < 1 || width > 1000000 ||
            (*end != '\0' && *end != ',') ||
            mlp->num_layers + 2 > FSDP_MLP_MAX_LAYERS)
            return fsdp_error(FSDP_ERR_USAGE,
                              "--hidden %s: widths separated by commas are "
                              "needed, for instance 64,32",
                              text);
        mlp->width[++mlp->num_layers] = (size_t)width;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    mlp->width[++mlp->num_layers] = fsdp_dataset_classes(task->data);
    return FSDP_OK;
}

static fsdp_status_t
settle_mlp(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    fsdp_status_t status = cli_open_table_data(task);
    task->mlp.dtype = task->dtype;
    task->mlp.seed = (uint64_t)o->seed;
    return status == FSDP_OK ? settle_widths(task) : status;
}

fsdp_status_t
cli_task_open_shape(cli_task_t *task, const cli_options_t *options)
{
    *task = (cli_task_t){.options = options,
                         .dtype = options->dtype == 1 ? FSDP_FP64 : FSDP_FP32};
    if (options->model != CLI_MLP)
        return settle_text(task);
    if (options->data == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--data FILE is needed: a perceptron has as many "
                          "inputs as the table has columns, and as many "
                          "outputs as it has classes");
    return settle_mlp(task);
}

/* The model of a trace. */
static fsdp_status_t
settle_source(cli_task_t *task)
{
    const trace_source_t *source = task->source;
    task->dtype = source->dtype;
    task->gpt2 = source->model.gpt2;
    task->llama = source->model.llama;
    task->mlp = source->model.mlp;
    task->gpt2.resid_pdrop = task->gpt2.embd_pdrop = task->gpt2.attn_pdrop =
        task->llama.attention_dropout = task->options->dropout;
    return FSDP_OK;
}

fsdp_status_t
cli_task_open(cli_task_t *task, const cli_options_t *options,
              const struct trace_source *source)
{
    *task = (cli_task_t){.options = options, .source = source};
    if (source != NULL)
        return settle_source(task);
    if (options->data == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--data FILE is needed: a text for gpt2 or llama, "
                          "a CSV file for mlp");
    return cli_task_open_shape(task, options);
}

void
cli_task_close(cli_task_t *task)
{
    fsdp_dataset_close(&task->data);
}

fsdp_module_t *
cli_task_model(const cli_task_t *task)
{
    switch (task->options->model) {
    case CLI_GPT2:
        return fsdp_gpt2_create(&task->gpt2);
    case CLI_LLAMA:
        return fsdp_llama_create(&task->llama);
    default:
        return fsdp_mlp_create(&task->mlp);
    }
}
