#include "fsdp/memory.h"
#include "nn/ops_internal.h"

/* Of each row, for the backward; of the type of the arithmetic. */
typedef struct statistics {
    void *rstd;
} statistics_t;

static void
free_statistics(void *saved)
{
    fsdp_free(((statistics_t *)saved)->rstd);
}

static void
compute_grads(fsdp_node_t *node, fsdp_tensor_t *dx, fsdp_tensor_t *dweight)
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
    void *out_weight =
        fsdp_wide_out(&w, dweight != NULL ? dweight->data : NULL, channels);
    w.k->rms_norm_backward(in, weight, s->rstd, dy, out, out_weight, rows,
                           channels);
    fsdp_wide_end(&w);
}

static void
rms_norm_backward(fsdp_node_t *node)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_tensor_t *dweight =
        fsdp_op_wants_grad(node, 0) ? fsdp_parameter_new_grad(weight) : NULL;
    compute_grads(node, dx, dweight);
    if (fsdp_node_needs_grad(node, 0))
        fsdp_node_set_grad_input(node, 0, dx);
    else
        fsdp_tensor_destroy(&dx);
    if (dweight != NULL)
        fsdp_parameter_add_grad(weight, dweight);
}

static const fsdp_op_t rms_norm_op = {"rms_norm", rms_norm_backward,
                                      free_statistics};

static void
normalize(const fsdp_tensor_t *x, const void *weight, double eps,
          const statistics_t *s, fsdp_tensor_t *y)
{
    size_t rows = fsdp_op_rows(x), channels = fsdp_op_columns(x);
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *in = fsdp_wide_in(&w, x->data, rows * channels);
    void *out = fsdp_wide_out(&w, y->data, rows * channels);
    weight = fsdp_wide_in(&w, weight, channels);
    w.k->rms_norm(in, weight, out, s->rstd, rows, channels, eps);
    fsdp_wide_end(&w);
}

fsdp_tensor_t *
fsdp_rms_norm(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
              double eps)
{
    size_t channels = fsdp_op_columns(x);
    fsdp_op_check_parameter("rms_norm", weight, x->dtype, 1, &channels);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    size_t element = fsdp_dtype_size(fsdp_op_compute_dtype(x->dtype));
    statistics_t s = {
        fsdp_alloc(FSDP_MEM_ACTIVATION, fsdp_op_rows(x) * element)};
    normalize(x, fsdp_parameter_data(weight), eps, &s, y);
    fsdp_node_t *node = fsdp_tape_record(tape, &rms_norm_op, fsdp_values1(x),
                                         &weight, 1, fsdp_values1(y), sizeof s);
    if (node != NULL)
        *(statistics_t *)fsdp_node_saved(node) = s;
    else
        free_statistics(&s);
    return y;
}
