#include "verify/trace/model.h"

#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"

/* Where we are, and the first thing that was wrong. */
typedef struct reader {
    const char *path;
    const fsdp_json_t *config;
    fsdp_status_t status;
} reader_t;

static void
refuse(reader_t *r, const char *key, const char *must)
{
    if (r->status == FSDP_OK)
        r->status = fsdp_error(FSDP_ERR_INPUT,
                               "%s/trace.json: the model's \"%s\" must be %s "
                               "to be run here",
                               r->path, key, must);
}

static const fsdp_json_t *
member(const reader_t *r, const char *key)
{
    const fsdp_json_t *value = fsdp_json_member(r->config, key);
    return fsdp_json_is(value, FSDP_JSON_NULL) ? NULL : value;
}

/* A number of rows, channels, layers; `other` if it is not said, 0: it must be. */
static size_t
get_size(reader_t *r, const char *key, size_t other)
{
    int64_t number = (int64_t)other;
    const fsdp_json_t *value = member(r, key);
    if ((value != NULL && !fsdp_json_get_integer(value, &number)) ||
        number < 1 || number > 100000000) {
        refuse(r, key, "a whole number from 1 to 100000000");
        return 1;
    }
    return (size_t)number;
}

static double
get_positive(reader_t *r, const char *key, double other)
{
    double number = other;
    const fsdp_json_t *value = member(r, key);
    if (value != NULL &&
        (!fsdp_json_get_number(value, &number) || !(number > 0)))
        refuse(r, key, "a number above 0");
    return number;
}

static double
get_number(reader_t *r, const char *key, double other)
{
    double number = other;
    const fsdp_json_t *value = member(r, key);
    if (value != NULL &&
        (!fsdp_json_get_number(value, &number) || !(number >= 0)))
        refuse(r, key, "a number of at least 0");
    return number;
}

static bool
get_bool(reader_t *r, const char *key, bool other)
{
    const fsdp_json_t *value = member(r, key);
    if (value != NULL && !fsdp_json_get_bool(value, &other))
        refuse(r, key, "true or false");
    return other;
}

/* It is one of two words, or not said. */
static void
expect_word(reader_t *r, const char *key, const char *one, const char *two)
{
    const fsdp_json_t *value = member(r, key);
    const char *text = fsdp_json_get_string(value);
    char must[100];
    if (value == NULL ||
        (text != NULL && (strcmp(text, one) == 0 || strcmp(text, two) == 0)))
        return;
    snprintf(must, sizeof must, "\"%s\"", one);
    refuse(r, key, must);
}

static void
expect_bool(reader_t *r, const char *key, bool must)
{
    if (get_bool(r, key, must) != must)
        refuse(r, key, must ? "true" : "false");
}

/* ---- GPT-2 ------------------------------------------------------------------ */

static void
read_gpt2(reader_t *r, fsdp_gpt2_config_t *c)
{
    *c = fsdp_gpt2_config_default();
    c->n_layer = get_size(r, "n_layer", 0);
    c->n_head = get_size(r, "n_head", 0);
    c->n_embd = get_size(r, "n_embd", 0);
    c->vocab_size = get_size(r, "vocab_size", 0);
    c->n_positions = get_size(r, "n_positions", 0);
    c->layer_norm_epsilon = get_positive(r, "layer_norm_epsilon", 1e-5);
    c->tie_word_embeddings = get_bool(r, "tie_word_embeddings", true);
    if (get_size(r, "n_inner", 4 * c->n_embd) != 4 * c->n_embd)
        refuse(r, "n_inner", "null or 4 times n_embd");
    c->n_experts =
        member(r, "n_experts") != NULL ? get_size(r, "n_experts", 0) : 0;
    c->n_experts_per_tok = get_size(r, "n_experts_per_tok", 2);
    c->router_aux_loss_coef = get_number(r, "router_aux_loss_coef", 0);
    if (c->n_embd % c->n_head != 0)
        refuse(r, "n_head", "a divisor of n_embd");
    expect_word(r, "activation_function", "gelu_new", "gelu_pytorch_tanh");
    expect_bool(r, "scale_attn_weights", true);
    expect_bool(r, "scale_attn_by_inverse_layer_idx", false);
    expect_bool(r, "reorder_and_upcast_attn", false);
    expect_bool(r, "add_cross_attention", false);
}

