#include <math.h>

#include "fsdp/layers.h"
#include "fsdp/ops.h"
#include "fsdp/random.h"
#include "nn/gpt2_internal.h"
#include "nn/ops_parallel.h"

uint32_t
fsdp_gpt2_dropout_layer(const char *module, const char *dropout)
{
    char *name = fsdp_format("%s.%s", module, dropout);
    uint32_t layer = (uint32_t)fsdp_hash_name(name);
    fsdp_free(name);
    return layer;
}

/* ---- the pieces that blocks are made of --------------------------------- */

static void
add_conv1d(fsdp_module_t *parent, const char *what, size_t in, size_t out,
           double std, const fsdp_gpt2_config_t *c)
{
    char *name = fsdp_format("%s.%s", parent->name, what);
    fsdp_module_add_child(
        parent, fsdp_conv1d_create(name, in, out, std, c->dtype, c->seed));
    fsdp_free(name);
}

static void
add_layer_norm(fsdp_module_t *parent, const char *what,
               const fsdp_gpt2_config_t *c)
{
    char *name = fsdp_format("%s.%s", parent->name, what);
    fsdp_module_add_child(parent, fsdp_layer_norm_create(name, c->n_embd,
                                                         c->layer_norm_epsilon,
                                                         c->dtype));
    fsdp_free(name);
}

/* What is added to the residual stream 2 L times starts smaller by the root of
 * that, so that the sum does not grow with L. */
static double
projection_std(const fsdp_gpt2_config_t *c)
{
    return c->initializer_range / sqrt(2 * (double)c->n_layer);
}

/* ---- attention ---------------------------------------------------------- */

enum { ATTN_C_ATTN, ATTN_C_PROJ };

typedef struct attention_config {
    size_t heads, first_head;
    double attn_pdrop, resid_pdrop;
    uint32_t attn_layer, resid_layer;
} attention_config_t;

static fsdp_values_t
attention_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const attention_config_t *c = self->config;
    fsdp_tensor_t *qkv =
        fsdp_module_call1(self->child[ATTN_C_ATTN], tape, inputs.tensor[0]);
    fsdp_tensor_t *x = fsdp_op_attention(tape, qkv, c->heads, c->first_head,
                                         c->attn_pdrop, c->attn_layer);
    x = fsdp_module_call1(self->child[ATTN_C_PROJ], tape, x);
    return fsdp_values1(fsdp_dropout(tape, x, c->resid_pdrop, c->resid_layer));
}

static fsdp_module_t *
attention_create(const char *block, const fsdp_gpt2_config_t *c)
{
    char *name = fsdp_format("%s.attn", block);
    attention_config_t config = {
        .heads = c->n_head,
        .attn_pdrop = c->attn_pdrop,
        .resid_pdrop = c->resid_pdrop,
        .attn_layer = fsdp_gpt2_dropout_layer(name, "attn_dropout"),
        .resid_layer = fsdp_gpt2_dropout_layer(name, "resid_dropout"),
    };
    fsdp_module_t *m = fsdp_module_create(
        name, "GPT2Attention", attention_forward, &config, sizeof config);
    fsdp_free(name);
    add_conv1d(m, "c_attn", c->n_embd, 3 * c->n_embd, c->initializer_range, c);
    add_conv1d(m, "c_proj", c->n_embd, c->n_embd, projection_std(c), c);
    return m;
}

size_t
fsdp_gpt2_attention_heads(const fsdp_module_t *attention)
{
    return ((const attention_config_t *)attention->config)->heads;
}

void
fsdp_gpt2_attention_keep_heads(fsdp_module_t *attention, int part, int parts)
{
    attention_config_t *c = attention->config;
    c->heads /= (size_t)parts;
    c->first_head = (size_t)part * c->heads;
}

/* ---- MLP ---------------------------------------------------------------- */

enum { MLP_C_FC, MLP_C_PROJ };

typedef struct mlp_config {
    double resid_pdrop;
    uint32_t resid_layer;
} mlp_config_t;

static fsdp_values_t
mlp_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const mlp_config_t *c = self->config;
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[MLP_C_FC], tape, inputs.tensor[0]);
    x = fsdp_gelu_tanh(tape, x);
    x = fsdp_module_call1(self->child[MLP_C_PROJ], tape, x);
    return fsdp_values1(fsdp_dropout(tape, x, c->resid_pdrop, c->resid_layer));
}

