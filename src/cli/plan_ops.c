/* What each operator takes and keeps.
 *
 * Forward: the output, what is saved for the backward beside inputs and output,
 * and room while it runs.  Backward: the gradients of inputs and parameters,
 * and room while it runs.  On 16-bit types an operator computes in float32:
 * whatever it reads or writes is there once more, widened, until it ends. */
#include "cli/plan_sim.h"

int64_t
plan_size(fsdp_dtype_t dtype)
{
    return (int64_t)fsdp_dtype_size(dtype);
}

fsdp_dtype_t
plan_compute_dtype(fsdp_dtype_t dtype)
{
    return dtype == FSDP_BF16 || dtype == FSDP_FP16 ? FSDP_FP32 : dtype;
}

int64_t
plan_wide(fsdp_dtype_t dtype, int64_t numel)
{
    fsdp_dtype_t compute = plan_compute_dtype(dtype);
    return compute != dtype ? numel * plan_size(compute) : 0;
}

static int64_t
param_numel(const plan_node_t *node, int i)
{
    return node->param[i] != NULL ? node->param[i]->numel : 0;
}

/* ---- attention's tiles --------------------------------------------------- */

/* A panel is one cache line of numbers, a tile four panels. */
typedef struct tiles {
    int64_t panel, tile, depth, padded, size;
} tiles_t;

static tiles_t
tiles_of(const plan_sim_t *sim, fsdp_dtype_t dtype)
{
    const plan_config_t *c = &sim->config;
    tiles_t t = {.size = plan_size(plan_compute_dtype(dtype))};
    t.panel = 64 / t.size;
    t.tile = 4 * t.panel;
    t.depth = (int64_t)(c->model == PLAN_GPT2 ? c->gpt2.n_embd / c->gpt2.n_head
                                              : c->llama.head_dim);
    t.padded = (t.depth + t.panel - 1) / t.panel * t.panel;
    return t;
}

/* Per thread: queries, result, values [D][tile]; scores and factors
 * [tile][tile]; maximum and sum [tile]. */
static int64_t
attention_room(const plan_sim_t *sim, fsdp_dtype_t dtype)
{
    tiles_t t = tiles_of(sim, dtype);
    return sim->config.threads * (3 * t.depth + 2 * t.tile + 2) * t.tile *
           t.size;
}

static int64_t
attention_backward_room(const plan_sim_t *sim, fsdp_dtype_t dtype)
{
    tiles_t t = tiles_of(sim, dtype);
    return sim->config.threads * (4 * t.depth + 2 * t.padded + 3 * t.tile + 3) *
           t.tile * t.size;
}

/* The logarithm of the sum of exponentials, of each row and head. */
static int64_t
heads_of(const plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    int64_t heads =
        (int64_t)(c->model == PLAN_GPT2 ? c->gpt2.n_head
                                        : c->llama.num_attention_heads);
    return c->tp > 1 ? heads / c->tp : heads;
}

/* ---- forward ------------------------------------------------------------- */

static int64_t
saved_bytes(const plan_sim_t *sim, const plan_node_t *node)
{
    int64_t size = plan_size(plan_compute_dtype(node->output->dtype));
    switch (node->op) {
    case PLAN_LAYER_NORM: /* mean and reciprocal deviation of each row */
        return 2 * node->rows * size;
    case PLAN_RMS_NORM:
        return node->rows * size;
    case PLAN_ATTENTION:
    case PLAN_GROUPED_ATTENTION:
        return node->rows * heads_of(sim) * size;
    default:
        return plan_expert_saved(sim, node);
    }
}

/* Everything read and written, widened; and what the kernel asks for. */
static int64_t
forward_room(const plan_sim_t *sim, const plan_node_t *node)
{
    fsdp_dtype_t dtype = node->output->dtype;
    int64_t numel =
        node->output->numel + param_numel(node, 0) + param_numel(node, 1);
    for (int i = 0; i < node->num_inputs; i++)
        numel += node->input[i]->numel;
    switch (node->op) {
    case PLAN_CAST:
    case PLAN_POSITION: /* rows are copied as they are */
    case PLAN_TP_SUM:
        return 0;
    case PLAN_EMBEDDING:
        return plan_vocabulary_room(sim, node, false);
    case PLAN_ROUTE:
    case PLAN_DISPATCH:
    case PLAN_COMBINE:
    case PLAN_EXCHANGE:
        return plan_expert_room(sim, node);
    case PLAN_CROSS_ENTROPY: /* a loss for each row */
        return node->rows * plan_size(node->input[0]->dtype);
    case PLAN_ATTENTION:
    case PLAN_GROUPED_ATTENTION:
        return plan_wide(dtype, numel) + attention_room(sim, dtype);
    default:
        return plan_wide(dtype, numel);
    }
}