/* ---- Llama ------------------------------------------------------------------- */

/* Newer configurations have the angles' numbers in an object of their own. */
static void
read_rope(reader_t *r, fsdp_llama_config_t *c)
{
    const fsdp_json_t *rope = member(r, "rope_parameters");
    const fsdp_json_t *whole = r->config;
    c->rope_theta = get_positive(r, "rope_theta", 10000);
    if (member(r, "rope_scaling") != NULL)
        refuse(r, "rope_scaling", "null");
    if (rope == NULL)
        return;
    r->config = rope;
    c->rope_theta = get_positive(r, "rope_theta", c->rope_theta);
    expect_word(r, "rope_type", "default", "default");
    r->config = whole;
}

static void
read_llama(reader_t *r, fsdp_llama_config_t *c)
{
    *c = fsdp_llama_config_default();
    c->vocab_size = get_size(r, "vocab_size", 0);
    c->hidden_size = get_size(r, "hidden_size", 0);
    c->intermediate_size = get_size(r, "intermediate_size", 0);
    c->num_hidden_layers = get_size(r, "num_hidden_layers", 0);
    c->num_attention_heads = get_size(r, "num_attention_heads", 0);
    c->num_key_value_heads =
        get_size(r, "num_key_value_heads", c->num_attention_heads);
    c->head_dim =
        member(r, "head_dim") != NULL ? get_size(r, "head_dim", 0) : 0;
    c->max_position_embeddings = get_size(r, "max_position_embeddings", 0);
    c->rms_norm_eps = get_positive(r, "rms_norm_eps", 1e-6);
    c->tie_word_embeddings = get_bool(r, "tie_word_embeddings", false);
    c->attention_bias = get_bool(r, "attention_bias", false);
    c->mlp_bias = get_bool(r, "mlp_bias", false);
    read_rope(r, c);
    expect_word(r, "hidden_act", "silu", "swish");
    char *fault = r->status == FSDP_OK ? fsdp_llama_config_fault(c) : NULL;
    if (fault != NULL)
        r->status =
            fsdp_error(FSDP_ERR_INPUT, "%s/trace.json: %s", r->path, fault);
    else if (r->status == FSDP_OK)
        *c = fsdp_llama_config_complete(c);
    fsdp_free(fault);
}

/* ---- multi-layer perceptron ---------------------------------------------------- */

static bool
ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

/* Layers are called as the trace's weights are, in model order. */
static void
name_layers(reader_t *r, const fsdp_trace_about_t *about, trace_model_t *m)
{
    static const char weight[] = ".weight";
    int count = 0;
    m->mlp.no_bias = about->num_parameters > 0;
    for (int i = 0; i < about->num_parameters; i++) {
        const char *name = about->parameter[i].name;
        m->mlp.no_bias &= !ends_with(name, ".bias");
        if (!ends_with(name, weight) || count == FSDP_MLP_MAX_LAYERS)
            continue;
        m->layer_name[count] = fsdp_strdup(name);
        m->layer_name[count][strlen(name) - sizeof weight + 1] = '\0';
        m->names[count] = m->layer_name[count];
        count++;
    }
    if (about->num_parameters > 0 && count != m->mlp.num_layers)
        refuse(r, "widths", "one more than \"parameters\" has weights");
    m->mlp.layer_name = about->num_parameters > 0 ? m->names : NULL;
}

