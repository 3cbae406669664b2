#include "cli/llama.h"

#include <string.h>

/* ---- from options ------------------------------------------------------- */

/* What only a file can tell. */
static fsdp_status_t
read_constants(const fsdp_safetensors_t *file, const char *path,
               fsdp_llama_config_t *c)
{
    const char *scaling = fsdp_safetensors_metadata(file, "rope_scaling");
    if (scaling != NULL && strcmp(scaling, "null") != 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its rope_scaling is %s, but only null is known; "
                          "use a model with unscaled rotary embeddings",
                          path, scaling);
    cli_metadata_positive(file, "rope_theta", &c->rope_theta);
    cli_metadata_positive(file, "rms_norm_eps", &c->rms_norm_eps);
    return FSDP_OK;
}

static fsdp_status_t
read_init(const cli_options_t *o, fsdp_llama_config_t *c)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(o->init, &file);
    if (status != FSDP_OK)
        return status;
    status = cli_metadata_check_option(file, o->init, "num_attention_heads",
                                       "heads", o->heads);
    if (status == FSDP_OK)
        status = cli_metadata_check_option(
            file, o->init, "num_key_value_heads", "kv-heads",
            o->kv_heads > 0 ? o->kv_heads : o->heads);
    if (status == FSDP_OK)
        status = read_constants(file, o->init, c);
    fsdp_safetensors_close(&file);
    return status;
}

static fsdp_status_t
check_heads(const cli_options_t *o)
{
    long times = o->width / o->heads;
    if (o->width % o->heads != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--heads %ld does not divide --width %ld; give "
                          "--width %ld",
                          o->heads, o->width, (times + 1) * o->heads);
    if (times % 2 != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--heads %ld of --width %ld leave an odd width of "
                          "%ld to a head, and rotary embeddings turn pairs; "
                          "give --width %ld",
                          o->heads, o->width, times, (times + 1) * o->heads);
    if (o->kv_heads > 0 && o->heads % o->kv_heads != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--kv-heads %ld does not divide --heads %ld; give a "
                          "divisor of it, 1 for instance",
                          o->kv_heads, o->heads);
    return FSDP_OK;
}

fsdp_status_t
cli_llama_settle(const cli_options_t *o, fsdp_dtype_t dtype,
                 fsdp_llama_config_t *c)
{
    fsdp_status_t status = check_heads(o);
    if (status != FSDP_OK)
        return status;
    *c = fsdp_llama_config_default();
    c->num_hidden_layers = (size_t)o->layers;
    c->num_attention_heads = (size_t)o->heads;
    c->num_key_value_heads = (size_t)o->kv_heads;
    c->hidden_size = (size_t)o->width;
    c->intermediate_size = (size_t)o->intermediate_size;
    c->max_position_embeddings = (size_t)o->context;
    c->vocab_size = (size_t)o->vocab_size;
    c->attention_dropout = o->dropout;
    c->tie_word_embeddings = o->tied;
    c->dtype = dtype;
    c->seed = (uint64_t)o->seed;
    if (o->init != NULL)
        status = read_init(o, c);
    *c = fsdp_llama_config_complete(c);
    return status;
}

/* ---- to a file ---------------------------------------------------------- */

static const char *
word(bool value)
{
    return value ? "true" : "false";
}

void
cli_llama_metadata(const fsdp_llama_config_t *c, cli_metadata_t *m)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"vocab_size", (double)c->vocab_size},
        {"hidden_size", (double)c->hidden_size},
        {"intermediate_size", (double)c->intermediate_size},
        {"num_hidden_layers", (double)c->num_hidden_layers},
        {"num_attention_heads", (double)c->num_attention_heads},
        {"num_key_value_heads", (double)c->num_key_value_heads},
        {"head_dim", (double)c->head_dim},
        {"max_position_embeddings", (double)c->max_position_embeddings},
        {"rms_norm_eps", c->rms_norm_eps},
        {"rope_theta", c->rope_theta},
    };
    cli_metadata_text(m, "model_type", "llama");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cli_metadata_number(m, numbers[i].key, numbers[i].value);
    cli_metadata_text(m, "rope_scaling", "null");
    cli_metadata_text(m, "tie_word_embeddings", word(c->tie_word_embeddings));
    cli_metadata_text(m, "attention_bias", word(c->attention_bias));
    cli_metadata_text(m, "mlp_bias", word(c->mlp_bias));
    cli_metadata_text(m, "hidden_act", "silu");
}

