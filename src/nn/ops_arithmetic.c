#include <string.h>

#include "fsdp/status.h"
#include "nn/ops_internal.h"

/* The upstream gradient itself, in the shape of input i. */
static void
pass_grad(fsdp_node_t *node, int i)
{
    fsdp_node_set_grad_input(node, i, fsdp_node_view_grad_output(node, i));
}

/* ---- add ---------------------------------------------------------------- */

static void
add_backward(fsdp_node_t *node)
{
    for (int i = 0; i < 2; i++)
        if (fsdp_node_needs_grad(node, i))
            pass_grad(node, i);
}

static const fsdp_op_t add_op = {"add", add_backward, NULL};

fsdp_tensor_t *
fsdp_add(fsdp_tape_t *tape, fsdp_tensor_t *a, fsdp_tensor_t *b)
{
    fsdp_op_check_alike("add", a, b);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, a);
    fsdp_op_sum(a, b, y);
    fsdp_tape_record(tape, &add_op, fsdp_values2(a, b), NULL, 0,
                     fsdp_values1(y), 0);
    return y;
}

/* ---- scale -------------------------------------------------------------- */

static void
multiply(const fsdp_tensor_t *x, double alpha, fsdp_tensor_t *y)
{
    fsdp_wide_t w = fsdp_wide(x->dtype);
    size_t n = fsdp_tensor_numel(x);
    const void *in = fsdp_wide_in(&w, x->data, n);
    w.k->scale(in, alpha, fsdp_wide_out(&w, y->data, n), n);
    fsdp_wide_end(&w);
}

static void
scale_backward(fsdp_node_t *node)
{
    const double *alpha = fsdp_node_saved(node);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    multiply(dy, *alpha, dx);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t scale_op = {"scale", scale_backward, NULL};

fsdp_tensor_t *
fsdp_scale(fsdp_tape_t *tape, fsdp_tensor_t *x, double alpha)
{
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    multiply(x, alpha, y);
    fsdp_node_t *node = fsdp_tape_record(tape, &scale_op, fsdp_values1(x), NULL,
                                         0, fsdp_values1(y), sizeof alpha);
    if (node != NULL)
        *(double *)fsdp_node_saved(node) = alpha;
    return y;
}

/* ---- cast --------------------------------------------------------------- */

static void
convert(const fsdp_tensor_t *x, fsdp_tensor_t *y)
{
    fsdp_convert(x->dtype, x->data, y->dtype, y->data, fsdp_tensor_numel(x));
}

static void
cast_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    convert(fsdp_node_grad_output(node, 0), dx);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t cast_op = {"cast", cast_backward, NULL};

fsdp_tensor_t *
fsdp_cast(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_dtype_t dtype)
{
    if (dtype == x->dtype)
        return x;
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, dtype, x->ndim, x->shape);
    convert(x, y);
    fsdp_tape_record(tape, &cast_op, fsdp_values1(x), NULL, 0, fsdp_values1(y),
                     0);
    return y;
}

/* ---- reshape ------------------------------------------------------------ */

static void
reshape_backward(fsdp_node_t *node)
{
    pass_grad(node, 0);
}

static const fsdp_op_t reshape_op = {"reshape", reshape_backward, NULL};

fsdp_tensor_t *
fsdp_reshape(fsdp_tape_t *tape, fsdp_tensor_t *x, int ndim, const size_t *shape)
{
    fsdp_tensor_t *y =
        fsdp_tape_adopt(tape, fsdp_tensor_view(x, 0, ndim, shape));
    FSDP_CHECK(fsdp_tensor_numel(y) == fsdp_tensor_numel(x),
               "reshape of %zu elements to %zu", fsdp_tensor_numel(x),
               fsdp_tensor_numel(y));
    fsdp_tape_record(tape, &reshape_op, fsdp_values1(x), NULL, 0,
                     fsdp_values1(y), 0);
    return y;
}

/* ---- the last position -------------------------------------------------- */

/* Copies row T-1 of each sample between [B,T,C] and [B,C]. */
static void
copy_last(const fsdp_tensor_t *full, const fsdp_tensor_t *last, bool to_last)
{
    size_t row = full->shape[2] * fsdp_dtype_size(full->dtype);
    for (size_t b = 0; b < full->shape[0]; b++) {
        char *in_full =
            (char *)full->data + ((b + 1) * full->shape[1] - 1) * row;
        char *in_last = (char *)last->data + b * row;
        memcpy(to_last ? in_last : in_full, to_last ? in_full : in_last, row);
    }
}

static void
last_position_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_tensor_zero(dx);
    copy_last(dx, fsdp_node_grad_output(node, 0), false);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t last_position_op = {"last_position",
                                           last_position_backward, NULL};

fsdp_tensor_t *
fsdp_op_last_position(fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    FSDP_CHECK(x->ndim == 3 && x->shape[1] > 0,
               "last_position: the input is not [B, T, C] with T > 0");
    size_t shape[2] = {x->shape[0], x->shape[2]};
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, x->dtype, 2, shape);
    copy_last(x, y, true);
    fsdp_tape_record(tape, &last_position_op, fsdp_values1(x), NULL, 0,
                     fsdp_values1(y), 0);
    return y;
}
