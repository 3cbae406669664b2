#include "fsdp/memory.h"
#include "nn/ops_internal.h"

/* Of each row, for the backward; of the type of the arithmetic. */
typedef struct statistics {
    void *mean, *rstd;
} statistics_t;

static void
free_statistics(void *saved)
{
    statistics_t *s = saved;
    fsdp_free(s->mean);
    fsdp_free(s->rstd);
}

static fsdp_tensor_t *
new_grad(fsdp_node_t *node, int i)
{
    return fsdp_op_wants_grad(node, i)
               ? fsdp_parameter_new_grad(fsdp_node_parameter(node, i))
               : NULL;
}

static void *
data_of(const fsdp_tensor_t *tensor)
{
    return tensor != NULL ? tensor->data : NULL;
}

static void
compute_grads(fsdp_node_t *node, fsdp_tensor_t *dx, fsdp_tensor_t *dweight,
              fsdp_tensor_t *dbias)
{
    const statistics_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *x = fsdp_node_input(node, 0);
    size_t rows = fsdp_op_rows(x), channels = fsdp_op_columns(x);
    size_t n = rows * channels;
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *in = fsdp_wide_in(&w, x->data, n);
    const void *weight = fsdp_wide_in(
        &w, fsdp_parameter_data(fsdp_node_parameter(node, 0)), channels);
    const void *dy = fsdp_wide_in(&w, fsdp_node_grad_output(node, 0)->data, n);
    void *out = fsdp_wide_out(&w, dx->data, n);
    void *out_weight = fsdp_wide_out(&w, data_of(dweight), channels);
    void *out_bias = fsdp_wide_out(&w, data_of(dbias), channels);
    w.k->layer_norm_backward(in, weight, s->mean, s->rstd, dy, out, out_weight,
                             out_bias, rows, channels);
    fsdp_wide_end(&w);
}

static void
layer_norm_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_tensor_t *dweight = new_grad(node, 0), *dbias = new_grad(node, 1);
    compute_grads(node, dx, dweight, dbias);
    if (fsdp_node_needs_grad(node, 0))
        fsdp_node_set_grad_input(node, 0, dx);
    else
        fsdp_tensor_destroy(&dx);
    if (dweight != NULL)
        fsdp_parameter_add_grad(fsdp_node_parameter(node, 0), dweight);
    if (dbias != NULL)
        fsdp_parameter_add_grad(fsdp_node_parameter(node, 1), dbias);
}

static const fsdp_op_t layer_norm_op = {"layer_norm", layer_norm_backward,
                                        free_statistics};

static statistics_t
new_statistics(const fsdp_tensor_t *x)
{
    size_t element = fsdp_dtype_size(fsdp_op_compute_dtype(x->dtype));
    size_t bytes = fsdp_op_rows(x) * element;
    return (statistics_t){fsdp_alloc(FSDP_MEM_ACTIVATION, bytes),
                          fsdp_alloc(FSDP_MEM_ACTIVATION, bytes)};
}

static void
normalize(const fsdp_tensor_t *x, const void *weight, const void *bias,
          double eps, const statistics_t *s, fsdp_tensor_t *y)
{
    size_t rows = fsdp_op_rows(x), channels = fsdp_op_columns(x);
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *in = fsdp_wide_in(&w, x->data, rows * channels);
    void *out = fsdp_wide_out(&w, y->data, rows * channels);
    weight = fsdp_wide_in(&w, weight, channels);
    bias = fsdp_wide_in(&w, bias, channels);
    w.k->layer_norm(in, weight, bias, out, s->mean, s->rstd, rows, channels,
                    eps);
    fsdp_wide_end(&w);
}

fsdp_tensor_t *
fsdp_layer_norm(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
                fsdp_parameter_t *bias, double eps)
{
    size_t channels = fsdp_op_columns(x);
    fsdp_op_check_parameter("layer_norm", weight, x->dtype, 1, &channels);
    fsdp_op_check_parameter("layer_norm", bias, x->dtype, 1, &channels);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    statistics_t s = new_statistics(x);
    normalize(x, fsdp_parameter_data(weight), fsdp_parameter_data(bias), eps,
              &s, y);
    fsdp_parameter_t *parameters[] = {weight, bias};
    fsdp_node_t *node =
        fsdp_tape_record(tape, &layer_norm_op, fsdp_values1(x), parameters, 2,
                         fsdp_values1(y), sizeof s);
    if (node != NULL)
        *(statistics_t *)fsdp_node_saved(node) = s;
    else
        free_statistics(&s);
    return y;
}
