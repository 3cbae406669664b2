#include "fsdp/layers.h"
#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "fsdp/random.h"
#include "nn/llama_internal.h"
#include "nn/ops_parallel.h"

/* ---- the pieces that blocks are made of --------------------------------- */

/* nn.Linear with Hugging Face's initial values: normal(initializer_range), the
 * bias zero. */
static void
add_linear(fsdp_module_t *parent, const char *what, size_t in, size_t out,
           bool bias, const fsdp_llama_config_t *c)
{
    char *name = fsdp_format("%s.%s", parent->name, what);
    fsdp_module_t *m = fsdp_module_add_child(
        parent, fsdp_linear_create(name, in, out, bias, c->dtype, c->seed));
    m->parameter[0]->init = FSDP_INIT_NORMAL;
    m->parameter[0]->init_scale = c->initializer_range;
    if (bias)
        m->parameter[1]->init = FSDP_INIT_ZEROS;
    fsdp_free(name);
}

static void
add_norm(fsdp_module_t *parent, const char *what, const fsdp_llama_config_t *c)
{
    char *name = fsdp_format("%s.%s", parent->name, what);
    fsdp_module_add_child(
        parent,
        fsdp_rms_norm_create(name, c->hidden_size, c->rms_norm_eps, c->dtype));
    fsdp_free(name);
}

/* ---- attention ---------------------------------------------------------- */

enum { ATTN_Q_PROJ, ATTN_K_PROJ, ATTN_V_PROJ, ATTN_O_PROJ };

typedef struct attention_config {
    size_t heads, kv_heads, first_head;
    llama_rotary_t *rotary; /* borrowed */
    double dropout;
    uint32_t layer;
} attention_config_t;

static fsdp_values_t
attention_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const attention_config_t *c = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *q = fsdp_module_call1(self->child[ATTN_Q_PROJ], tape, x);
    fsdp_tensor_t *k = fsdp_module_call1(self->child[ATTN_K_PROJ], tape, x);
    fsdp_tensor_t *v = fsdp_module_call1(self->child[ATTN_V_PROJ], tape, x);
    const fsdp_tensor_t *table =
        llama_rotary_table(c->rotary, q->dtype, q->shape[1]);
    q = fsdp_rotary(tape, q, c->heads, table);
    k = fsdp_rotary(tape, k, c->kv_heads, table);
    x = fsdp_op_grouped_attention(tape, q, k, v, c->heads, c->kv_heads,
                                  c->first_head, c->dropout, c->layer);
    return fsdp_values1(fsdp_module_call1(self->child[ATTN_O_PROJ], tape, x));
}

static fsdp_module_t *
attention_create(const char *block, const fsdp_llama_config_t *c,
                 llama_rotary_t *rotary)
{
    char *name = fsdp_format("%s.self_attn", block);
    attention_config_t config = {
        .heads = c->num_attention_heads,
        .kv_heads = c->num_key_value_heads,
        .rotary = rotary,
        .dropout = c->attention_dropout,
        .layer = (uint32_t)fsdp_hash_name(name),
    };
    fsdp_module_t *m = fsdp_module_create(
        name, "LlamaAttention", attention_forward, &config, sizeof config);
    fsdp_free(name);
    size_t q = c->num_attention_heads * c->head_dim;
    size_t kv = c->num_key_value_heads * c->head_dim;
    add_linear(m, "q_proj", c->hidden_size, q, c->attention_bias, c);
    add_linear(m, "k_proj", c->hidden_size, kv, c->attention_bias, c);
    add_linear(m, "v_proj", c->hidden_size, kv, c->attention_bias, c);
    add_linear(m, "o_proj", q, c->hidden_size, c->attention_bias, c);
    return m;
}

size_t
fsdp_llama_attention_heads(const fsdp_module_t *attention)
{
    return ((const attention_config_t *)attention->config)->kv_heads;
}

void
fsdp_llama_attention_keep_heads(fsdp_module_t *attention, int part, int parts)
{
    attention_config_t *c = attention->config;
    c->heads /= (size_t)parts;
    c->kv_heads /= (size_t)parts;
    c->first_head = (size_t)part * c->heads;
}

/* ---- MLP ---------------------------------------------------------------- */

enum { MLP_GATE_PROJ, MLP_UP_PROJ, MLP_DOWN_PROJ };

/* SwiGLU: down(silu(gate(x)) up(x)) */
static fsdp_values_t
mlp_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *gate =
        fsdp_module_call1(self->child[MLP_GATE_PROJ], tape, x);
    gate = fsdp_silu(tape, gate);
    x = fsdp_module_call1(self->child[MLP_UP_PROJ], tape, x);
    x = fsdp_multiply(tape, gate, x);
    return fsdp_values1(fsdp_module_call1(self->child[MLP_DOWN_PROJ], tape, x));
}

static fsdp_module_t *
mlp_create(const char *block, const fsdp_llama_config_t *c)
{
    char *name = fsdp_format("%s.mlp", block);
    fsdp_module_t *m =
        fsdp_module_create(name, "LlamaMLP", mlp_forward, NULL, 0);
    fsdp_free(name);
    size_t hidden = c->hidden_size, inner = c->intermediate_size;
    add_linear(m, "gate_proj", hidden, inner, c->mlp_bias, c);
    add_linear(m, "up_proj", hidden, inner, c->mlp_bias, c);
    add_linear(m, "down_proj", inner, hidden, c->mlp_bias, c);
    return m;
}

/* ---- block -------------------------------------------------------------- */

/* The norms are registered last, as in Hugging Face's model. */
enum { BLOCK_ATTN, BLOCK_MLP, BLOCK_NORM_1, BLOCK_NORM_2 };

static fsdp_values_t
block_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *y = fsdp_module_call1(self->child[BLOCK_NORM_1], tape, x);
    x = fsdp_add(tape, x, fsdp_module_call1(self->child[BLOCK_ATTN], tape, y));
    y = fsdp_module_call1(self->child[BLOCK_NORM_2], tape, x);
    x = fsdp_add(tape, x, fsdp_module_call1(self->child[BLOCK_MLP], tape, y));
    return fsdp_values1(x);
}

fsdp_module_t *
fsdp_llama_block_create(const char *name, const fsdp_llama_config_t *config,
                        llama_rotary_t *rotary)
{
    fsdp_module_t *m =
        fsdp_module_create(name, "LlamaDecoderLayer", block_forward, NULL, 0);
    fsdp_module_add_child(m, attention_create(name, config, rotary));
    fsdp_module_add_child(m, mlp_create(name, config));
    add_norm(m, "input_layernorm", config);
    add_norm(m, "post_attention_layernorm", config);
    return m;
}
