#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/hf_folder.h"
#include "cli/llama.h"
#include "cli/metadata.h"
#include "cli/task.h"

/* ---- the model of a file ------------------------------------------------ */

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

/* A model of text; tokenizer NULL: tokens are bytes. */
typedef struct language {
    bool is_llama;
    fsdp_tokenizer_t *tokenizer;
    fsdp_gpt2_config_t gpt2;
    fsdp_llama_config_t llama;
} language_t;

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
static size_t
tokens_of(const language_t *language)
{
    return language->tokenizer != NULL
               ? fsdp_tokenizer_size(language->tokenizer)
               : 256;
}

static fsdp_status_t
read_language(const cli_options_t *o, language_t *language)
{
    char *path = cli_tokenizer_path(o);
    fsdp_status_t status = fsdp_weights_is_folder(o->model_file)
                               ? read_folder(o->model_file, language)
                               : read_file(o->model_file, language);
    if (status == FSDP_OK && path != NULL)
        status = fsdp_tokenizer_open(path, &language->tokenizer);
    fsdp_free(path);
    if (status != FSDP_OK || tokens_of(language) <= vocab_of(language))
        return status;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--model %s has a vocabulary of %zu, %s; give the "
                      "--tokenizer that it was trained with",
                      o->model_file, vocab_of(language),
                      path != NULL ? "the tokenizer more"
                                   : "fewer than there are bytes");
}

static fsdp_module_t *
create(const language_t *language)
{
    return language->is_llama ? fsdp_llama_create(&language->llama)
                              : fsdp_gpt2_create(&language->gpt2);
}

static size_t
positions_of(const language_t *language)
{
    return language->is_llama ? language->llama.max_position_embeddings
                              : language->gpt2.n_positions;
}

/* ---- sampling ----------------------------------------------------------- */

static int
likeliest(const double *logit, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logit[i] > logit[best])
            best = i;
    return best;
}

/* One draw from softmax(logit / temperature), in double. */
static int
sample(double *logit, int n, double temperature, uint64_t seed, long number)
{
    int best = likeliest(logit, n);
    if (temperature == 0)
        return best;
    double top = logit[best], total = 0;
    for (int i = 0; i < n; i++)
        total += logit[i] = exp((logit[i] - top) / temperature);
    double at =
        total * fsdp_random_uniform(fsdp_random_word(seed, FSDP_RANDOM_SAMPLING,
                                                     0, 0, (uint64_t)number));
    for (int i = 0; i < n; i++) {
        at -= logit[i];
        if (at < 0)
            return i;
    }
    return best;
}

/* Logits of what follows the last `count` tokens. */
static void
run_model(fsdp_module_t *model, const int32_t *tokens, size_t count,
          size_t choices, double *logit)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.grad_enabled = options.training = false;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 2, (size_t[]){1, count});
    memcpy(x->data, tokens, count * sizeof *tokens);
    fsdp_tensor_t *y = fsdp_module_call1(model, tape, x);
    for (size_t i = 0; i < choices; i++)
        logit[i] = fsdp_tensor_get(y, i);
    fsdp_tape_destroy(&tape);
}

static void
say(const char *text, size_t length)
{
    if (!cli_speaks())
        return;
    fwrite(text, 1, length, stdout);
    fflush(stdout);
}

static void
say_token(const language_t *language, int32_t token)
{
    size_t length;
    if (language->tokenizer == NULL) {
        say((char[]){(char)token}, 1);
        return;
    }
    const char *bytes =
        fsdp_tokenizer_bytes(language->tokenizer, token, &length);
    say(bytes != NULL ? bytes : "", length);
}

/* The tokens of the prompt, with room for those that follow.  A newline is the
 * plainest beginning. */
static fsdp_status_t
begin_text(const language_t *language, const cli_options_t *o, int32_t **token,
           size_t *count)
{
    const char *prompt = o->prompt[0] != '\0' ? o->prompt : "\n";
    size_t length = strlen(prompt);
    int32_t *given = NULL;
    fsdp_status_t status = FSDP_OK;
    *count = length;
    if (language->tokenizer != NULL)
        status = fsdp_tokenizer_encode(language->tokenizer, prompt, length,
                                       true, &given, count, NULL);
    if (status != FSDP_OK)
        return status;
    size_t most = *count + (size_t)o->tokens;
    *token = fsdp_alloc(FSDP_MEM_OTHER, most * sizeof **token);
    for (size_t i = 0; i < *count; i++)
        (*token)[i] = given != NULL ? given[i] : (unsigned char)prompt[i];
    fsdp_free(given);
    say(prompt, length);
    return FSDP_OK;
}

/* The text grows; the model sees the last `positions` tokens of it. */
static fsdp_status_t
write_text(fsdp_module_t *model, const language_t *language,
           const cli_options_t *o)
{
    size_t length, positions = positions_of(language);
    size_t choices = tokens_of(language);
    int32_t *token;
    fsdp_status_t status = begin_text(language, o, &token, &length);
    if (status != FSDP_OK)
        return status;
    double *logit = fsdp_alloc(FSDP_MEM_OTHER, choices * sizeof *logit);
    for (long n = 0; n < o->tokens; n++) {
        size_t seen = length < positions ? length : positions;
        run_model(model, token + length - seen, seen, choices, logit);
        token[length] =
            sample(logit, (int)choices, o->temperature, (uint64_t)o->seed, n);
        say_token(language, token[length]);
        length++;
    }
    say("\n", 1);
    fsdp_free(logit);
    fsdp_free(token);
    return FSDP_OK;
}

fsdp_status_t
cli_generate(const cli_options_t *o)
{
    language_t language = {0};
    fsdp_status_t status = FSDP_OK;
    cli_choose_threads(o->threads);
    if (o->model_file == NULL)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "--model FILE is needed: what fsdp train --save "
                            "wrote, or Hugging Face's folder");
    else
        status = read_language(o, &language);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK) {
        fsdp_tokenizer_close(&language.tokenizer);
        return status;
    }

    fsdp_module_t *model = create(&language);
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    cli_options_t sharding = *o;
    sharding.reshard = "false"; /* gather once */
    status = cli_shard(model, &sharding, mesh, NULL, 0);
    if (status == FSDP_OK)
        status = fsdp_model_load(model, fsdp_comm_world(), o->model_file);
    if (status == FSDP_OK)
        status = write_text(model, &language, o);
    fsdp_tokenizer_close(&language.tokenizer);
    fsdp_module_destroy(&model);
    fsdp_mesh_destroy(&mesh);
    return status;
}
