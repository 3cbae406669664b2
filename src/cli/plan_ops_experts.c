/* What the operators of a mixture of experts take and keep.  In comments: N tokens
 * of C channels, E experts with H hidden ones, K of them for a token, so R = N K
 * rows.  All experts are here, so R does not depend on the tokens. */
#include "cli/plan_sim.h"

static int64_t
num_experts(const plan_sim_t *sim)
{
    return (int64_t)sim->config.gpt2.n_experts;
}

static int64_t
top_k(const plan_sim_t *sim)
{
    return (int64_t)sim->config.gpt2.n_experts_per_tok;
}

/* ---- forward ------------------------------------------------------------- */

/* The router's probabilities [N,E] and their sums, in float64; if there is to be a
 * backward, which experts were chosen. */
int64_t
plan_expert_saved(const plan_sim_t *sim, const plan_node_t *node)
{
    int64_t p = node->rows * (num_experts(sim) + 1) * (int64_t)sizeof(double);
    int64_t chosen = node->rows * top_k(sim) * (int64_t)sizeof(int32_t);
    if (node->op != PLAN_ROUTE)
        return 0;
    return sim->tape->recording ? p + chosen : p;
}

/* Logits [N,E], three numbers a row and a target, before the choice is kept. */
static int64_t
route_room(const plan_sim_t *sim, const plan_node_t *node)
{
    int64_t size = plan_size(plan_compute_dtype(node->output->dtype));
    int64_t room = node->rows * ((num_experts(sim) + 3) * size + 4);
    int64_t chosen = node->rows * top_k(sim) * (int64_t)sizeof(int32_t);
    if (!sim->tape->recording)
        return room;
    return room > chosen ? room - chosen : 0;
}

/* Where each row is, and one row of products. */
static int64_t
combine_room(const plan_node_t *node)
{
    const plan_tensor_t *rows = node->input[0], *weight = node->input[1];
    int64_t size = plan_size(plan_compute_dtype(rows->dtype));
    return weight->numel * (int64_t)sizeof(size_t) +
           rows->numel / weight->numel * size;
}

int64_t
plan_expert_room(const plan_sim_t *sim, const plan_node_t *node)
{
    if (node->op == PLAN_ROUTE)
        return route_room(sim, node);
    if (node->op == PLAN_DISPATCH) /* rows are copied as they are */
        return 0;
    return combine_room(node) +
           plan_wide(node->output->dtype,
                     node->input[0]->numel + node->output->numel);
}

/* ---- backward ------------------------------------------------------------ */

static void
route_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               2 * num_experts(sim) * (int64_t)sizeof(double));
    plan_set_grad(sim, node, 0, dx);
}

static void
dispatch_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    int64_t x = node->input[0]->numel, y = node->output->numel;
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               node->input[1]->numel * (int64_t)sizeof(size_t) +
                   plan_wide(node->output->dtype, x + y));
    plan_set_grad(sim, node, 0, dx);
}

/* dx with all weights, then dW expert by expert. */
static void
grouped_backward(plan_sim_t *sim, plan_node_t *node)
{
    fsdp_dtype_t dtype = node->output->dtype;
    int64_t x = node->input[0]->numel, y = node->output->numel;
    int64_t weight = node->param[0]->numel;
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    plan_touch(sim, FSDP_MEM_ACTIVATION, plan_wide(dtype, x + y + weight));
    plan_set_grad(sim, node, 0, dx);
    plan_new_param_grad(sim, node->param[0]);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               plan_wide(dtype, x + y + weight / num_experts(sim)));
    plan_add_param_grad(sim, node->param[0]);
}

static void
combine_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *rows = plan_new_grad(sim, node, 0);
    plan_block_t *weight = plan_new_grad(sim, node, 1);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               combine_room(node) +
                   plan_wide(node->output->dtype,
                             2 * node->input[0]->numel + node->output->numel));
    plan_set_grad(sim, node, 0, rows);
    plan_set_grad(sim, node, 1, weight);
}

void
plan_expert_backward(plan_sim_t *sim, plan_node_t *node)
{
    switch (node->op) {
    case PLAN_ROUTE:
        route_backward(sim, node);
        break;
    case PLAN_DISPATCH:
        dispatch_backward(sim, node);
        break;
    case PLAN_GROUPED_LINEAR:
        grouped_backward(sim, node);
        break;
    default:
        combine_backward(sim, node);
        break;
    }
}

/* ---- the layer ----------------------------------------------------------- */

static plan_tensor_t *
grouped_linear(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *weight,
               int64_t rows)
{
    int64_t in = x->numel / rows;
    return plan_record(sim, PLAN_GROUPED_LINEAR, x, NULL, NULL, weight, NULL,
                       rows, weight->numel / num_experts(sim) / in * rows,
                       x->dtype);
}

static plan_tensor_t *
view(plan_sim_t *sim, plan_tensor_t *x, int64_t rows)
{
    return plan_record(sim, PLAN_VIEW, x, NULL, NULL, NULL, NULL, rows,
                       x->numel, x->dtype);
}

/* logits [N,E]; experts and origins [R] and counts [E], weights [R]; rows [R,C],
 * hidden [R,H], gelu [R,H], down [R,C]; the sum [N,C]. */
plan_tensor_t *
plan_experts(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *gate,
             plan_param_t *expert, int64_t rows)
{
    int64_t experts = num_experts(sim), routed = rows * top_k(sim);
    plan_tensor_t *tokens = view(sim, x, rows);
    plan_tensor_t *logits =
        plan_record(sim, PLAN_LINEAR, tokens, NULL, NULL, gate, NULL, rows,
                    rows * experts, x->dtype);
    plan_tensor_new(sim, FSDP_INT32, routed);
    plan_tensor_t *origin = plan_tensor_new(sim, FSDP_INT32, routed);
    plan_tensor_t *counts = plan_tensor_new(sim, FSDP_INT32, experts);
    plan_tensor_t *weight = plan_record(sim, PLAN_ROUTE, logits, counts, NULL,
                                        NULL, NULL, rows, routed, x->dtype);
    plan_tensor_t *y =
        plan_record(sim, PLAN_DISPATCH, tokens, origin, NULL, NULL, NULL,
                    routed, x->numel * top_k(sim), x->dtype);
    y = grouped_linear(sim, y, &expert[0], routed);
    y = plan_record(sim, PLAN_ACTIVATION, y, NULL, NULL, NULL, NULL, routed,
                    y->numel, y->dtype);
    y = grouped_linear(sim, y, &expert[1], routed);
    y = plan_record(sim, PLAN_COMBINE, y, weight, origin, NULL, NULL, rows,
                    x->numel, x->dtype);
    return view(sim, y, rows);
}
