#include "nn/ops_internal.h"

static void
product(const fsdp_tensor_t *a, const fsdp_tensor_t *b, fsdp_tensor_t *y)
{
    fsdp_wide_t w = fsdp_wide(a->dtype);
    size_t n = fsdp_tensor_numel(a);
    const void *left = fsdp_wide_in(&w, a->data, n);
    const void *right = fsdp_wide_in(&w, b->data, n);
    w.k->multiply(left, right, fsdp_wide_out(&w, y->data, n), n);
    fsdp_wide_end(&w);
}

/* Each factor's gradient is dy times the other.  A tensor times itself gets
 * both, added up by the tape. */
static void
multiply_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    for (int i = 0; i < 2; i++) {
        if (!fsdp_node_needs_grad(node, i))
            continue;
        fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, i);
        product(dy, fsdp_node_input(node, 1 - i), dx);
        fsdp_node_set_grad_input(node, i, dx);
    }
}

static const fsdp_op_t multiply_op = {"multiply", multiply_backward, NULL};

fsdp_tensor_t *
fsdp_multiply(fsdp_tape_t *tape, fsdp_tensor_t *a, fsdp_tensor_t *b)
{
    fsdp_op_check_alike("multiply", a, b);
    fsdp_tensor_t *y = fsdp_op_new_like(tape, a);
    product(a, b, y);
    fsdp_tape_record(tape, &multiply_op, fsdp_values2(a, b), NULL, 0,
                     fsdp_values1(y), 0);
    return y;
}
