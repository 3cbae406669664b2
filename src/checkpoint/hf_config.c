#include "checkpoint/hf_config.h"

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"

/* No size that a model could have is larger; products of two fit 64 bits. */
enum { MAX_SIZE = 1 << 30 };

/* A configuration that is being read.  The first fault is kept. */
typedef struct reader {
    const char *name;
    const fsdp_json_t *config;
    fsdp_status_t status;
} reader_t;

static void
refuse(reader_t *r, const char *field, const char *is, const char *should)
{
    if (r->status == FSDP_OK)
        r->status = fsdp_error(FSDP_ERR_INPUT,
                               "%s: \"%s\" is %s; it should be "
                               "%s",
                               r->name, field, is, should);
}

/* NULL for null, too: both mean the default. */
static const fsdp_json_t *
member(const reader_t *r, const char *field)
{
    const fsdp_json_t *value = fsdp_json_member(r->config, field);
    return fsdp_json_is(value, FSDP_JSON_NULL) ? NULL : value;
}

static size_t
get_size(reader_t *r, const char *field, size_t otherwise)
{
    const fsdp_json_t *value = member(r, field);
    int64_t size = 0;
    if (value == NULL)
        return otherwise;
    if (!fsdp_json_get_integer(value, &size))
        refuse(r, field, fsdp_json_kind_name(value), "a whole number");
    else if (size < 1 || size > MAX_SIZE)
        refuse(r, field, "out of range", "a whole number from 1 to 2^30");
    return (size_t)size;
}

static double
get_number(reader_t *r, const char *field, double low, double otherwise)
{
    const fsdp_json_t *value = member(r, field);
    double number = otherwise;
    if (value == NULL)
        return otherwise;
    if (!fsdp_json_get_number(value, &number))
        refuse(r, field, fsdp_json_kind_name(value), "a number");
    else if (!isfinite(number) || number < low)
        refuse(r, field, "out of range",
               low > 0 ? "a number above 0" : "a number from 0 on");
    return number;
}

static double
get_dropout(reader_t *r, const char *field, double otherwise)
{
    double p = get_number(r, field, 0, otherwise);
    if (p >= 1)
        refuse(r, field, "out of range", "a number from 0 to below 1");
    return p;
}

static bool
get_bool(reader_t *r, const char *field, bool otherwise)
{
    const fsdp_json_t *value = member(r, field);
    bool result = otherwise;
    if (value != NULL && !fsdp_json_get_bool(value, &result))
        refuse(r, field, fsdp_json_kind_name(value), "true or false");
    return result;
}

/* Fields that have one value that is computed here. */
static void
must_be(reader_t *r, const char *field, bool otherwise, bool computed)
{
    if (get_bool(r, field, otherwise) != computed)
        refuse(r, field, computed ? "false" : "true",
               computed ? "true, which alone is computed here"
                        : "false, which alone is computed here");
}

/* A word among `known`; the first is the default. */
static void
must_be_word(reader_t *r, const char *field, const char *const *known)
{
    const fsdp_json_t *value = member(r, field);
    const char *word = fsdp_json_get_string(value);
    if (value == NULL)
        return;
    for (int i = 0; word != NULL && known[i] != NULL; i++)
        if (strcmp(word, known[i]) == 0)
            return;
    char *is = fsdp_format("\"%.60s\"", word != NULL ? word : "no string");
    char *should =
        fsdp_format("\"%s\", which alone is computed here", known[0]);
    refuse(r, field, is, should);
    fsdp_free(should);
    fsdp_free(is);
}

/* ---- GPT-2 -------------------------------------------------------------- */

static void
read_gpt2(reader_t *r, fsdp_gpt2_config_t *c)
{
    static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    *c = fsdp_gpt2_config_default();
    c->vocab_size = get_size(r, "vocab_size", 50257);
    c->n_positions = get_size(r, "n_positions", 1024);
    c->n_embd = get_size(r, "n_embd", 768);
    c->n_layer = get_size(r, "n_layer", 12);
    c->n_head = get_size(r, "n_head", 12);
    c->resid_pdrop = get_dropout(r, "resid_pdrop", 0.1);
    c->embd_pdrop = get_dropout(r, "embd_pdrop", 0.1);
    c->attn_pdrop = get_dropout(r, "attn_pdrop", 0.1);
    c->layer_norm_epsilon =
        get_number(r, "layer_norm_epsilon", 0x1p-1074, 1e-5);
    c->initializer_range = get_number(r, "initializer_range", 0, 0.02);
    c->tie_word_embeddings = get_bool(r, "tie_word_embeddings", true);
    must_be_word(r, "activation_function", gelu);
    must_be(r, "scale_attn_weights", true, true);
    must_be(r, "scale_attn_by_inverse_layer_idx", false, false);
    must_be(r, "add_cross_attention", false, false);
    if (r->status == FSDP_OK && c->n_embd % c->n_head != 0)
        refuse(r, "n_head", "no divisor of \"n_embd\"", "one");
    if (r->status == FSDP_OK &&
        get_size(r, "n_inner", 4 * c->n_embd) != 4 * c->n_embd)
        refuse(r, "n_inner", "another number",
               "null or 4 n_embd, which alone is computed here");
}

