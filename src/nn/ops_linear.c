/* F.linear and Hugging Face's Conv1D differ in how the weight is stored.
 *
 *     y[N,O] = x[N,I] W + bias        W = weight[O,I]^T or weight[I,O]
 *     dx = dy W^T                     dW = x^T dy, or dy^T x as stored
 *     dbias = sum over rows of dy
 *
 * Each of the four is one result, rounded once; but where a sum is cut into the
 * terms of several ranks, each term is one, and each addition. */

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "nn/ops_parallel.h"

typedef struct product {
    const char *op;
    bool out_in; /* the weight is [O,I] */
    size_t rows, in, out;
    const fsdp_product_cut_t *cut; /* NULL: no sum is cut */
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

/* ---- in the place of several ranks --------------------------------------- */

/* y[N,M] = a[N,K] W, where K is cut; W is stored [K,M], or [M,K] if
 * `transposed`. */
typedef struct cut_sum {
    const fsdp_parts_t *parts;
    fsdp_dtype_t dtype;
    bool transposed;
    size_t n, m, k;
    const void *a, *weight;
} cut_sum_t;

/* The product of part i of `a` and W, both copied to where a rank would have
 * them; the caller frees it. */
static void *
one_term(const cut_sum_t *s, int i)
{
    size_t size = fsdp_dtype_size(s->dtype);
    size_t k = s->k / (size_t)s->parts->count;
    void *a = fsdp_alloc(FSDP_MEM_ACTIVATION, s->n * k * size);
    void *weight = fsdp_alloc(FSDP_MEM_ACTIVATION, s->m * k * size);
    void *term = fsdp_alloc(FSDP_MEM_ACTIVATION, s->n * s->m * size);
    fsdp_parts_take(s->parts, i, s->a, s->n, s->k, size, a);
    if (s->transposed)
        fsdp_parts_take(s->parts, i, s->weight, s->m, s->k, size, weight);
    else
        fsdp_parts_take(s->parts, i, s->weight, 1, s->k, s->m * size, weight);
    fsdp_wide_t w = fsdp_wide(s->dtype);
    const void *left = fsdp_wide_in(&w, a, s->n * k);
    const void *right = fsdp_wide_in(&w, weight, s->m * k);
    w.k->gemm(false, s->transposed, s->n, s->m, k, 1, left, k, right,
              s->transposed ? k : s->m, 0, fsdp_wide_out(&w, term, s->n * s->m),
              s->m);
    fsdp_wide_end(&w);
    fsdp_free(weight);
    fsdp_free(a);
    return term;
}

static void
sum_of_terms(const cut_sum_t *s, void *y)
{
    int count = s->parts->count;
    void **term = fsdp_alloc(FSDP_MEM_OTHER, (size_t)count * sizeof *term);
    for (int i = 0; i < count; i++)
        term[i] = one_term(s, i);
    fsdp_parts_sum(s->parts, s->dtype, term, y, s->n * s->m);
    for (int i = 0; i < count; i++)
        fsdp_free(term[i]);
    fsdp_free(term);
}

/* ---- backward ------------------------------------------------------------ */

static void
whole_input_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy,
                 fsdp_tensor_t *dx)
{
    fsdp_wide_t w = fsdp_wide(dx->dtype);
    const void *up = fsdp_wide_in(&w, dy->data, p->rows * p->out);
    const void *weight = fsdp_wide_in(
        &w, fsdp_parameter_data(fsdp_node_parameter(node, 0)), p->in * p->out);
    void *out = fsdp_wide_out(&w, dx->data, p->rows * p->in);
    w.k->gemm(false, !p->out_in, p->rows, p->in, p->out, 1, up, p->out, weight,
              weight_stride(p), 0, out, p->in);
    fsdp_wide_end(&w);
}

