/* The operators of each model, in the order in which they run.  In comments: N
 * rows (samples x tokens), C channels, F of the MLP, V of the vocabulary; what
 * each operator puts out stays for the backward. */
#include "cli/plan_sim.h"

static fsdp_dtype_t
data_dtype(const plan_sim_t *sim)
{
    return sim->data_dtype;
}

/* ---- shorter words ------------------------------------------------------- */

/* One input and output of one shape. */
static plan_tensor_t *
map(plan_sim_t *sim, plan_op_t op, plan_tensor_t *x, plan_param_t *weight,
    plan_param_t *bias, int64_t rows)
{
    return plan_record(sim, op, x, NULL, NULL, weight, bias, rows, x->numel,
                       x->dtype);
}

static plan_tensor_t *
both(plan_sim_t *sim, plan_op_t op, plan_tensor_t *a, plan_tensor_t *b)
{
    return plan_record(sim, op, a, b, NULL, NULL, NULL, a->numel, a->numel,
                       a->dtype);
}

static plan_tensor_t *
dropout(plan_sim_t *sim, plan_tensor_t *x)
{
    if (sim->config.dropout == 0 || !sim->tape->training)
        return x;
    return map(sim, PLAN_DROPOUT, x, NULL, NULL, x->numel);
}

/* ---- a unit with its hooks and its checkpoint ----------------------------- */

typedef plan_tensor_t *body_t(plan_sim_t *sim, plan_unit_t *unit,
                              plan_tensor_t *x, int64_t rows);

static plan_tensor_t *
run_unit(plan_sim_t *sim, plan_unit_t *unit, body_t *body, plan_tensor_t *x,
         int64_t rows)
{
    x = sim->engine->pre_forward(sim, unit, x);
    if (sim->config.checkpoint)
        plan_region_begin(sim);
    x = body(sim, unit, x, rows);
    if (sim->config.checkpoint)
        plan_region_end(sim, x);
    return sim->engine->post_forward(sim, unit, x);
}

/* ---- GPT-2 --------------------------------------------------------------- */

enum {
    LN_1,
    LN_1_BIAS,
    C_ATTN,
    C_ATTN_BIAS,
    ATTN_PROJ,
    ATTN_PROJ_BIAS,
    LN_2,
    LN_2_BIAS,
    C_FC,
    C_FC_BIAS,
    MLP_PROJ,
    MLP_PROJ_BIAS,
    GATE_OF_EXPERTS = C_FC,
    EXPERTS
};

/* ln_1 [N,C], qkv [N,3C], attention [N,C], projection [N,C], (dropout [N,C],)
 * sum [N,C]; ln_2 [N,C], fc [N,4C], gelu [N,4C], projection [N,C], (dropout,)
 * sum [N,C]: 16 N C elements, 18 with dropout, and statistics. */
static plan_tensor_t *
gpt2_block(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *x, int64_t rows)
{
    plan_param_t *p = unit->param;
    plan_tensor_t *y =
        map(sim, PLAN_LAYER_NORM, x, &p[LN_1], &p[LN_1_BIAS], rows);
    y = plan_column_parallel(sim, y, &p[C_ATTN], &p[C_ATTN_BIAS], rows);
    y = plan_record(sim, PLAN_ATTENTION, y, NULL, NULL, NULL, NULL, rows,
                    y->numel / 3, y->dtype);
    y = plan_row_parallel(sim, y, &p[ATTN_PROJ], &p[ATTN_PROJ_BIAS], rows);
    x = both(sim, PLAN_ADD, x, dropout(sim, y));
    y = map(sim, PLAN_LAYER_NORM, x, &p[LN_2], &p[LN_2_BIAS], rows);
    if (sim->config.gpt2.n_experts > 0) {
        y = plan_experts(sim, y, &p[GATE_OF_EXPERTS], &p[EXPERTS],
                         plan_experts_unit(sim, unit), rows);
    } else {
        y = plan_column_parallel(sim, y, &p[C_FC], &p[C_FC_BIAS], rows);
        y = map(sim, PLAN_ACTIVATION, y, NULL, NULL, rows);
        y = plan_row_parallel(sim, y, &p[MLP_PROJ], &p[MLP_PROJ_BIAS], rows);
    }
    return both(sim, PLAN_ADD, x, dropout(sim, y));
}

/* [N,C]: a row of a table for each position. */
static plan_tensor_t *
positions(plan_sim_t *sim, plan_tensor_t *tokens, plan_param_t *weight)
{
    int64_t rows = tokens->numel, channels = (int64_t)weight->shape[1];
    return plan_record(sim, PLAN_POSITION, tokens, NULL, NULL, weight, NULL,
                       rows, rows * channels, data_dtype(sim));
}

static plan_tensor_t *
head(plan_sim_t *sim, plan_tensor_t *x, plan_tensor_t *targets,
     plan_param_t *weight)
{
    return plan_record(sim, PLAN_HEAD, x, targets, NULL, weight, NULL,
                       targets->numel, 1, plan_compute_dtype(x->dtype));
}

/* Root: wte, wpe, ln_f.weight, ln_f.bias, and lm_head.weight if not tied. */
static plan_tensor_t *
gpt2_body(plan_sim_t *sim, plan_tensor_t *tokens, plan_tensor_t *targets)
{
    plan_unit_t *root = &sim->unit[0];
    plan_param_t *p = root->param;
    int64_t rows = tokens->numel;
    plan_tensor_t *x = plan_vocabulary(sim, tokens, &p[0]);
    x = both(sim, PLAN_ADD, x, positions(sim, tokens, &p[1]));
    x = dropout(sim, x);
    for (int i = 1; i <= sim->num_blocks; i++)
        x = run_unit(sim, &sim->unit[i], gpt2_block, x, rows);
    x = map(sim, PLAN_LAYER_NORM, x, &p[2], &p[3], rows);
    return head(sim, x, targets, &p[root->num_params > 4 ? 4 : 0]);
}