void
plan_op_forward(plan_sim_t *sim, plan_node_t *node)
{
    plan_tensor_t *y = node->output;
    if (node->op == PLAN_VIEW || node->op == PLAN_TP_COPY) {
        y->block = plan_block_share(node->input[0]->block);
        return;
    }
    y->block = plan_block_new(sim, FSDP_MEM_ACTIVATION,
                              y->numel * plan_size(y->dtype));
    if (node->op == PLAN_TP_SUM)
        plan_tp_sum(sim, y->dtype, y->numel);
    node->saved = saved_bytes(sim, node);
    plan_add(sim, FSDP_MEM_ACTIVATION, node->saved);
    if (node->op != PLAN_HEAD) {
        plan_touch(sim, FSDP_MEM_ACTIVATION, forward_room(sim, node));
        return;
    }
    bool grads = sim->tape->recording && !plan_head_is_late(node);
    if (grads)
        plan_head_new_grads(sim, node);
    plan_head_room(sim, node, grads);
}

/* ---- gradients of parameters --------------------------------------------- */

static int64_t
param_bytes(const plan_sim_t *sim, const plan_param_t *param)
{
    return param->numel * plan_size(sim->data_dtype);
}

void
plan_new_param_grad(plan_sim_t *sim, const plan_param_t *param)
{
    if (param != NULL)
        plan_add(sim, FSDP_MEM_UNSHARDED_GRAD, param_bytes(sim, param));
}

/* Uses of one backward are added up first. */
void
plan_add_param_grad(plan_sim_t *sim, plan_param_t *param)
{
    if (param == NULL)
        return;
    if (param->incoming) {
        plan_touch(sim, FSDP_MEM_ACTIVATION,
                   3 * plan_wide(sim->data_dtype, param->numel));
        plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD, param_bytes(sim, param));
    }
    param->incoming = true;
    if (--param->awaited > 0)
        return;
    param->incoming = false;
    param->grad = true;
}

/* ---- backward ------------------------------------------------------------ */

plan_block_t *
plan_new_grad(plan_sim_t *sim, const plan_node_t *node, int i)
{
    const plan_tensor_t *x = node->input[i];
    return plan_block_new(sim, FSDP_MEM_ACTIVATION,
                          x->numel * plan_size(x->dtype));
}

static void
bias_backward(plan_sim_t *sim, plan_node_t *node, plan_param_t *bias)
{
    plan_new_param_grad(sim, bias);
    plan_touch(
        sim, FSDP_MEM_ACTIVATION,
        plan_wide(node->output->dtype, node->output->numel + bias->numel));
    plan_add_param_grad(sim, bias);
}

/* dx = dy W', dW = x' dy, dbias = the sum of dy: one after another. */
static void
linear_backward(plan_sim_t *sim, plan_node_t *node)
{
    fsdp_dtype_t dtype = node->output->dtype;
    int64_t x = node->input[0]->numel, y = node->output->numel;
    int64_t all = plan_wide(dtype, x + y + node->param[0]->numel);
    if (node->input[0]->needs_grad) {
        plan_block_t *dx = plan_new_grad(sim, node, 0);
        plan_touch(sim, FSDP_MEM_ACTIVATION, all);
        plan_set_grad(sim, node, 0, dx);
    }
    plan_new_param_grad(sim, node->param[0]);
    plan_touch(sim, FSDP_MEM_ACTIVATION, all);
    plan_add_param_grad(sim, node->param[0]);
    if (node->param[1] != NULL)
        bias_backward(sim, node, node->param[1]);
}

/* The gradient's sum over the ranks is a new tensor. */
static void
copy_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    plan_tp_sum(sim, node->output->dtype, node->output->numel);
    plan_set_grad(sim, node, 0, dx);
}