static void
input_grad(const product_t *p, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    if (p->cut == NULL || p->cut->inputs)
        whole_input_grad(p, node, dy, dx);
    else
        sum_of_terms(
            &(cut_sum_t){&p->cut->parts, dx->dtype, !p->out_in, p->rows, p->in,
                         p->out, dy->data,
                         fsdp_parameter_data(fsdp_node_parameter(node, 0))},
            dx->data);
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
bias_grad(const product_t *p, fsdp_parameter_t *bias, const fsdp_tensor_t *dy)
{
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
    p.cut = fsdp_node_saved(node);
    if (fsdp_node_needs_grad(node, 0))
        input_grad(&p, node, dy);
    if (fsdp_op_wants_grad(node, 0))
        weight_grad(&p, node, dy);
    if (fsdp_op_wants_grad(node, 1))
        bias_grad(&p, fsdp_node_parameter(node, 1), dy);
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

/* ---- forward ------------------------------------------------------------- */

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

/* A sum that is cut has no bias: it would be added once to each term. */
fsdp_tensor_t *
fsdp_op_product(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
                fsdp_parameter_t *bias, bool out_in,
                const fsdp_product_cut_t *cut)
{
    const fsdp_op_t *op = out_in ? &linear_op : &conv1d_op;
    product_t p = describe(op->name, out_in, x, weight);
    check_parameters(&p, x, weight, bias);
    FSDP_CHECK(cut == NULL || !cut->inputs || bias == NULL,
               "%s: a bias within a sum that is cut", op->name);
    fsdp_tensor_t *y = fsdp_op_new_columns(tape, x, p.out);
    const void *w = fsdp_parameter_data(weight);
    if (cut != NULL && cut->inputs)
        sum_of_terms(&(cut_sum_t){&cut->parts, x->dtype, out_in, p.rows, p.out,
                                  p.in, x->data, w},
                     y->data);
    else
        multiply(&p, x, w, bias != NULL ? fsdp_parameter_data(bias) : NULL, y);
    fsdp_parameter_t *parameters[] = {weight, bias};
    fsdp_node_t *node =
        fsdp_tape_record(tape, op, fsdp_values1(x), parameters, 2,
                         fsdp_values1(y), cut != NULL ? sizeof *cut : 0);
    if (node != NULL && cut != NULL)
        *(fsdp_product_cut_t *)fsdp_node_saved(node) = *cut;
    return y;
}

fsdp_tensor_t *
fsdp_linear(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
            fsdp_parameter_t *bias)
{
    return fsdp_op_product(tape, x, weight, bias, true, NULL);
}

fsdp_tensor_t *
fsdp_conv1d(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
            fsdp_parameter_t *bias)
{
    return fsdp_op_product(tape, x, weight, bias, false, NULL);
}

/* ---- the bias alone ------------------------------------------------------ */

static void
add_bias_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_parameter_t *bias = fsdp_node_parameter(node, 0);
    product_t p = {.rows = fsdp_op_rows(dy), .out = fsdp_op_columns(dy)};
    if (fsdp_op_wants_grad(node, 0))
        bias_grad(&p, bias, dy);
    if (fsdp_node_needs_grad(node, 0))
        fsdp_node_set_grad_input(node, 0,
                                 fsdp_tensor_view(dy, 0, dy->ndim, dy->shape));
}

static const fsdp_op_t add_bias_op = {"add_bias", add_bias_backward, NULL};

fsdp_tensor_t *
fsdp_op_add_bias(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *bias)
{
    size_t rows = fsdp_op_rows(x), columns = fsdp_op_columns(x);
    fsdp_op_check_parameter("add_bias", bias, x->dtype, 1, &columns);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *in = fsdp_wide_in(&w, x->data, rows * columns);
    const void *b = fsdp_wide_in(&w, fsdp_parameter_data(bias), columns);
    w.k->add_bias(in, b, fsdp_wide_out(&w, y->data, rows * columns), rows,
                  columns);
    fsdp_wide_end(&w);
    fsdp_tape_record(tape, &add_bias_op, fsdp_values1(x), &bias, 1,
                     fsdp_values1(y), 0);
    return y;
}