static void
read_activation(reader_t *r, fsdp_mlp_config_t *c)
{
    static const char *const word[] = {"relu", "gelu", "gelu_tanh"};
    const char *text = fsdp_json_get_string(member(r, "activation"));
    for (int i = 0; i < 3; i++)
        if (text != NULL && strcmp(text, word[i]) == 0) {
            c->activation = (fsdp_mlp_activation_t)i;
            return;
        }
    refuse(r, "activation", "\"relu\", \"gelu\" or \"gelu_tanh\"");
}

static void
read_mlp(reader_t *r, const fsdp_trace_about_t *about, trace_model_t *m)
{
    const fsdp_json_t *widths = member(r, "widths");
    size_t count = fsdp_json_size(widths);
    if (!fsdp_json_is(widths, FSDP_JSON_ARRAY) || count < 2 ||
        count > FSDP_MLP_MAX_LAYERS + 1) {
        refuse(r, "widths", "an array of 2 to 65 whole numbers");
        return;
    }
    m->mlp.num_layers = (int)count - 1;
    for (size_t i = 0; i < count; i++) {
        int64_t width = 0;
        if (!fsdp_json_get_integer(fsdp_json_at(widths, i), &width) ||
            width < 1 || width > 100000000)
            refuse(r, "widths", "whole numbers from 1 to 100000000");
        m->mlp.width[i] = (size_t)width;
    }
    read_activation(r, &m->mlp);
    name_layers(r, about, m);
}

/* ---- the whole ------------------------------------------------------------------- */

static fsdp_status_t
unknown_model(const fsdp_trace_t *trace, const char *type)
{
    return fsdp_error(
        FSDP_ERR_INPUT,
        "%s was made with %s%s; gpt2, llama and mlp can be run again here "
        "(say which by \"model\" in trace.json: see python/trace_format.md)",
        fsdp_trace_path(trace), type != NULL ? "the model " : "a model that ",
        type != NULL ? type : "trace.json does not name");
}

/* As many layers as there are tensors at most, lest a number alone asks for
 * all memory. */
static void
check_layers(reader_t *r, const fsdp_trace_t *trace, size_t layers)
{
    if (layers > fsdp_trace_count(trace))
        refuse(r, "config", "one of no more layers than the trace has tensors");
}

fsdp_status_t
trace_model_read(const fsdp_trace_t *trace, fsdp_dtype_t dtype,
                 trace_model_t *m)
{
    const fsdp_trace_about_t *about = fsdp_trace_about(trace);
    reader_t r = {fsdp_trace_path(trace),
                  (const fsdp_json_t *)about->model_config, FSDP_OK};
    const char *type = about->model_type;
    *m = (trace_model_t){0};
    if (type != NULL && strcmp(type, "gpt2") == 0) {
        m->kind = TRACE_MODEL_GPT2;
        read_gpt2(&r, &m->gpt2);
        check_layers(&r, trace, m->gpt2.n_layer);
    } else if (type != NULL && strcmp(type, "llama") == 0) {
        m->kind = TRACE_MODEL_LLAMA;
        read_llama(&r, &m->llama);
        check_layers(&r, trace, m->llama.num_hidden_layers);
    } else if (type != NULL && strcmp(type, "mlp") == 0) {
        m->kind = TRACE_MODEL_MLP;
        read_mlp(&r, about, m);
    } else {
        return unknown_model(trace, type);
    }
    m->gpt2.dtype = m->llama.dtype = m->mlp.dtype = dtype;
    return r.status;
}

void
trace_model_free(trace_model_t *model)
{
    for (int i = 0; i < FSDP_MLP_MAX_LAYERS; i++)
        fsdp_free(model->layer_name[i]);
    *model = (trace_model_t){0};
}

fsdp_module_t *
trace_model_create(const trace_model_t *model)
{
    switch (model->kind) {
    case TRACE_MODEL_GPT2:
        return fsdp_gpt2_create(&model->gpt2);
    case TRACE_MODEL_LLAMA:
        return fsdp_llama_create(&model->llama);
    default:
        return fsdp_mlp_create(&model->mlp);
    }
}
