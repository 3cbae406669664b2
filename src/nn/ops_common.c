#include "nn/ops_internal.h"

#include <string.h>

#include "fsdp/status.h"

enum { SHAPE_TEXT = 128 };

size_t
fsdp_op_columns(const fsdp_tensor_t *x)
{
    FSDP_CHECK(x->ndim >= 1, "an operator on rows got a scalar");
    return x->shape[x->ndim - 1];
}

size_t
fsdp_op_rows(const fsdp_tensor_t *x)
{
    size_t rows = 1;
    for (int d = 0; d + 1 < x->ndim; d++)
        rows *= x->shape[d];
    return rows;
}

fsdp_tensor_t *
fsdp_op_new_like(fsdp_tape_t *tape, const fsdp_tensor_t *x)
{
    return fsdp_tape_new_tensor(tape, x->dtype, x->ndim, x->shape);
}

fsdp_tensor_t *
fsdp_op_new_columns(fsdp_tape_t *tape, const fsdp_tensor_t *x, size_t columns)
{
    size_t shape[FSDP_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = columns;
    return fsdp_tape_new_tensor(tape, x->dtype, x->ndim, shape);
}

fsdp_tensor_t *
fsdp_op_new_scalar(fsdp_tape_t *tape, fsdp_dtype_t dtype)
{
    return fsdp_tape_new_tensor(tape, dtype, 0, NULL);
}

static void
format_shape(int ndim, const size_t *shape, char text[SHAPE_TEXT])
{
    fsdp_tensor_t tensor = {.ndim = ndim};
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof *shape);
    fsdp_tensor_format_shape(&tensor, text, SHAPE_TEXT);
}

void
fsdp_op_check_parameter(const char *op, const fsdp_parameter_t *parameter,
                        fsdp_dtype_t dtype, int ndim, const size_t *shape)
{
    if (parameter == NULL)
        return;
    if (parameter->data_dtype == dtype && parameter->ndim == ndim &&
        memcmp(parameter->shape, shape, (size_t)ndim * sizeof *shape) == 0)
        return;
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    format_shape(parameter->ndim, parameter->shape, have);
    format_shape(ndim, shape, want);
    fsdp_die(FSDP_EXIT_FAULT,
             "%s: parameter %s is %s %s, its input asks for %s %s", op,
             parameter->name, fsdp_dtype_name(parameter->data_dtype), have,
             fsdp_dtype_name(dtype), want);
}

void
fsdp_op_check_alike(const char *op, const fsdp_tensor_t *a,
                    const fsdp_tensor_t *b)
{
    if (a->dtype == b->dtype && fsdp_tensor_same_shape(a, b))
        return;
    char left[SHAPE_TEXT], right[SHAPE_TEXT];
    fsdp_tensor_format_shape(a, left, sizeof left);
    fsdp_tensor_format_shape(b, right, sizeof right);
    fsdp_die(FSDP_EXIT_FAULT, "%s: %s %s and %s %s are not alike", op,
             fsdp_dtype_name(a->dtype), left, fsdp_dtype_name(b->dtype), right);
}

void
fsdp_op_check_int32(const char *op, const fsdp_tensor_t *index)
{
    FSDP_CHECK(index->dtype == FSDP_INT32, "%s: indices are %s, not int32", op,
               fsdp_dtype_name(index->dtype));
}

void
fsdp_op_sum(const fsdp_tensor_t *a, const fsdp_tensor_t *b, fsdp_tensor_t *y)
{
    fsdp_wide_t w = fsdp_wide(a->dtype);
    size_t n = fsdp_tensor_numel(a);
    const void *left = fsdp_wide_in(&w, a->data, n);
    const void *right = fsdp_wide_in(&w, b->data, n);
    w.k->add(left, right, fsdp_wide_out(&w, y->data, n), n);
    fsdp_wide_end(&w);
}

bool
fsdp_op_wants_grad(fsdp_node_t *node, int i)
{
    const fsdp_parameter_t *parameter = fsdp_node_parameter(node, i);
    return parameter != NULL && parameter->requires_grad;
}

size_t
fsdp_op_count_targets(const fsdp_tensor_t *target, int32_t ignore_index)
{
    const int32_t *t = target->data;
    size_t count = 0, rows = fsdp_tensor_numel(target);
    for (size_t i = 0; i < rows; i++)
        count += t[i] != ignore_index;
    return count;
}

void
fsdp_op_check_targets(const char *op, const fsdp_tensor_t *x,
                      const fsdp_tensor_t *target)
{
    fsdp_op_check_int32(op, target);
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    fsdp_tensor_format_shape(target, have, sizeof have);
    fsdp_tensor_format_shape(x, want, sizeof want);
    FSDP_CHECK(fsdp_tensor_numel(target) == fsdp_op_rows(x),
               "%s: targets %s do not fit the rows of %s", op, have, want);
}
