#include "fsdp/gpt2.h"

#include "fsdp/layers.h"
#include "fsdp/ops.h"
#include "fsdp/status.h"
#include "nn/gpt2_internal.h"
#include "nn/lm_head.h"

enum { TRANSFORMER_WTE, TRANSFORMER_WPE, TRANSFORMER_BLOCKS }; /* then ln_f */

/* ---- configuration ------------------------------------------------------ */

fsdp_gpt2_config_t
fsdp_gpt2_config_default(void)
{
    return (fsdp_gpt2_config_t){.n_layer = 4,
                                .n_head = 4,
                                .n_embd = 128,
                                .vocab_size = 256,
                                .n_positions = 128,
                                .layer_norm_epsilon = 1e-5,
                                .initializer_range = 0.02,
                                .tie_word_embeddings = true,
                                .n_experts_per_tok = 2,
                                .dtype = FSDP_FP32};
}

static fsdp_gpt2_config_t
fill_defaults(fsdp_gpt2_config_t c)
{
    fsdp_gpt2_config_t d = fsdp_gpt2_config_default();
    c.n_layer = c.n_layer > 0 ? c.n_layer : d.n_layer;
    c.n_head = c.n_head > 0 ? c.n_head : d.n_head;
    c.n_embd = c.n_embd > 0 ? c.n_embd : d.n_embd;
    c.vocab_size = c.vocab_size > 0 ? c.vocab_size : d.vocab_size;
    c.n_positions = c.n_positions > 0 ? c.n_positions : d.n_positions;
    if (c.n_experts_per_tok == 0)
        c.n_experts_per_tok = d.n_experts_per_tok;
    if (c.layer_norm_epsilon == 0)
        c.layer_norm_epsilon = d.layer_norm_epsilon;
    if (c.initializer_range == 0)
        c.initializer_range = d.initializer_range;
    if (c.dtype == FSDP_DTYPE_NONE)
        c.dtype = d.dtype;
    FSDP_CHECK(c.n_embd % c.n_head == 0,
               "GPT-2: n_head %zu does not divide n_embd %zu", c.n_head,
               c.n_embd);
    return c;
}

/* ---- transformer -------------------------------------------------------- */

typedef struct transformer_config {
    double embd_pdrop;
    uint32_t embd_layer;
} transformer_config_t;

static fsdp_values_t
transformer_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                    fsdp_values_t inputs)
{
    const transformer_config_t *c = self->config;
    fsdp_tensor_t *tokens = inputs.tensor[0];
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[TRANSFORMER_WTE], tape, tokens);
    x = fsdp_add(tape, x,
                 fsdp_module_call1(self->child[TRANSFORMER_WPE], tape, tokens));
    x = fsdp_dropout(tape, x, c->embd_pdrop, c->embd_layer);
    fsdp_values_t v = fsdp_values1(x); /* and what experts add to the loss */
    int last = self->num_children - 1;
    for (int i = TRANSFORMER_BLOCKS; i < last; i++)
        v = fsdp_module_call(self->child[i], tape, v);
    v.tensor[0] = fsdp_module_call1(self->child[last], tape, v.tensor[0]);
    return v;
}

static fsdp_module_t *
transformer_create(const fsdp_gpt2_config_t *c)
{
    transformer_config_t config = {
        .embd_pdrop = c->embd_pdrop,
        .embd_layer = fsdp_gpt2_dropout_layer("transformer", "drop")};
    fsdp_module_t *m =
        fsdp_module_create("transformer", "GPT2Model", transformer_forward,
                           &config, sizeof config);
    fsdp_module_add_child(
        m, fsdp_embedding_create("transformer.wte", c->vocab_size, c->n_embd,
                                 c->initializer_range, c->dtype, c->seed));
    fsdp_module_add_child(m, fsdp_position_embedding_create(
                                 "transformer.wpe", c->n_positions, c->n_embd,
                                 c->initializer_range, c->dtype, c->seed));
    for (size_t i = 0; i < c->n_layer; i++) {
        char *name = fsdp_format("transformer.h.%zu", i);
        fsdp_module_add_child(m, fsdp_gpt2_block_create(name, c));
        fsdp_free(name);
    }
    fsdp_module_add_child(
        m, fsdp_layer_norm_create("transformer.ln_f", c->n_embd,
                                  c->layer_norm_epsilon, c->dtype));
    return m;
}

/* ---- the whole ---------------------------------------------------------- */

fsdp_module_t *
fsdp_gpt2_create(const fsdp_gpt2_config_t *config)
{
    fsdp_gpt2_config_t c = fill_defaults(*config);
    fsdp_module_t *root = fsdp_module_create("", "GPT2LMHeadModel",
                                             fsdp_lm_forward, &c, sizeof c);
    fsdp_module_t *transformer =
        fsdp_module_add_child(root, transformer_create(&c));
    fsdp_parameter_t *wte = transformer->child[TRANSFORMER_WTE]->parameter[0];
    fsdp_module_add_child(
        root,
        fsdp_lm_head_create(c.tie_word_embeddings ? wte : NULL, c.vocab_size,
                            c.n_embd, c.initializer_range, c.dtype, c.seed));
    return root;
}

const fsdp_gpt2_config_t *
fsdp_gpt2_get_config(const fsdp_module_t *gpt2)
{
    return gpt2->config;
}

fsdp_module_t *
fsdp_gpt2_block(fsdp_module_t *gpt2, int i)
{
    size_t layers = fsdp_gpt2_get_config(gpt2)->n_layer;
    FSDP_CHECK(i >= 0 && (size_t)i < layers, "block %d of %zu", i, layers);
    return gpt2->child[FSDP_LM_BODY]->child[TRANSFORMER_BLOCKS + i];
}

fsdp_module_t *
fsdp_gpt2_experts(fsdp_module_t *gpt2, int i)
{
    if (fsdp_gpt2_get_config(gpt2)->n_experts == 0)
        return NULL;
    return fsdp_gpt2_block_experts(fsdp_gpt2_block(gpt2, i));
}

fsdp_tensor_t *
fsdp_gpt2_loss(fsdp_tape_t *tape, fsdp_module_t *gpt2, fsdp_tensor_t *tokens,
               fsdp_tensor_t *targets)
{
    return fsdp_module_call(gpt2, tape, fsdp_values2(tokens, targets))
        .tensor[0];
}

fsdp_tensor_t *
fsdp_gpt2_logits(fsdp_tape_t *tape, fsdp_module_t *gpt2, fsdp_tensor_t *tokens)
{
    return fsdp_module_call1(gpt2, tape, tokens);
}