static fsdp_module_t *
mlp_create(const char *block, const fsdp_gpt2_config_t *c)
{
    char *name = fsdp_format("%s.mlp", block);
    mlp_config_t config = {
        .resid_pdrop = c->resid_pdrop,
        .resid_layer = fsdp_gpt2_dropout_layer(name, "dropout"),
    };
    fsdp_module_t *m = fsdp_module_create(name, "GPT2MLP", mlp_forward, &config,
                                          sizeof config);
    fsdp_free(name);
    add_conv1d(m, "c_fc", c->n_embd, 4 * c->n_embd, c->initializer_range, c);
    add_conv1d(m, "c_proj", 4 * c->n_embd, c->n_embd, projection_std(c), c);
    return m;
}

/* ---- block -------------------------------------------------------------- */

enum { BLOCK_LN_1, BLOCK_ATTN, BLOCK_LN_2, BLOCK_MLP };

static fsdp_values_t
block_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *y = fsdp_module_call1(self->child[BLOCK_LN_1], tape, x);
    x = fsdp_add(tape, x, fsdp_module_call1(self->child[BLOCK_ATTN], tape, y));
    y = fsdp_module_call1(self->child[BLOCK_LN_2], tape, x);
    x = fsdp_add(tape, x, fsdp_module_call1(self->child[BLOCK_MLP], tape, y));
    return fsdp_values1(x);
}

/* ---- block with experts --------------------------------------------------- */

static fsdp_values_t
expert_block_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                     fsdp_values_t inputs)
{
    const mlp_config_t *c = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *y = fsdp_module_call1(self->child[BLOCK_LN_1], tape, x);
    x = fsdp_add(tape, x, fsdp_module_call1(self->child[BLOCK_ATTN], tape, y));
    y = fsdp_module_call1(self->child[BLOCK_LN_2], tape, x);
    fsdp_values_t out =
        fsdp_module_call(self->child[BLOCK_MLP], tape, fsdp_values1(y));
    y = fsdp_dropout(tape, out.tensor[0], c->resid_pdrop, c->resid_layer);
    out.tensor[0] = fsdp_add(tape, x, y);
    if (out.count > 1 && inputs.count > 1) {
        /* A mixed-precision policy may have cast it on its way. */
        fsdp_tensor_t *before =
            fsdp_cast(tape, inputs.tensor[1], out.tensor[1]->dtype);
        out.tensor[1] = fsdp_add(tape, before, out.tensor[1]);
    }
    return out;
}

static fsdp_module_t *
experts_create(const char *block, const fsdp_gpt2_config_t *c)
{
    char *name = fsdp_format("%s.mlp", block);
    fsdp_moe_config_t config = fsdp_moe_config_default();
    config.channels = c->n_embd;
    config.hidden = 4 * c->n_embd;
    config.num_experts = c->n_experts;
    config.top_k = c->n_experts_per_tok;
    config.kind = FSDP_EXPERT_GELU;
    config.router_aux_loss_coef = c->router_aux_loss_coef;
    config.std = c->initializer_range;
    config.down_std = projection_std(c);
    config.dtype = c->dtype;
    config.seed = c->seed;
    config.comm = c->expert_comm;
    config.reduce_order = c->expert_reduce_order;
    fsdp_module_t *m = fsdp_moe_create(name, &config);
    fsdp_free(name);
    return m;
}

fsdp_module_t *
fsdp_gpt2_block_experts(fsdp_module_t *block)
{
    return fsdp_moe_experts(block->child[BLOCK_MLP]);
}

fsdp_module_t *
fsdp_gpt2_block_create(const char *name, const fsdp_gpt2_config_t *config)
{
    bool experts = config->n_experts > 0;
    mlp_config_t dropout = {.resid_pdrop = config->resid_pdrop,
                            .resid_layer =
                                fsdp_gpt2_dropout_layer(name, "mlp.dropout")};
    fsdp_module_t *m = fsdp_module_create(
        name, "GPT2Block", experts ? expert_block_forward : block_forward,
        &dropout, sizeof dropout);
    add_layer_norm(m, "ln_1", config);
    fsdp_module_add_child(m, attention_create(name, config));
    add_layer_norm(m, "ln_2", config);
    fsdp_module_add_child(m, experts ? experts_create(name, config)
                                     : mlp_create(name, config));
    return m;
}