/* ---- Llama -------------------------------------------------------------- */

/* transformers 5 has "rope_parameters": {"rope_theta", "rope_type"}, before that
 * "rope_theta" and "rope_scaling" stood alone. */
static void
read_rotary(reader_t *r, fsdp_llama_config_t *c)
{
    static const char *const unscaled[] = {"default", NULL};
    c->rope_theta = get_number(r, "rope_theta", 0x1p-1074, 10000);
    const char *const fields[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const fsdp_json_t *rope = member(r, fields[i]);
        reader_t inner = {r->name, rope, r->status};
        if (rope == NULL)
            continue;
        if (!fsdp_json_is(rope, FSDP_JSON_OBJECT))
            refuse(&inner, fields[i], fsdp_json_kind_name(rope),
                   "null or an object");
        must_be_word(&inner, "rope_type", unscaled);
        must_be_word(&inner, "type", unscaled);
        c->rope_theta =
            get_number(&inner, "rope_theta", 0x1p-1074, c->rope_theta);
        r->status = inner.status;
    }
}

static void
read_llama(reader_t *r, fsdp_llama_config_t *c)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    *c = fsdp_llama_config_default();
    c->vocab_size = get_size(r, "vocab_size", 32000);
    c->hidden_size = get_size(r, "hidden_size", 4096);
    c->intermediate_size = get_size(r, "intermediate_size", 11008);
    c->num_hidden_layers = get_size(r, "num_hidden_layers", 32);
    c->num_attention_heads = get_size(r, "num_attention_heads", 32);
    c->num_key_value_heads =
        get_size(r, "num_key_value_heads", c->num_attention_heads);
    c->head_dim = get_size(r, "head_dim", 0);
    c->max_position_embeddings = get_size(r, "max_position_embeddings", 2048);
    c->rms_norm_eps = get_number(r, "rms_norm_eps", 0x1p-1074, 1e-6);
    c->attention_dropout = get_dropout(r, "attention_dropout", 0);
    c->initializer_range = get_number(r, "initializer_range", 0, 0.02);
    c->tie_word_embeddings = get_bool(r, "tie_word_embeddings", false);
    c->attention_bias = get_bool(r, "attention_bias", false);
    c->mlp_bias = get_bool(r, "mlp_bias", false);
    must_be_word(r, "hidden_act", silu);
    read_rotary(r, c);
    if (r->status != FSDP_OK)
        return;
    *c = fsdp_llama_config_complete(c);
    char *fault = fsdp_llama_config_fault(c);
    if (fault != NULL)
        r->status = fsdp_error(FSDP_ERR_INPUT, "%s: %s", r->name, fault);
    fsdp_free(fault);
}

/* ---- either ------------------------------------------------------------- */

/* "model_type", or, where an old file lacks it, the class. */
static void
read_model(reader_t *r, fsdp_hf_config_t *c)
{
    static const char *const type[] = {"gpt2", "llama"};
    static const char *const class[] = {"GPT2LMHeadModel", "LlamaForCausalLM"};
    const char *is = fsdp_json_get_string(member(r, "model_type"));
    const char *built =
        fsdp_json_get_string(fsdp_json_at(member(r, "architectures"), 0));
    for (int i = 0; i < 2; i++)
        if (is != NULL ? strcmp(is, type[i]) == 0
                       : built != NULL && strcmp(built, class[i]) == 0) {
            c->model = (fsdp_hf_model_t)i;
            return;
        }
    char *quoted = fsdp_format("\"%.60s\"", is != NULL ? is : "");
    refuse(r, "model_type", is != NULL ? quoted : "missing",
           "\"gpt2\" or \"llama\"");
    fsdp_free(quoted);
}

static void
read_stored(reader_t *r, fsdp_hf_config_t *c)
{
    const char *name = fsdp_json_get_string(member(r, "dtype"));
    if (name == NULL)
        name = fsdp_json_get_string(member(r, "torch_dtype"));
    c->stored = name != NULL ? fsdp_dtype_from_name(name) : FSDP_DTYPE_NONE;
}

fsdp_status_t
fsdp_hf_config_read(const char *name, const fsdp_json_t *config,
                    fsdp_hf_config_t *result)
{
    reader_t r = {name, config, FSDP_OK};
    *result = (fsdp_hf_config_t){0};
    if (!fsdp_json_is(config, FSDP_JSON_OBJECT))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: a model's configuration is a JSON object, this "
                          "is %s",
                          name, fsdp_json_kind_name(config));
    read_model(&r, result);
    if (r.status != FSDP_OK)
        return r.status;
    if (result->model == FSDP_HF_GPT2)
        read_gpt2(&r, &result->gpt2);
    else
        read_llama(&r, &result->llama);
    read_stored(&r, result);
    return r.status;
}
