#include <math.h>
#include <string.h>

#include "cli/generate.h"

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
    size_t length, positions = language_positions(language);
    size_t choices = language_tokens(language);
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
        status = language_read(o, &language);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK) {
        fsdp_tokenizer_close(&language.tokenizer);
        return status;
    }

    fsdp_module_t *model = language_create(&language);
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
