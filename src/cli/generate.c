#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/llama.h"
#include "cli/metadata.h"

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
    return status;
}

/* A model of text. */
typedef struct language {
    bool is_llama;
    fsdp_gpt2_config_t gpt2;
    fsdp_llama_config_t llama;
} language_t;

static fsdp_status_t
read_language(const char *path, language_t *language)
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
          double *logit)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.grad_enabled = options.training = false;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 2, (size_t[]){1, count});
    memcpy(x->data, tokens, count * sizeof *tokens);
    fsdp_tensor_t *y = fsdp_module_call1(model, tape, x);
    for (int i = 0; i < 256; i++)
        logit[i] = fsdp_tensor_get(y, (size_t)i);
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

/* The text grows; the model sees the last `positions` bytes of it. */
static void
write_text(fsdp_module_t *model, size_t positions, const cli_options_t *o,
           const char *prompt)
{
    size_t length = strlen(prompt);
    size_t most = length + (size_t)o->tokens;
    int32_t *token = fsdp_alloc(FSDP_MEM_OTHER, most * sizeof *token);
    double logit[256];
    for (size_t i = 0; i < length; i++)
        token[i] = (unsigned char)prompt[i];
    say(prompt, length);
    for (long n = 0; n < o->tokens; n++) {
        size_t seen = length < positions ? length : positions;
        run_model(model, token + length - seen, seen, logit);
        token[length] =
            sample(logit, 256, o->temperature, (uint64_t)o->seed, n);
        say((char[]){(char)token[length]}, 1);
        length++;
    }
    say("\n", 1);
    fsdp_free(token);
}

fsdp_status_t
cli_generate(const cli_options_t *o)
{
    language_t language;
    fsdp_status_t status = FSDP_OK;
    cli_choose_threads(o->threads);
    if (o->model_file == NULL)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "--model FILE is needed: what fsdp train --save "
                            "wrote");
    else
        status = read_language(o->model_file, &language);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        return status;

    fsdp_module_t *model = create(&language);
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    cli_options_t sharding = *o;
    sharding.reshard = "false"; /* gather once */
    status = cli_shard(model, &sharding, mesh, 0);
    if (status == FSDP_OK)
        status = fsdp_model_load(model, fsdp_comm_world(), o->model_file);
    if (status == FSDP_OK) /* a newline is the plainest beginning */
        write_text(model, positions_of(&language), o,
                   o->prompt[0] != '\0' ? o->prompt : "\n");
    fsdp_module_destroy(&model);
    fsdp_mesh_destroy(&mesh);
    return status;
}
