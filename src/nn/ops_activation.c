#include "nn/ops_internal.h"

/* An operator's pair of kernels. */
typedef enum which { GELU_TANH, GELU_ERF, SILU, RELU } which_t;

static void
compute(which_t which, const fsdp_tensor_t *x, fsdp_tensor_t *y)
{
    fsdp_wide_t w = fsdp_wide(x->dtype);
    size_t n = fsdp_tensor_numel(x);
    const void *in = fsdp_wide_in(&w, x->data, n);
    void *out = fsdp_wide_out(&w, y->data, n);
    if (which == GELU_TANH)
        w.k->gelu_tanh(in, out, n);
    else if (which == GELU_ERF)
        w.k->gelu_erf(in, out, n);
    else if (which == SILU)
        w.k->silu(in, out, n);
    else
        w.k->relu(in, out, n);
    fsdp_wide_end(&w);
}

static fsdp_tensor_t *
forward(fsdp_tape_t *tape, const fsdp_op_t *op, which_t which, fsdp_tensor_t *x)
{
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    compute(which, x, y);
    fsdp_tape_record(tape, op, fsdp_values1(x), NULL, 0, fsdp_values1(y), 0);
    return y;
}

/* `at`: the input or the output, whichever the kernel wants. */
static void
backward(fsdp_node_t *node, which_t which, const fsdp_tensor_t *at)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_wide_t w = fsdp_wide(dx->dtype);
    size_t n = fsdp_tensor_numel(dx);
    const void *in = fsdp_wide_in(&w, at->data, n);
    const void *dy = fsdp_wide_in(&w, fsdp_node_grad_output(node, 0)->data, n);
    void *out = fsdp_wide_out(&w, dx->data, n);
    if (which == GELU_TANH)
        w.k->gelu_tanh_backward(in, dy, out, n);
    else if (which == GELU_ERF)
        w.k->gelu_erf_backward(in, dy, out, n);
    else if (which == SILU)
        w.k->silu_backward(in, dy, out, n);
    else
        w.k->relu_backward(in, dy, out, n);
    fsdp_wide_end(&w);
    fsdp_node_set_grad_input(node, 0, dx);
}

static void
gelu_tanh_backward(fsdp_node_t *node)
{
    backward(node, GELU_TANH, fsdp_node_input(node, 0));
}

static void
gelu_erf_backward(fsdp_node_t *node)
{
    backward(node, GELU_ERF, fsdp_node_input(node, 0));
}

static void
silu_backward(fsdp_node_t *node)
{
    backward(node, SILU, fsdp_node_input(node, 0));
}

static void
relu_backward(fsdp_node_t *node)
{
    backward(node, RELU, fsdp_node_output(node, 0));
}

static const fsdp_op_t gelu_tanh_op = {"gelu_tanh", gelu_tanh_backward, NULL};
static const fsdp_op_t gelu_erf_op = {"gelu_erf", gelu_erf_backward, NULL};
static const fsdp_op_t silu_op = {"silu", silu_backward, NULL};
static const fsdp_op_t relu_op = {"relu", relu_backward, NULL};

fsdp_tensor_t *
fsdp_gelu_tanh(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &gelu_tanh_op, GELU_TANH, x);
}

fsdp_tensor_t *
fsdp_gelu_erf(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &gelu_erf_op, GELU_ERF, x);
}

fsdp_tensor_t *
fsdp_silu(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &silu_op, SILU, x);
}

fsdp_tensor_t *
fsdp_relu(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &relu_op, RELU, x);
}
