#include "fsdp/status.h"
#include "nn/dropout_key.h"
#include "nn/ops_internal.h"

/* The mask is never kept: its random numbers are drawn again. */
static void
apply(const fsdp_dropout_key_t *key, const fsdp_tensor_t *in,
      fsdp_tensor_t *out)
{
    fsdp_wide_t w = fsdp_wide(in->dtype);
    size_t n = fsdp_tensor_numel(in);
    const void *x = fsdp_wide_in(&w, in->data, n);
    w.k->dropout(key, x, fsdp_wide_out(&w, out->data, n), in->shape[0],
                 fsdp_tensor_row_numel(in));
    fsdp_wide_end(&w);
}

static void
dropout_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    apply(fsdp_node_saved(node), fsdp_node_grad_output(node, 0), dx);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t dropout_op = {"dropout", dropout_backward, NULL};

fsdp_tensor_t *
fsdp_dropout(fsdp_tape_t *tape, fsdp_tensor_t *x, double p, uint32_t layer)
{
    fsdp_dropout_key_t key = fsdp_dropout_key(tape, p, layer);
    if (key.p == 0)
        return x;
    FSDP_CHECK(x->ndim >= 1, "dropout of a scalar: dim 0 counts samples");
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    apply(&key, x, y);
    fsdp_node_t *node = fsdp_tape_record(tape, &dropout_op, fsdp_values1(x),
                                         NULL, 0, fsdp_values1(y), sizeof key);
    if (node != NULL)
        *(fsdp_dropout_key_t *)fsdp_node_saved(node) = key;
    return y;
}