/* All gradients at once, of the input and of weight and bias. */
static void
norm_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *dx = plan_new_grad(sim, node, 0);
    int64_t weight = param_numel(node, 0), bias = param_numel(node, 1);
    plan_new_param_grad(sim, node->param[0]);
    plan_new_param_grad(sim, node->param[1]);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               plan_wide(node->output->dtype,
                         3 * node->input[0]->numel + 2 * weight + bias));
    plan_set_grad(sim, node, 0, dx);
    plan_add_param_grad(sim, node->param[0]);
    plan_add_param_grad(sim, node->param[1]);
}

/* `read` elements are read beside the gradient that is made. */
static void
elements_backward(plan_sim_t *sim, plan_node_t *node, int i, int64_t read)
{
    plan_block_t *dx = plan_new_grad(sim, node, i);
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               plan_wide(node->output->dtype, node->input[i]->numel + read));
    plan_set_grad(sim, node, i, dx);
}

static void
table_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_new_param_grad(sim, node->param[0]);
    int64_t room = plan_wide(node->output->dtype,
                             node->output->numel + node->param[0]->numel);
    if (node->op == PLAN_EMBEDDING)
        room += plan_vocabulary_room(sim, node, true);
    plan_touch(sim, FSDP_MEM_ACTIVATION, room);
    plan_add_param_grad(sim, node->param[0]);
}

/* Inputs and their gradients, the output and its gradient. */
static void
attention_backward(plan_sim_t *sim, plan_node_t *node)
{
    plan_block_t *grad[PLAN_MAX_INPUTS];
    fsdp_dtype_t dtype = node->output->dtype;
    int64_t numel = 2 * node->output->numel;
    for (int i = 0; i < node->num_inputs; i++) {
        grad[i] = plan_new_grad(sim, node, i);
        numel += 2 * node->input[i]->numel;
    }
    plan_touch(sim, FSDP_MEM_ACTIVATION,
               plan_wide(dtype, numel) + attention_backward_room(sim, dtype));
    for (int i = 0; i < node->num_inputs; i++)
        plan_set_grad(sim, node, i, grad[i]);
}

/* The gradient itself goes on. */
static void
pass(plan_sim_t *sim, plan_node_t *node)
{
    for (int i = 0; i < node->num_inputs; i++)
        if (node->input[i]->needs_grad)
            plan_set_grad(sim, node, i, plan_block_share(node->grad));
}

void
plan_op_backward(plan_sim_t *sim, plan_node_t *node)
{
    int64_t y = node->output->numel;
    switch (node->op) {
    case PLAN_LINEAR:
        linear_backward(sim, node);
        break;
    case PLAN_LAYER_NORM:
    case PLAN_RMS_NORM:
        norm_backward(sim, node);
        break;
    case PLAN_ACTIVATION: /* the input or output, and its gradient */
        elements_backward(sim, node, 0, 2 * y);
        break;
    case PLAN_DROPOUT:
    case PLAN_ROTARY:
        elements_backward(sim, node, 0, y);
        break;
    case PLAN_MULTIPLY:
        elements_backward(sim, node, 0, 2 * y);
        elements_backward(sim, node, 1, 2 * y);
        break;
    case PLAN_CAST: {
        plan_block_t *dx = plan_new_grad(sim, node, 0);
        plan_set_grad(sim, node, 0, dx);
        break;
    }
    case PLAN_EMBEDDING:
    case PLAN_POSITION:
        table_backward(sim, node);
        break;
    case PLAN_ATTENTION:
    case PLAN_GROUPED_ATTENTION:
        attention_backward(sim, node);
        break;
    case PLAN_HEAD:
        plan_head_backward(sim, node);
        break;
    case PLAN_CROSS_ENTROPY: {
        plan_block_t *dx = plan_new_grad(sim, node, 0);
        plan_touch(sim, FSDP_MEM_ACTIVATION,
                   node->rows * plan_size(node->input[0]->dtype));
        plan_set_grad(sim, node, 0, dx);
        break;
    }
    case PLAN_ROUTE:
    case PLAN_DISPATCH:
    case PLAN_GROUPED_LINEAR:
    case PLAN_COMBINE:
    case PLAN_EXCHANGE:
        plan_expert_backward(sim, node);
        break;
    case PLAN_TP_COPY:
        copy_backward(sim, node);
        break;
    case PLAN_ADD_BIAS:
        bias_backward(sim, node, node->param[0]);
        pass(sim, node);
        break;
    case PLAN_ADD:
    case PLAN_VIEW:
    case PLAN_TP_SUM:
    case PLAN_AFTER_GRADS:
        pass(sim, node);
        break;
    }
}
