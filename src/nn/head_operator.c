#include "nn/head_operator.h"

#include <string.h>

#include "fsdp/status.h"

void
fsdp_head_free_saved(void *saved)
{
    fsdp_head_saved_t *s = saved;
    fsdp_tensor_destroy(&s->dx);
    fsdp_tensor_destroy(&s->dweight);
}

static void
multiply(fsdp_tensor_t *grad, double upstream)
{
    if (grad != NULL && upstream != 1)
        fsdp_kernels(grad->dtype)
            ->scale(grad->data, upstream, grad->data, fsdp_tensor_numel(grad));
}

static void
new_grads(fsdp_node_t *node)
{
    fsdp_head_saved_t *s = fsdp_node_saved(node);
    if (fsdp_node_needs_grad(node, 0))
        s->dx = fsdp_node_new_grad_input(node, 0);
    if (fsdp_op_wants_grad(node, 0))
        s->dweight = fsdp_parameter_new_grad(fsdp_node_parameter(node, 0));
}

/* Are the gradients made in the backward? */
static bool
is_late(const fsdp_tensor_t *x)
{
    return fsdp_op_compute_dtype(x->dtype) != x->dtype;
}

void
fsdp_head_backward(fsdp_node_t *node)
{
    fsdp_head_saved_t *s = fsdp_node_saved(node);
    fsdp_tensor_t *x = fsdp_node_input(node, 0);
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    double upstream = fsdp_tensor_get(fsdp_node_grad_output(node, 0), 0);
    if (is_late(x)) {
        new_grads(node);
        s->mean_loss(x, weight, fsdp_node_input(node, 1), s, upstream);
    } else {
        multiply(s->dx, upstream);
        multiply(s->dweight, upstream);
    }
    if (s->dx != NULL)
        fsdp_node_set_grad_input(node, 0, s->dx);
    if (s->dweight != NULL)
        fsdp_parameter_add_grad(weight, s->dweight);
    s->dx = s->dweight = NULL;
}

/* The node comes before the computation, as it tells whether there will be a
 * backward. */
fsdp_tensor_t *
fsdp_head_loss(fsdp_tape_t *tape, const fsdp_op_t *op, fsdp_tensor_t *x,
               fsdp_parameter_t *weight, fsdp_tensor_t *target,
               fsdp_head_saved_t *saved, size_t size)
{
    fsdp_tensor_t *loss =
        fsdp_op_new_scalar(tape, fsdp_op_compute_dtype(x->dtype));
    fsdp_node_t *node = fsdp_tape_record(tape, op, fsdp_values2(x, target),
                                         &weight, 1, fsdp_values1(loss), size);
    fsdp_head_saved_t *s = saved;
    if (node != NULL) {
        s = fsdp_node_saved(node);
        memcpy(s, saved, size);
        if (!is_late(x))
            new_grads(node);
    }
    fsdp_tensor_set(loss, 0, s->mean_loss(x, weight, target, s, 1));
    return loss;
}

void
fsdp_head_check(const char *op, const fsdp_tensor_t *x,
                const fsdp_parameter_t *weight, const fsdp_tensor_t *target)
{
    FSDP_CHECK(weight->ndim == 2, "%s: weight %s has %d dimensions, not 2", op,
               weight->name, weight->ndim);
    size_t shape[2] = {weight->shape[0], fsdp_op_columns(x)};
    fsdp_op_check_parameter(op, weight, x->dtype, 2, shape);
    fsdp_op_check_targets(op, x, target);
}
