#include "fsdp/status.h"
#include "nn/ops_internal.h"

/* ---- cross-entropy ------------------------------------------------------ */

/* The sum of the losses of the rows; `dlogits` may be NULL. */
static double
sum_losses(const fsdp_tensor_t *logits, const fsdp_tensor_t *target,
           int32_t ignore_index, fsdp_tensor_t *dlogits, double scale)
{
    size_t rows = fsdp_op_rows(logits), n = fsdp_tensor_numel(logits);
    fsdp_wide_t w = fsdp_wide(logits->dtype);
    const void *in = fsdp_wide_in(&w, logits->data, n);
    void *out = dlogits != NULL ? fsdp_wide_out(&w, dlogits->data, n) : NULL;
    void *loss =
        fsdp_alloc(FSDP_MEM_ACTIVATION, rows * fsdp_dtype_size(w.compute));
    w.k->cross_entropy(in, target->data, ignore_index, loss, out, scale, rows,
                       fsdp_op_columns(logits));
    double sum = w.k->sum(loss, rows);
    fsdp_free(loss);
    fsdp_wide_end(&w);
    return sum;
}

static void
cross_entropy_backward(fsdp_node_t *node)
{
    int32_t ignore_index = *(int32_t *)fsdp_node_saved(node);
    const fsdp_tensor_t *logits = fsdp_node_input(node, 0);
    const fsdp_tensor_t *target = fsdp_node_input(node, 1);
    size_t count = fsdp_op_count_targets(target, ignore_index);
    double upstream = fsdp_tensor_get(fsdp_node_grad_output(node, 0), 0);
    fsdp_tensor_t *dlogits = fsdp_node_new_grad_input(node, 0);
    sum_losses(logits, target, ignore_index, dlogits, upstream / (double)count);
    fsdp_node_set_grad_input(node, 0, dlogits);
}

static const fsdp_op_t cross_entropy_op = {"cross_entropy",
                                           cross_entropy_backward, NULL};

fsdp_tensor_t *
fsdp_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *logits,
                   fsdp_tensor_t *target, int32_t ignore_index)
{
    fsdp_op_check_targets("cross_entropy", logits, target);
    size_t count = fsdp_op_count_targets(target, ignore_index);
    fsdp_tensor_t *loss = fsdp_op_new_scalar(tape, logits->dtype);
    double sum = sum_losses(logits, target, ignore_index, NULL, 0);
    fsdp_tensor_set(loss, 0, sum / (double)count);
    fsdp_node_t *node =
        fsdp_tape_record(tape, &cross_entropy_op, fsdp_values2(logits, target),
                         NULL, 0, fsdp_values1(loss), sizeof(int32_t));
    if (node != NULL)
        *(int32_t *)fsdp_node_saved(node) = ignore_index;
    return loss;
}

/* ---- mean squared error ------------------------------------------------- */

/* 2 (x - other) / n, times what comes from above. */
static void
squared_error_grad(fsdp_node_t *node, int i)
{
    const fsdp_tensor_t *x = fsdp_node_input(node, i);
    const fsdp_tensor_t *other = fsdp_node_input(node, 1 - i);
    double upstream = fsdp_tensor_get(fsdp_node_grad_output(node, 0), 0);
    size_t n = fsdp_tensor_numel(x);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, i);
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *left = fsdp_wide_in(&w, x->data, n);
    const void *right = fsdp_wide_in(&w, other->data, n);
    w.k->squared_error(left, right, 2 * upstream / (double)n,
                       fsdp_wide_out(&w, dx->data, n), n);
    fsdp_wide_end(&w);
    fsdp_node_set_grad_input(node, i, dx);
}

static void
mse_loss_backward(fsdp_node_t *node)
{
    for (int i = 0; i < 2; i++)
        if (fsdp_node_needs_grad(node, i))
            squared_error_grad(node, i);
}

static const fsdp_op_t mse_loss_op = {"mse_loss", mse_loss_backward, NULL};

fsdp_tensor_t *
fsdp_mse_loss(fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_tensor_t *target)
{
    fsdp_op_check_alike("mse_loss", x, target);
    size_t n = fsdp_tensor_numel(x);
    fsdp_tensor_t *loss = fsdp_op_new_scalar(tape, x->dtype);
    fsdp_wide_t w = fsdp_wide(x->dtype);
    const void *left = fsdp_wide_in(&w, x->data, n);
    const void *right = fsdp_wide_in(&w, target->data, n);
    double sum = w.k->squared_error(left, right, 0, NULL, n);
    fsdp_wide_end(&w);
    fsdp_tensor_set(loss, 0, sum / (double)n);
    fsdp_tape_record(tape, &mse_loss_op, fsdp_values2(x, target), NULL, 0,
                     fsdp_values1(loss), 0);
    return loss;
}
