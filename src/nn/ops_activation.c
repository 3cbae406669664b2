#include "nn/ops_internal.h"
#include "tensor/kernels.h"

typedef void (*forward_fn_t)(const void *x, void *y, size_t n);
typedef void (*backward_fn_t)(const void *at, const void *dy, void *dx,
                              size_t n);

static fsdp_tensor_t *
forward(fsdp_tape_t *tape, const fsdp_op_t *op, forward_fn_t fn,
        fsdp_tensor_t *x)
{
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    fn(x->data, y->data, fsdp_tensor_numel(x));
    fsdp_tape_record(tape, op, fsdp_values1(x), NULL, 0, fsdp_values1(y), 0);
    return y;
}

/* `at`: the input or the output, whichever `fn` wants. */
static void
backward(fsdp_node_t *node, backward_fn_t fn, const fsdp_tensor_t *at)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fn(at->data, fsdp_node_grad_output(node, 0)->data, dx->data,
       fsdp_tensor_numel(dx));
    fsdp_node_set_grad_input(node, 0, dx);
}

static void
gelu_tanh_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *x = fsdp_node_input(node, 0);
    backward(node, fsdp_kernels(x->dtype)->gelu_tanh_backward, x);
}

static void
gelu_erf_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *x = fsdp_node_input(node, 0);
    backward(node, fsdp_kernels(x->dtype)->gelu_erf_backward, x);
}

static void
relu_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *y = fsdp_node_output(node, 0);
    backward(node, fsdp_kernels(y->dtype)->relu_backward, y);
}

static const fsdp_op_t gelu_tanh_op = {"gelu_tanh", gelu_tanh_backward, NULL};
static const fsdp_op_t gelu_erf_op = {"gelu_erf", gelu_erf_backward, NULL};
static const fsdp_op_t relu_op = {"relu", relu_backward, NULL};

fsdp_tensor_t *
fsdp_gelu_tanh(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &gelu_tanh_op, fsdp_kernels(x->dtype)->gelu_tanh, x);
}

fsdp_tensor_t *
fsdp_gelu_erf(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &gelu_erf_op, fsdp_kernels(x->dtype)->gelu_erf, x);
}

fsdp_tensor_t *
fsdp_relu(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    return forward(tape, &relu_op, fsdp_kernels(x->dtype)->relu, x);
}
