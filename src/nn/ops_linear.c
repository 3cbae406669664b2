/* F.linear and Hugging Face's Conv1D differ in how the weight is stored.
 *
 *     y[N,O] = x[N,I] W + bias        W = weight[O,I]^T or weight[I,O]
 *     dx = dy W^T                     dW = x^T dy, or dy^T x as stored
 *     dbias = sum over rows of dy */

#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "tensor/kernels.h"

typedef struct product {
    const char *op;
    bool out_in; /* the weight is [O,I] */
    size_t rows, in, out;
    const fsdp_kernels_t *k;
} product_t;

static product_t
describe(const char *op, bool out_in, const fsdp_tensor_t *x,
         const fsdp_parameter_t *weight)
{
    FSDP_CHECK(weight->ndim == 2, "%s: weight %s has %d dimensions, not 2", op,
               weight->name, weight->ndim);
    return (product_t){.op = op,
                       .out_in = out_in,
                       .rows = fsdp_op_rows(x),
                       .in = fsdp_op_columns(x),
                       .out = weight->shape[out_in ? 0 : 1],
                       .k = fsdp_kernels(x->dtype)};
}

static void
check_parameters(const product_t *p, const fsdp_tensor_t *x,
                 const fsdp_parameter_t *weight, const fsdp_parameter_t *bias)
{
    size_t shape[2] = {p->out_in ? p->out : p->in, p->out_in ? p->in : p->out};
    fsdp_op_check_parameter(p->op, weight, x->dtype, 2, shape);
    fsdp_op_check_parameter(p->op, bias, x->dtype, 1, &p->out);
}

static size_t
weight_stride(const product_t *p)
{
    return p->out_in ? p->in : p->out;
}

static void
input_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    const void *w = fsdp_parameter_data(fsdp_node_parameter(node, 0));
    p->k->gemm(false, !p->out_in, p->rows, p->in, p->out, 1, dy->data, p->out,
               w, weight_stride(p), 0, dx->data, p->in);
    fsdp_node_set_grad_input(node, 0, dx);
}

static void
weight_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    const void *x = fsdp_node_input(node, 0)->data;
    if (p->out_in)
        p->k->gemm(true, false, p->out, p->in, p->rows, 1, dy->data, p->out, x,
                   p->in, 0, dw->data, p->in);
    else
        p->k->gemm(true, false, p->in, p->out, p->rows, 1, x, p->in, dy->data,
                   p->out, 0, dw->data, p->out);
    fsdp_parameter_add_grad(weight, dw);
}

static void
bias_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_parameter_t *bias = fsdp_node_parameter(node, 1);
    fsdp_tensor_t *db = fsdp_parameter_new_grad(bias);
    p->k->sum_rows(dy->data, db->data, p->rows, p->out);
    fsdp_parameter_add_grad(bias, db);
}

static void
backward(fsdp_node_t *node, const char *op, bool out_in)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    product_t p = describe(op, out_in, fsdp_node_input(node, 0),
                           fsdp_node_parameter(node, 0));
    if (fsdp_node_needs_grad(node, 0))
        input_grad(&p, node, dy);
    if (fsdp_op_wants_grad(node, 0))
        weight_grad(&p, node, dy);
    if (fsdp_op_wants_grad(node, 1))
        bias_grad(&p, node, dy);
}

static void
linear_backward(fsdp_node_t *node)
{
    backward(node, "linear", true);
}

static void
conv1d_backward(fsdp_node_t *node)
{
    backward(node, "conv1d", false);
}

static const fsdp_op_t linear_op = {"linear", linear_backward, NULL};
static const fsdp_op_t conv1d_op = {"conv1d", conv1d_backward, NULL};

static fsdp_tensor_t *
forward(fsdp_tape_t *tape, const fsdp_op_t *op, bool out_in, fsdp_tensor_t *x,
        fsdp_parameter_t *weight, fsdp_parameter_t *bias)
{
    product_t p = describe(op->name, out_in, x, weight);
    check_parameters(&p, x, weight, bias);
    fsdp_tensor_t *y = fsdp_op_new_columns(tape, x, p.out);
    p.k->gemm(false, out_in, p.rows, p.out, p.in, 1, x->data, p.in,
              fsdp_parameter_data(weight), weight_stride(&p), 0, y->data,
              p.out);
    if (bias != NULL)
        p.k->add_bias(y->data, fsdp_parameter_data(bias), y->data, p.rows,
                      p.out);
    fsdp_parameter_t *parameters[] = {weight, bias};
    fsdp_tape_record(tape, op, fsdp_values1(x), parameters, 2, fsdp_values1(y),
                     0);
    return y;
}

fsdp_tensor_t *
fsdp_linear(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
            fsdp_parameter_t *bias)
{
    return forward(tape, &linear_op, true, x, weight, bias);
}

fsdp_tensor_t *
fsdp_conv1d(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
            fsdp_parameter_t *bias)
{
    return forward(tape, &conv1d_op, false, x, weight, bias);
}
