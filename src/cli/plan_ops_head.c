/* What the head of a language model takes: logits and losses of a chunk of rows at
 * a time, and gradients at once. */
#include "cli/plan_sim.h"

/* A row's maximum, sum of exponentials and target's logit, of a chunk; and at the
 * end the gradient, while the head's own room of `room` bytes is there. */
static void
touch_room(plan_sim_t *sim, const plan_tensor_t *x, int64_t rows, int64_t chunk,
           int64_t room, bool grads)
{
    fsdp_dtype_t compute = plan_compute_dtype(x->dtype);
    if (sim->config.tp <= 1) {
        plan_touch(sim, FSDP_MEM_ACTIVATION, room);
        return;
    }
    room += 3 * chunk * plan_size(compute);
    plan_add(sim, FSDP_MEM_ACTIVATION, room);
    for (int64_t begin = 0; begin < rows; begin += chunk) {
        int64_t n = rows - begin < chunk ? rows - begin : chunk;
        plan_tp_sum(sim, compute, n);
        plan_tp_sum(sim, compute, 2 * n);
    }
    if (grads)
        plan_tp_sum(sim, x->dtype, x->numel);
    plan_drop(sim, FSDP_MEM_ACTIVATION, room);
}

/* Logits of 256 rows at a time and all losses; the weight, and with 16 bits the
 * weight's gradient, widened.  Each chunk's rows, and the gradients of these,
 * are widened too, and the logits rounded. */
void
plan_head_room(plan_sim_t *sim, const plan_node_t *node, bool grads)
{
    enum { CHUNK = 256 };
    const plan_tensor_t *x = node->input[0];
    int64_t size = plan_size(plan_compute_dtype(x->dtype));
    int64_t weight = node->param[0]->numel;
    int64_t channels = x->numel / node->rows, classes = weight / channels;
    int64_t chunk = node->rows < CHUNK ? node->rows : CHUNK;
    int64_t room = plan_wide(x->dtype, weight) * (grads ? 2 : 1) +
                   chunk * classes * size + node->rows * size;
    int64_t one = plan_wide(x->dtype, chunk * channels), rounded = 0, more;
    if (one > 0)
        rounded = chunk * classes * plan_size(x->dtype);
    more = grads && one > rounded ? one : rounded;
    touch_room(sim, x, node->rows, chunk, room + one + more, grads);
}

/* The gradients are made in the forward, while the logits are there; with 16
 * bits in the backward. */
bool
plan_head_is_late(const plan_node_t *node)
{
    fsdp_dtype_t dtype = node->input[0]->dtype;
    return plan_compute_dtype(dtype) != dtype;
}

void
plan_head_new_grads(plan_sim_t *sim, plan_node_t *node)
{
    const plan_tensor_t *x = node->input[0];
    node->head_grad = plan_block_new(sim, FSDP_MEM_ACTIVATION,
                                     x->numel * plan_size(x->dtype));
    plan_add(sim, FSDP_MEM_UNSHARDED_GRAD,
             node->param[0]->numel * plan_size(x->dtype));
}

void
plan_head_backward(plan_sim_t *sim, plan_node_t *node)
{
    if (plan_head_is_late(node)) {
        plan_head_new_grads(sim, node);
        plan_head_room(sim, node, true);
    }
    plan_block_t *dx = node->head_grad;
    node->head_grad = NULL;
    plan_set_grad(sim, node, 0, dx);
    plan_add_param_grad(sim, node->param[0]);
}