/* ---- from a file -------------------------------------------------------- */

/* Has the file a tensor [rows, columns] of this name? */
static bool
has(const fsdp_safetensors_t *file, const char *name, size_t rows,
    size_t columns)
{
    const fsdp_safetensors_entry_t *e = fsdp_safetensors_find(file, name);
    return e != NULL && e->ndim == 2 && e->shape[0] == rows &&
           e->shape[1] == columns;
}

/* Sizes that the file itself does not bear out are refused before anything of
 * that size is made. */
static fsdp_status_t
check_sizes(const fsdp_safetensors_t *file, const char *path,
            const fsdp_llama_config_t *c)
{
    char *fault = fsdp_llama_config_fault(c);
    bool good =
        fault == NULL && c->vocab_size >= 256 &&
        c->num_hidden_layers <= fsdp_safetensors_count(file) &&
        has(file, "model.embed_tokens.weight", c->vocab_size, c->hidden_size) &&
        has(file, "model.layers.0.self_attn.q_proj.weight",
            c->num_attention_heads * c->head_dim, c->hidden_size) &&
        has(file, "model.layers.0.self_attn.k_proj.weight",
            c->num_key_value_heads * c->head_dim, c->hidden_size) &&
        has(file, "model.layers.0.mlp.gate_proj.weight", c->intermediate_size,
            c->hidden_size);
    fsdp_free(fault);
    return good ? FSDP_OK
                : fsdp_error(FSDP_ERR_INPUT,
                             "%s: its metadata and its tensors do not agree; "
                             "use a file that fsdp train --save wrote",
                             path);
}

/* The type, the biases and the head show in the tensors. */
static void
look_at_tensors(const fsdp_safetensors_t *file, fsdp_llama_config_t *c)
{
    const fsdp_safetensors_entry_t *tokens =
        fsdp_safetensors_find(file, "model.embed_tokens.weight");
    bool fp64 = tokens != NULL && tokens->dtype == FSDP_FP64;
    c->dtype = fp64 ? FSDP_FP64 : FSDP_FP32;
    c->tie_word_embeddings =
        fsdp_safetensors_find(file, "lm_head.weight") == NULL;
    c->attention_bias =
        fsdp_safetensors_find(file, "model.layers.0.self_attn.q_proj.bias");
    c->mlp_bias =
        fsdp_safetensors_find(file, "model.layers.0.mlp.gate_proj.bias");
}

fsdp_status_t
cli_llama_read(const fsdp_safetensors_t *file, const char *path,
               fsdp_llama_config_t *c)
{
    *c = fsdp_llama_config_default();
    const struct {
        const char *key;
        size_t *value;
    } sizes[] = {{"vocab_size", &c->vocab_size},
                 {"hidden_size", &c->hidden_size},
                 {"intermediate_size", &c->intermediate_size},
                 {"num_hidden_layers", &c->num_hidden_layers},
                 {"num_attention_heads", &c->num_attention_heads},
                 {"num_key_value_heads", &c->num_key_value_heads},
                 {"head_dim", &c->head_dim},
                 {"max_position_embeddings", &c->max_position_embeddings}};
    fsdp_status_t status = read_constants(file, path, c);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == FSDP_OK;
         i++)
        status = cli_metadata_size(file, path, sizes[i].key, sizes[i].value);
    if (status == FSDP_OK)
        status = check_sizes(file, path, c);
    look_at_tensors(file, c);
    return status;
}
