/* Tensor parallelism: what T ranks have of each weight, and the operators between
 * them.  In comments: N rows of C channels; T is 1 without.
 *
 *      column-parallel  a copy in the forward, whose gradient is summed over the
 *                       ranks; then the product
 *      row-parallel     the product, summed over the ranks; then the bias
 *      vocabulary       rows that are here, zero elsewhere, summed over the ranks */
#include <fnmatch.h>
#include <stdio.h>

#include "cli/plan_sim.h"

/* ---- parameters ---------------------------------------------------------- */

typedef struct cut {
    const char *name;
    int dim; /* that is cut */
} cut_t;

static const cut_t gpt2_cuts[] = {{"*.wte.weight", 0},   {"*.c_attn.weight", 1},
                                  {"*.c_attn.bias", 0},  {"*.c_fc.weight", 1},
                                  {"*.c_fc.bias", 0},    {"*.c_proj.weight", 0},
                                  {"lm_head.weight", 0}, {NULL, 0}};
static const cut_t llama_cuts[] = {
    {"*.embed_tokens.weight", 0}, {"*.[qkv]_proj.weight", 0},
    {"*.gate_proj.weight", 0},    {"*.up_proj.weight", 0},
    {"*.o_proj.weight", 1},       {"*.down_proj.weight", 1},
    {"lm_head.weight", 0},        {NULL, 0}};

/* Layers 0, 2, ... by columns, those after them by rows, but for a last one
 * without a partner. */
static int
mlp_cut(const plan_config_t *c, const char *name)
{
    int layer = 0;
    char what = 0;
    if (sscanf(name, "layers.%d.%c", &layer, &what) != 2 ||
        (layer % 2 == 0 && layer + 1 == c->mlp.num_layers))
        return -1;
    if (what == 'b')
        return layer % 2 == 0 ? 0 : -1;
    return layer % 2;
}

int
plan_tp_dim(const plan_config_t *c, const char *name)
{
    if (c->tp <= 1)
        return -1;
    if (c->model == PLAN_MLP)
        return mlp_cut(c, name);
    const cut_t *cut = c->model == PLAN_GPT2 ? gpt2_cuts : llama_cuts;
    while (cut->name != NULL && fnmatch(cut->name, name, 0) != 0)
        cut++;
    return cut->name != NULL ? cut->dim : -1;
}

/* ---- sums over the ranks ------------------------------------------------- */

void
plan_tp_sum(plan_sim_t *sim, fsdp_dtype_t dtype, int64_t numel)
{
    const plan_config_t *c = &sim->config;
    int64_t size = plan_size(dtype);
    plan_touch(sim, FSDP_MEM_COMM,
               plan_all_reduce_scratch(numel, size, c->tp, c->tp_rank));
    plan_call(sim, FSDP_ALL_REDUCE,
              plan_all_reduce_bytes(numel, size, c->tp, c->tp_rank));
}

static plan_tensor_t *
one_input(plan_sim_t *sim, plan_op_t op, plan_tensor_t *x, plan_param_t *bias,
          int64_t rows)
{
    return plan_record(sim, op, x, NULL, NULL, bias, NULL, rows, x->numel,
                       x->dtype);
}

/* The output is a new tensor, in which the sum is made. */
static plan_tensor_t *
sum_over_ranks(plan_sim_t *sim, plan_tensor_t *x, int64_t rows)
{
    return one_input(sim, PLAN_TP_SUM, x, NULL, rows);
}

/* ---- layers -------------------------------------------------------------- */

plan_tensor_t *
plan_linear(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *weight,
            plan_param_t *bias, int64_t rows)
{
    int64_t in = x->numel / rows, out = weight->numel / in;
    return plan_record(sim, PLAN_LINEAR, x, NULL, NULL, weight, bias, rows,
                       rows * out, x->dtype);
}

plan_tensor_t *
plan_column_parallel(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *weight,
                     plan_param_t *bias, int64_t rows)
{
    if (sim->config.tp > 1)
        x = one_input(sim, PLAN_TP_COPY, x, NULL, rows);
    return plan_linear(sim, x, weight, bias, rows);
}

plan_tensor_t *
plan_row_parallel(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *weight,
                  plan_param_t *bias, int64_t rows)
{
    if (sim->config.tp <= 1)
        return plan_linear(sim, x, weight, bias, rows);
    x = sum_over_ranks(sim, plan_linear(sim, x, weight, NULL, rows), rows);
    return bias != NULL ? one_input(sim, PLAN_ADD_BIAS, x, bias, rows) : x;
}

/* [N,C]: a row of a table for each token. */
plan_tensor_t *
plan_vocabulary(plan_sim_t *sim, plan_tensor_t *tokens, plan_param_t *weight)
{
    int64_t rows = tokens->numel, channels = (int64_t)weight->shape[1];
    plan_tensor_t *y =
        plan_record(sim, PLAN_EMBEDDING, tokens, NULL, NULL, weight, NULL, rows,
                    rows * channels, sim->data_dtype);
    return sim->config.tp > 1 ? sum_over_ranks(sim, y, rows) : y;
}

/* ---- what they take ------------------------------------------------------ */

/* Which tokens are here and their rows; in the backward also their gradients, of
 * which as many are here as elsewhere, or nearly. */
int64_t
plan_vocabulary_room(const plan_sim_t *sim, const plan_node_t *node,
                     bool backward)
{
    int64_t tokens = node->input[0]->numel, size;
    if (sim->config.tp <= 1)
        return 0;
    size = plan_size(plan_compute_dtype(node->output->dtype));
    return tokens * (int64_t)(sizeof(size_t) + sizeof(int32_t)) +
           (backward ? node->output->numel / sim->config.tp * size : 0);
}
