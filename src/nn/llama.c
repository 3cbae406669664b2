#include "fsdp/llama.h"

#include "fsdp/layers.h"
#include "fsdp/status.h"
#include "nn/llama_internal.h"
#include "nn/lm_head.h"

enum { MODEL_EMBED_TOKENS, MODEL_LAYERS }; /* then norm */

/* ---- configuration ------------------------------------------------------ */

fsdp_llama_config_t
fsdp_llama_config_default(void)
{
    return (fsdp_llama_config_t){.vocab_size = 256,
                                 .hidden_size = 128,
                                 .num_hidden_layers = 4,
                                 .num_attention_heads = 4,
                                 .max_position_embeddings = 128,
                                 .rms_norm_eps = 1e-6,
                                 .rope_theta = 10000,
                                 .initializer_range = 0.02,
                                 .dtype = FSDP_FP32};
}

static size_t
or_default(size_t given, size_t otherwise)
{
    return given > 0 ? given : otherwise;
}

/* Those of the paper (Touvron et al., 2023) have 8/3 of the width too, so that
 * three matrices have as many elements as two of four times the width. */
static size_t
usual_intermediate_size(size_t hidden_size)
{
    return (hidden_size * 8 / 3 + 31) / 32 * 32;
}

fsdp_llama_config_t
fsdp_llama_config_complete(const fsdp_llama_config_t *config)
{
    fsdp_llama_config_t c = *config, d = fsdp_llama_config_default();
    c.vocab_size = or_default(c.vocab_size, d.vocab_size);
    c.hidden_size = or_default(c.hidden_size, d.hidden_size);
    c.intermediate_size =
        or_default(c.intermediate_size, usual_intermediate_size(c.hidden_size));
    c.num_hidden_layers = or_default(c.num_hidden_layers, d.num_hidden_layers);
    c.num_attention_heads =
        or_default(c.num_attention_heads, d.num_attention_heads);
    c.num_key_value_heads =
        or_default(c.num_key_value_heads, c.num_attention_heads);
    c.head_dim = or_default(c.head_dim, c.hidden_size / c.num_attention_heads);
    c.max_position_embeddings =
        or_default(c.max_position_embeddings, d.max_position_embeddings);
    if (c.rms_norm_eps == 0)
        c.rms_norm_eps = d.rms_norm_eps;
    if (c.rope_theta == 0)
        c.rope_theta = d.rope_theta;
    if (c.initializer_range == 0)
        c.initializer_range = d.initializer_range;
    if (c.dtype == FSDP_DTYPE_NONE)
        c.dtype = d.dtype;
    return c;
}

char *
fsdp_llama_config_fault(const fsdp_llama_config_t *config)
{
    fsdp_llama_config_t c = fsdp_llama_config_complete(config);
    size_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads;
    if (config->head_dim == 0 && c.hidden_size % heads != 0)
        return fsdp_format("num_attention_heads %zu does not divide "
                           "hidden_size %zu, and no head_dim is given",
                           heads, c.hidden_size);
    if (heads % kv_heads != 0)
        return fsdp_format("num_key_value_heads %zu does not divide "
                           "num_attention_heads %zu",
                           kv_heads, heads);
    if (c.head_dim % 2 != 0)
        return fsdp_format("head_dim %zu is odd: rotary embeddings turn pairs",
                           c.head_dim);
    if (c.rope_theta < 0)
        return fsdp_format("rope_theta %g is not above 0", c.rope_theta);
    if (c.rope_scaling != NULL)
        return fsdp_format("rope_scaling %s is not known; only null is, "
                           "unscaled rotary embeddings",
                           c.rope_scaling);
    return NULL;
}

/* ---- model -------------------------------------------------------------- */

static fsdp_values_t
model_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const size_t *positions = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    FSDP_CHECK(x->ndim == 2 && x->shape[1] <= *positions,
               "a sequence of %zu tokens, but %s has %zu positions",
               x->shape[x->ndim - 1], self->name, *positions);
    for (int i = 0; i < self->num_children; i++)
        x = fsdp_module_call1(self->child[i], tape, x);
    return fsdp_values1(x);
}

static fsdp_module_t *
model_create(const fsdp_llama_config_t *c)
{
    size_t positions = c->max_position_embeddings;
    fsdp_module_t *m = fsdp_module_create("model", "LlamaModel", model_forward,
                                          &positions, sizeof positions);
    llama_rotary_t *rotary =
        llama_rotary_create(m, positions, c->head_dim, c->rope_theta);
    fsdp_module_add_child(
        m, fsdp_embedding_create("model.embed_tokens", c->vocab_size,
                                 c->hidden_size, c->initializer_range, c->dtype,
                                 c->seed));
    for (size_t i = 0; i < c->num_hidden_layers; i++) {
        char *name = fsdp_format("model.layers.%zu", i);
        fsdp_module_add_child(m, fsdp_llama_block_create(name, c, rotary));
        fsdp_free(name);
    }
    fsdp_module_add_child(m, fsdp_rms_norm_create("model.norm", c->hidden_size,
                                                  c->rms_norm_eps, c->dtype));
    return m;
}

/* ---- the whole ---------------------------------------------------------- */

fsdp_module_t *
fsdp_llama_create(const fsdp_llama_config_t *config)
{
    char *fault = fsdp_llama_config_fault(config);
    FSDP_CHECK(fault == NULL, "Llama: %s", fault);
    fsdp_llama_config_t c = fsdp_llama_config_complete(config);
    fsdp_module_t *root = fsdp_module_create("", "LlamaForCausalLM",
                                             fsdp_lm_forward, &c, sizeof c);
    fsdp_module_t *model = fsdp_module_add_child(root, model_create(&c));
    fsdp_parameter_t *tokens = model->child[MODEL_EMBED_TOKENS]->parameter[0];
    fsdp_module_add_child(
        root, fsdp_lm_head_create(c.tie_word_embeddings ? tokens : NULL,
                                  c.vocab_size, c.hidden_size,
                                  c.initializer_range, c.dtype, c.seed));
    return root;
}

const fsdp_llama_config_t *
fsdp_llama_get_config(const fsdp_module_t *llama)
{
    return llama->config;
}

fsdp_module_t *
fsdp_llama_block(fsdp_module_t *llama, int i)
{
    size_t layers = fsdp_llama_get_config(llama)->num_hidden_layers;
    FSDP_CHECK(i >= 0 && (size_t)i < layers, "block %d of %zu", i, layers);
    return llama->child[FSDP_LM_BODY]->child[MODEL_LAYERS + i];
}

fsdp_tensor_t *
fsdp_llama_loss(fsdp_tape_t *tape, fsdp_module_t *llama, fsdp_tensor_t *tokens,
                fsdp_tensor_t *targets)
{
    return fsdp_module_call(llama, tape, fsdp_values2(tokens, targets))
        .tensor[0];
}

fsdp_tensor_t *
fsdp_llama_logits(fsdp_tape_t *tape, fsdp_module_t *llama,
                  fsdp_tensor_t *tokens)
{
    return fsdp_module_call1(llama, tape, tokens);
}
