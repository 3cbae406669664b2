#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "tensor/kernels.h"

/* Of each row, for the backward. */
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

static void
layer_norm_backward(fsdp_node_t *node)
{
    const statistics_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *x = fsdp_node_input(node, 0);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_tensor_t *dweight = new_grad(node, 0), *dbias = new_grad(node, 1);
    fsdp_kernels(x->dtype)->layer_norm_backward(
        x->data, fsdp_parameter_data(fsdp_node_parameter(node, 0)), s->mean,
        s->rstd, dy->data, dx->data, dweight != NULL ? dweight->data : NULL,
        dbias != NULL ? dbias->data : NULL, fsdp_op_rows(x),
        fsdp_op_columns(x));
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

fsdp_tensor_t *
fsdp_layer_norm(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_parameter_t *weight,
                fsdp_parameter_t *bias, double eps)
{
    size_t rows = fsdp_op_rows(x), channels = fsdp_op_columns(x);
    fsdp_op_check_parameter("layer_norm", weight, x->dtype, 1, &channels);
    fsdp_op_check_parameter("layer_norm", bias, x->dtype, 1, &channels);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    size_t bytes = rows * fsdp_dtype_size(x->dtype);
    statistics_t s = {fsdp_alloc(FSDP_MEM_ACTIVATION, bytes),
                      fsdp_alloc(FSDP_MEM_ACTIVATION, bytes)};
    fsdp_kernels(x->dtype)->layer_norm(x->data, fsdp_parameter_data(weight),
                                       fsdp_parameter_data(bias), y->data,
                                       s.mean, s.rstd, rows, channels, eps);
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
