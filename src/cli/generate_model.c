/* The model that `fsdp generate` reads, from a file or a folder. */

#include <string.h>

#include "checkpoint/hf_folder.h"
#include "cli/generate.h"
#include "cli/llama.h"
#include "cli/metadata.h"
#include "cli/task.h"

static fsdp_status_t
get_dtype(const fsdp_safetensors_t *file, const char *path,
          fsdp_gpt2_config_t *config)
{
    const char *tied = fsdp_safetensors_metadata(file, "tie_word_embeddings");
    const fsdp_safetensors_entry_t *wte =
        fsdp_safetensors_find(file, "transformer.wte.weight");
    if (wte == NULL)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s has no transformer.wte.weight: it holds no GPT-2",
                          path);
    config->tie_word_embeddings = tied == NULL || strcmp(tied, "true") == 0;
    config->dtype = wte->dtype == FSDP_FP64 ? FSDP_FP64 : FSDP_FP32;
    return FSDP_OK;
}

/* Sizes that the file itself does not bear out are refused before anything of
 * that size is made. */
static fsdp_status_t
check_sizes(const fsdp_safetensors_t *file, const char *path,
            const fsdp_gpt2_config_t *c)
{
    const fsdp_safetensors_entry_t *wte =
        fsdp_safetensors_find(file, "transformer.wte.weight");
    const fsdp_safetensors_entry_t *wpe =
        fsdp_safetensors_find(file, "transformer.wpe.weight");
    if (wte->ndim != 2 || wte->shape[0] != c->vocab_size ||
        wte->shape[1] != c->n_embd || wpe == NULL || wpe->ndim != 2 ||
        wpe->shape[0] != c->n_positions || wpe->shape[1] != c->n_embd ||
        c->n_layer > fsdp_safetensors_count(file) ||
        c->n_embd % c->n_head != 0 || c->vocab_size < 256)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its metadata and its tensors do not agree; use "
                          "a file that fsdp train --save wrote",
                          path);
    return FSDP_OK;
}

static fsdp_status_t
read_experts(const fsdp_safetensors_t *file, const char *path,
             fsdp_gpt2_config_t *config)
{
    size_t *n = &config->n_experts, *k = &config->n_experts_per_tok;
    fsdp_status_t status =
        cli_metadata_size(file, path, "num_local_experts", n);
    if (status == FSDP_OK)
        status = cli_metadata_size(file, path, "num_experts_per_tok", k);
    const fsdp_safetensors_entry_t *w1 =
        fsdp_safetensors_find(file, "transformer.h.0.mlp.experts.w1");
    if (status == FSDP_OK &&
        (w1 == NULL || w1->ndim != 3 || w1->shape[0] != *n || *k > *n))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its metadata and its tensors do not agree on "
                          "the experts; use a file that fsdp train --save "
                          "wrote",
                          path);
    return status;
}

static fsdp_status_t
read_gpt2(const fsdp_safetensors_t *file, const char *path,
          fsdp_gpt2_config_t *config)
{
    fsdp_status_t status = FSDP_OK;
    *config = fsdp_gpt2_config_default();
    const struct {
        const char *key;
        size_t *value;
    } sizes[] = {{"n_layer", &config->n_layer},
                 {"n_head", &config->n_head},
                 {"n_embd", &config->n_embd},
                 {"vocab_size", &config->vocab_size},
                 {"n_positions", &config->n_positions}};
    for (size_t i = 0; i < 5 && status == FSDP_OK; i++)
        status = cli_metadata_size(file, path, sizes[i].key, sizes[i].value);
    if (status == FSDP_OK)
        status = get_dtype(file, path, config);
    if (status == FSDP_OK)
        status = check_sizes(file, path, config);
    cli_metadata_positive(file, "layer_norm_epsilon",
                          &config->layer_norm_epsilon);
    if (status == FSDP_OK &&
        fsdp_safetensors_metadata(file, "num_local_experts") != NULL)
        status = read_experts(file, path, config);
    return status;
}

static fsdp_status_t
read_file(const char *path, language_t *language)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(path, &file);
    if (status != FSDP_OK)
        return status;
    const char *type = fsdp_safetensors_metadata(file, "model_type");
    language->is_llama = type != NULL && strcmp(type, "llama") == 0;
    status = language->is_llama ? cli_llama_read(file, path, &language->llama)
                                : read_gpt2(file, path, &language->gpt2);
    fsdp_safetensors_close(&file);
    return status;
}

static fsdp_status_t
read_folder(const char *path, language_t *language)
{
    fsdp_hf_config_t config;
    fsdp_weights_t *weights = NULL;
    fsdp_status_t status = fsdp_hf_folder_read_config(path, &config);
    if (status == FSDP_OK)
        status = fsdp_weights_open(path, &weights);
    if (status == FSDP_OK)
        status = fsdp_hf_folder_check_sizes(path, weights, &config);
    fsdp_weights_close(&weights);
    language->is_llama = config.model == FSDP_HF_LLAMA;
    language->gpt2 = config.gpt2;
    language->llama = config.llama;
    if (config.stored == FSDP_FP64)
        language->gpt2.dtype = language->llama.dtype = FSDP_FP64;
    return status;
}

static size_t
vocab_of(const language_t *language)
{
    return language->is_llama ? language->llama.vocab_size
                              : language->gpt2.vocab_size;
}

/* How many tokens there are, and the model knows all of them. */
size_t
language_tokens(const language_t *language)
{
    return language->tokenizer != NULL
               ? fsdp_tokenizer_size(language->tokenizer)
               : 256;
}

fsdp_status_t
language_read(const cli_options_t *o, language_t *language)
{
    char *path = cli_tokenizer_path(o);
    fsdp_status_t status = fsdp_weights_is_folder(o->model_file)
                               ? read_folder(o->model_file, language)
                               : read_file(o->model_file, language);
    if (status == FSDP_OK && path != NULL)
        status = fsdp_tokenizer_open(path, &language->tokenizer);
    fsdp_free(path);
    if (status != FSDP_OK || language_tokens(language) <= vocab_of(language))
        return status;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--model %s has a vocabulary of %zu, %s; give the "
                      "--tokenizer that it was trained with",
                      o->model_file, vocab_of(language),
                      path != NULL ? "the tokenizer more"
                                   : "fewer than there are bytes");
}

fsdp_module_t *
language_create(const language_t *language)
{
    return language->is_llama ? fsdp_llama_create(&language->llama)
                              : fsdp_gpt2_create(&language->gpt2);
}

size_t
language_positions(const language_t *language)
{
    return language->is_llama ? language->llama.max_position_embeddings
                              : language->gpt2.n_positions;
}
