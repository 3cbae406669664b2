/* F.linear and Hugging Face's Conv1D differ in how the weight is stored.
 *
 *     y[N,O] = x[N,I] W + bias        W = weight[O,I]^T or weight[I,O]
 *     dx = dy W^T                     dW = x^T dy, or dy^T x as stored
 *     dbias = sum over rows of dy
 *
 * Each of the four is one result, rounded once. */

#include "fsdp/status.h"
#include "nn/ops_internal.h"

typedef struct product {
    const char *op;
    bool out_in; /* the weight is [O,I] */
    size_t rows, in, out;
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
                       .out = weight->shape[out_in ? 0 : 1]};
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
    fsdp_wide_t w = fsdp_wide(dx->dtype);
    const void *up = fsdp_wide_in(&w, dy->data, p->rows * p->out);
    const void *weight = fsdp_wide_in(
        &w, fsdp_parameter_data(fsdp_node_parameter(node, 0)), p->in * p->out);
    void *out = fsdp_wide_out(&w, dx->data, p->rows * p->in);
    w.k->gemm(false, !p->out_in, p->rows, p->in, p->out, 1, up, p->out, weight,
              weight_stride(p), 0, out, p->in);
    fsdp_wide_end(&w);
    fsdp_node_set_grad_input(node, 0, dx);
}

static void
weight_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    fsdp_wide_t w = fsdp_wide(dw->dtype);
    const void *up = fsdp_wide_in(&w, dy->data, p->rows * p->out);
    const void *x =
        fsdp_wide_in(&w, fsdp_node_input(node, 0)->data, p->rows * p->in);
    void *out = fsdp_wide_out(&w, dw->data, p->in * p->out);
    if (p->out_in)
        w.k->gemm(true, false, p->out, p->in, p->rows, 1, up, p->out, x, p->in,
                  0, out, p->in);
    else
        w.k->gemm(true, false, p->in, p->out, p->rows, 1, x, p->in, up, p->out,
                  0, out, p->out);
    fsdp_wide_end(&w);
    fsdp_parameter_add_grad(weight, dw);
}

static void
bias_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_parameter_t *bias = fsdp_node_parameter(node, 1);
    fsdp_tensor_t *db = fsdp_parameter_new_grad(bias);
    fsdp_wide_t w = fsdp_wide(db->dtype);
    const void *up = fsdp_wide_in(&w, dy->data, p->rows * p->out);
    w.k->sum_rows(up, fsdp_wide_out(&w, db->data, p->out), p->rows, p->out);
    fsdp_wide_end(&w);
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

static void
multiply(const product_t *p, const fsdp_tensor_t *x, const void *weight,
         const void *bias, fsdp_tensor_t *y)
{
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *in = fsdp_wide_in(&w, x->data, p->rows * p->in);
    void *out = fsdp_wide_out(&w, y->data, p->rows * p->out);
    weight = fsdp_wide_in(&w, weight, p->in * p->out);
    bias = fsdp_wide_in(&w, bias, p->out);
    w.k->gemm(false, p->out_in, p->rows, p->out, p->in, 1, in, p->in, weight,
              weight_stride(p), 0, out, p->out);
    if (bias != NULL)
        w.k->add_bias(out, bias, out, p->rows, p->out);
    fsdp_wide_end(&w);
}

static fsdp_tensor_t *
forward(fsdp_tape_t *tape, const fsdp_op_t *op, bool out_in, fsdp_tensor_t *x,
        fsdp_parameter_t *weight, fsdp_parameter_t *bias)
{
    product_t p = describe(op->name, out_in, x, weight);
    check_parameters(&p, x, weight, bias);
    fsdp_tensor_t *y = fsdp_op_new_columns(tape, x, p.out);
    multiply(&p, x, fsdp_parameter_data(weight),
             bias != NULL ? fsdp_parameter_data(bias) : NULL, y);
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
