#include "verify/trace/model.h"

#include <string.h>

#include "checkpoint/hf_config.h"
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
get_number(reader_t *r, const char *key, double other)
{
    double number = other;
    const fsdp_json_t *value = member(r, key);
    if (value != NULL &&
        (!fsdp_json_get_number(value, &number) || !(number >= 0)))
        refuse(r, key, "a number of at least 0");
    return number;
}

/* ---- models of Hugging Face --------------------------------------------------- */

/* Which dropout there was is not the configuration's to say: a model may have been
 * in its evaluation mode. */
static void
read_config(reader_t *r, const char *type, trace_model_t *m)
{
    fsdp_hf_config_t hf;
    char *name = fsdp_format("%s/trace.json, the model's config", r->path);
    r->status = fsdp_hf_config_read(name, r->config, &hf);
    fsdp_free(name);
    m->gpt2 = hf.gpt2;
    m->llama = hf.llama;
    m->kind = hf.model == FSDP_HF_GPT2 ? TRACE_MODEL_GPT2 : TRACE_MODEL_LLAMA;
    m->gpt2.resid_pdrop = m->gpt2.embd_pdrop = m->gpt2.attn_pdrop =
        m->llama.attention_dropout = 0;
    if ((hf.model == FSDP_HF_GPT2) != (strcmp(type, "gpt2") == 0))
        refuse(r, "model_type", "the \"type\" beside its config");
}

/* Not Hugging Face's: experts in the place of GPT-2's MLPs. */
static void
read_experts(reader_t *r, fsdp_gpt2_config_t *c)
{
    if (member(r, "num_local_experts") == NULL)
        return;
    c->n_experts = get_size(r, "num_local_experts", 0);
    c->n_experts_per_tok = get_size(r, "num_experts_per_tok", 2);
    c->router_aux_loss_coef = get_number(r, "router_aux_loss_coef", 0);
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
trace_model_read(const fsdp_trace_t *trace, const fsdp_trace_about_t *meant,
                 fsdp_dtype_t dtype, trace_model_t *m)
{
    const fsdp_trace_about_t *about = fsdp_trace_about(trace);
    if (meant == NULL || meant->model_type == NULL)
        meant = about;
    reader_t r = {fsdp_trace_path(trace),
                  (const fsdp_json_t *)meant->model_config, FSDP_OK};
    const char *type = meant->model_type;
    *m = (trace_model_t){0};
    if (type != NULL &&
        (strcmp(type, "gpt2") == 0 || strcmp(type, "llama") == 0)) {
        read_config(&r, type, m);
        read_experts(&r, &m->gpt2);
        check_layers(&r, trace,
                     m->kind == TRACE_MODEL_GPT2 ? m->gpt2.n_layer
                                                 : m->llama.num_hidden_layers);
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
