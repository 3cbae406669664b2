/* What the operators of a mixture of experts take and keep.  In comments: N tokens
 * of C channels, E experts with H hidden ones, K of them for a token, so R = N K
 * rows.  If P ranks share out the experts, how many rows a rank's get depends on
 * the tokens: as many as it sends is what a router is trained for; see
 * expert_load. */
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

static int
parts(const plan_sim_t *sim)
{
    return sim->config.expert_parts > 1 ? sim->config.expert_parts : 1;
}

static int64_t
local_experts(const plan_sim_t *sim)
{
    return num_experts(sim) / parts(sim);
}

/* ---- forward ------------------------------------------------------------- */

/* The router's probabilities [N,E] and their sums, in float64; if there is to be a
 * backward, which experts were chosen. */
int64_t
plan_expert_saved(const plan_sim_t *sim, const plan_node_t *node)
{
    int64_t p = node->rows * (num_experts(sim) + 1) * (int64_t)sizeof(double);
    int64_t chosen = node->rows * top_k(sim) * (int64_t)sizeof(int32_t);
    if (node->op == PLAN_EXCHANGE) /* elements to and from each rank */
        return 2 * parts(sim) * (int64_t)sizeof(size_t);
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

/* Where in the buffers each rank's rows are. */
static void
exchange(plan_sim_t *sim, fsdp_dtype_t dtype, int64_t sent)
{
    plan_touch(sim, FSDP_MEM_COMM, parts(sim) * 4 * (int64_t)sizeof(size_t));
    plan_call(sim, FSDP_ALL_TO_ALL, sent * plan_size(dtype));
}

int64_t
plan_expert_room(const plan_sim_t *sim, const plan_node_t *node)
{
    if (node->op == PLAN_ROUTE)
        return route_room(sim, node);
    if (node->op == PLAN_DISPATCH || node->op == PLAN_EXCHANGE)
        return 0; /* rows are copied as they are */
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

/* dx with all weights, then dW expert by expert, of each rank's rows one term. */
static void
grouped_backward(plan_sim_t *sim, plan_node_t *node)
{
    fsdp_dtype_t dtype = node->output->dtype;
    int64_t x = node->input[0]->numel, y = node->output->numel;
    int64_t weight = node->param[0]->numel, one = weight / local_experts(sim);
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    plan_touch(sim, FSDP_MEM_ACTIVATION, plan_wide(dtype, x + y + weight));
    plan_set_grad(sim, node, 0, dx);
    plan_new_param_grad(sim, node->param[0]);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               plan_wide(dtype, x + y + one) +
                   (parts(sim) - 1) * one * plan_size(dtype));
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

static void
exchange_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    exchange(sim, node->output->dtype, node->returned);
    plan_set_grad(sim, node, 0, dx);
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
    case PLAN_EXCHANGE:
        exchange_backward(sim, node);
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
    int64_t out = (int64_t)weight->shape[1];
    return plan_record(sim, PLAN_GROUPED_LINEAR, x, NULL, NULL, weight, NULL,
                       rows, rows * out, x->dtype);
}

static plan_tensor_t *
view(plan_sim_t *sim, plan_tensor_t *x, int64_t rows)
{
    return plan_record(sim, PLAN_VIEW, x, NULL, NULL, NULL, NULL, rows,
                       x->numel, x->dtype);
}

plan_unit_t *
plan_experts_unit(plan_sim_t *sim, const plan_unit_t *block)
{
    return parts(sim) > 1 ? &sim->unit[block - sim->unit + sim->num_blocks]
                          : NULL;
}

/* hidden [R,H], gelu [R,H], down [R,C] */
static plan_tensor_t *
ask(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *expert, int64_t rows)
{
    plan_tensor_t *y = grouped_linear(sim, x, &expert[0], rows);
    y = plan_record(sim, PLAN_ACTIVATION, y, NULL, NULL, NULL, NULL, rows,
                    y->numel, y->dtype);
    return grouped_linear(sim, y, &expert[1], rows);
}

/* Rows that go, `out` of them to other ranks, and `back` rows from those. */
static plan_tensor_t *
send(plan_sim_t *sim, plan_tensor_t *x, int64_t rows, int64_t out, int64_t back)
{
    int64_t columns = (int64_t)sim->config.gpt2.n_embd;
    plan_tensor_t *y = plan_record(sim, PLAN_EXCHANGE, x, NULL, NULL, NULL,
                                   NULL, rows, rows * columns, x->dtype);
    exchange(sim, x->dtype, out * columns);
    if (y->maker != NULL)
        y->maker->returned = back * columns;
    return y;
}

/* The counts [P,E/P] that others send, rows there and back. */
static plan_tensor_t *
ask_ranks(plan_sim_t *sim, plan_tensor_t *x, plan_unit_t *unit, int64_t rows)
{
    int others = parts(sim) - 1, load = sim->config.expert_load;
    int64_t got = load == 0 ? rows : load < 0 ? 0 : rows * parts(sim);
    int64_t out = load == 0 ? rows * others / parts(sim) : rows;
    int64_t in = load == 0 ? out : load < 0 ? 0 : rows * others;
    plan_tensor_new(sim, FSDP_INT32, num_experts(sim));
    plan_touch(sim, FSDP_MEM_COMM, parts(sim) * 5 * (int64_t)sizeof(size_t));
    plan_call(sim, FSDP_ALL_TO_ALL,
              others * local_experts(sim) * (int64_t)sizeof(int32_t));
    plan_tensor_t *y = send(sim, x, got, out, in);
    y = sim->engine->pre_forward(sim, unit, y);
    y = ask(sim, y, unit->param, got);
    y = sim->engine->post_forward(sim, unit, y);
    return send(sim, y, rows, in, out);
}

/* logits [N,E]; experts and origins [R] and counts [E], weights [R]; rows [R,C],
 * the experts' [R,C]; the sum [N,C]. */
plan_tensor_t *
plan_experts(plan_sim_t *sim, plan_tensor_t *x, plan_param_t *gate,
             plan_param_t *expert, plan_unit_t *unit, int64_t rows)
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
    y = unit != NULL ? ask_ranks(sim, y, unit, routed)
                     : ask(sim, y, expert, routed);
    y = plan_record(sim, PLAN_COMBINE, y, weight, origin, NULL, NULL, rows,
                    x->numel, x->dtype);
    return view(sim, y, rows);
}