/* ---- Llama --------------------------------------------------------------- */

enum { Q, K, V, O, GATE, UP, DOWN, NORM_1, NORM_2 };

/* norm [N,C]; q [N,C], k and v [N,C kv_heads / heads], q and k turned,
 * attention [N,C], o [N,C], sum [N,C]; norm [N,C], gate, silu, up and product
 * [N,F], down [N,C], sum [N,C]; and statistics. */
static plan_tensor_t *
llama_block(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *x, int64_t rows)
{
    plan_param_t *p = unit->param;
    plan_tensor_t *y = map(sim, PLAN_RMS_NORM, x, &p[NORM_1], NULL, rows);
    plan_tensor_t *q = plan_column_parallel(sim, y, &p[Q], NULL, rows);
    plan_tensor_t *k = plan_column_parallel(sim, y, &p[K], NULL, rows);
    plan_tensor_t *v = plan_column_parallel(sim, y, &p[V], NULL, rows);
    q = map(sim, PLAN_ROTARY, q, NULL, NULL, rows);
    k = map(sim, PLAN_ROTARY, k, NULL, NULL, rows);
    y = plan_record(sim, PLAN_GROUPED_ATTENTION, q, k, v, NULL, NULL, rows,
                    q->numel, q->dtype);
    x = both(sim, PLAN_ADD, x, plan_row_parallel(sim, y, &p[O], NULL, rows));
    y = map(sim, PLAN_RMS_NORM, x, &p[NORM_2], NULL, rows);
    plan_tensor_t *gate = plan_column_parallel(sim, y, &p[GATE], NULL, rows);
    gate = map(sim, PLAN_ACTIVATION, gate, NULL, NULL, rows);
    y = plan_column_parallel(sim, y, &p[UP], NULL, rows);
    y = both(sim, PLAN_MULTIPLY, gate, y);
    return both(sim, PLAN_ADD, x,
                plan_row_parallel(sim, y, &p[DOWN], NULL, rows));
}

/* Root: embed_tokens, norm, and lm_head.weight if not tied. */
static plan_tensor_t *
llama_body(plan_sim_t *sim, plan_tensor_t *tokens, plan_tensor_t *targets)
{
    plan_unit_t *root = &sim->unit[0];
    plan_param_t *p = root->param;
    int64_t rows = tokens->numel;
    plan_tensor_t *x = plan_vocabulary(sim, tokens, &p[0]);
    for (int i = 1; i < sim->num_units; i++)
        x = run_unit(sim, &sim->unit[i], llama_block, x, rows);
    x = map(sim, PLAN_RMS_NORM, x, &p[1], NULL, rows);
    return head(sim, x, targets, &p[root->num_params > 2 ? 2 : 0]);
}

/* ---- perceptron ---------------------------------------------------------- */

static plan_tensor_t *
mlp_layer(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *x, int64_t rows)
{
    plan_param_t *weight = &unit->param[0], *bias = &unit->param[1];
    switch (plan_tp_dim(&sim->config, weight->name)) {
    case 0:
        return plan_column_parallel(sim, x, weight, bias, rows);
    case 1:
        return plan_row_parallel(sim, x, weight, bias, rows);
    default:
        return plan_linear(sim, x, weight, bias, rows);
    }
}

static plan_tensor_t *
mlp_body(plan_sim_t *sim, plan_tensor_t *x, int64_t rows)
{
    for (int i = 1; i < sim->num_units; i++) {
        if (i > 1)
            x = map(sim, PLAN_ACTIVATION, x, NULL, NULL, rows);
        x = run_unit(sim, &sim->unit[i], mlp_layer, x, rows);
    }
    return x;
}

/* ---- the whole ----------------------------------------------------------- */

static plan_tensor_t *
text_forward(plan_sim_t *sim, int64_t rows)
{
    int64_t tokens = rows * sim->config.context;
    plan_unit_t *root = &sim->unit[0];
    plan_tensor_t *x = plan_tensor_new(sim, FSDP_INT32, tokens);
    plan_tensor_t *y = plan_tensor_new(sim, FSDP_INT32, tokens);
    x = sim->engine->pre_forward(sim, root, x);
    plan_tensor_t *loss = sim->config.model == PLAN_GPT2
                              ? gpt2_body(sim, x, y)
                              : llama_body(sim, x, y);
    return sim->engine->post_forward(sim, root, loss);
}

static plan_tensor_t *
mlp_forward(plan_sim_t *sim, int64_t rows)
{
    const fsdp_mlp_config_t *mlp = &sim->config.mlp;
    plan_unit_t *root = &sim->unit[0];
    plan_tensor_t *x =
        plan_tensor_new(sim, sim->config.dtype, rows * (int64_t)mlp->width[0]);
    plan_tensor_t *y = plan_tensor_new(sim, FSDP_INT32, rows);
    x = sim->engine->pre_forward(sim, root, x);
    x = mlp_body(sim, x, rows);
    x = sim->engine->post_forward(sim, root, x);
    x = plan_cast(sim, x, plan_compute_dtype(x->dtype));
    return plan_record(sim, PLAN_CROSS_ENTROPY, x, y, NULL, NULL, NULL, rows, 1,
                       x->dtype);
}

plan_tensor_t *
plan_forward(plan_sim_t *sim, int64_t rows)
{
    return sim->config.model == PLAN_MLP ? mlp_forward(sim, rows)
                                         : text_forward(sim, rows);
}
