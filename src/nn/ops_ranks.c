/* What goes from a tensor that all ranks have to tensors of their own, and
 * back.  In PyTorch's terms: from Replicate to Partial and back, for the value
 * or for the gradient. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "fsdp/tensor_parallel.h"
#include "nn/ops_internal.h"

typedef struct saved {
    fsdp_tensor_parallel_t tp;
    const char *unit; /* borrowed */
} saved_t;

static void
sum_in_place(const saved_t *s, fsdp_tensor_t *x)
{
    fsdp_all_reduce(s->tp.comm, s->unit, x->dtype, FSDP_SUM, s->tp.reduce_order,
                    x->data, fsdp_tensor_numel(x));
}

/* y, made by `op` of x, on the tape. */
static fsdp_tensor_t *
record(fsdp_tape_t *tape, const fsdp_op_t *op, fsdp_tensor_t *x,
       const saved_t *s, fsdp_tensor_t *y)
{
    fsdp_node_t *node = fsdp_tape_record(tape, op, fsdp_values1(x), NULL, 0,
                                         fsdp_values1(y), sizeof *s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = *s;
    return y;
}

/* ---- copy: the gradients are added --------------------------------------- */

static void
copy_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dx = fsdp_tensor_clone(FSDP_MEM_ACTIVATION, dy);
    sum_in_place(fsdp_node_saved(node), dx);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t copy_op = {"copy_to_ranks", copy_backward, NULL};

fsdp_tensor_t *
fsdp_copy_to_ranks(fsdp_tape_t *tape, fsdp_tensor_t *x,
                   const fsdp_tensor_parallel_t *tp, const char *unit)
{
    fsdp_tensor_t *y =
        fsdp_tape_adopt(tape, fsdp_tensor_view(x, 0, x->ndim, x->shape));
    return record(tape, &copy_op, x, &(saved_t){*tp, unit}, y);
}

/* ---- sum: the gradient is everybody's ------------------------------------ */

static void
sum_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_node_set_grad_input(node, 0,
                             fsdp_tensor_view(dy, 0, dy->ndim, dy->shape));
}

static const fsdp_op_t sum_op = {"sum_over_ranks", sum_backward, NULL};

fsdp_tensor_t *
fsdp_sum_over_ranks(fsdp_tape_t *tape, fsdp_tensor_t *x,
                    const fsdp_tensor_parallel_t *tp, const char *unit)
{
    saved_t s = {*tp, unit};
    fsdp_tensor_t *y =
        fsdp_tape_adopt(tape, fsdp_tensor_clone(FSDP_MEM_ACTIVATION, x));
    sum_in_place(&s, y);
    return record(tape, &sum_op, x, &s, y);
}

/* ---- gather: columns side by side ---------------------------------------- */

/* Copies rank r's columns between [N, T C] and [N, C]. */
static void
copy_columns(const fsdp_tensor_t *all, void *part, size_t columns, size_t r,
             bool to_all)
{
    size_t size = fsdp_dtype_size(all->dtype), rows = fsdp_op_rows(all);
    size_t row = fsdp_op_columns(all) * size, bytes = columns * size;
    for (size_t i = 0; i < rows; i++) {
        char *in_all = (char *)all->data + i * row + r * bytes;
        char *in_part = (char *)part + i * bytes;
        memcpy(to_all ? in_all : in_part, to_all ? in_part : in_all, bytes);
    }
}

static void
gather_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    copy_columns(fsdp_node_grad_output(node, 0), dx->data, fsdp_op_columns(dx),
                 (size_t)fsdp_comm_rank(s->tp.comm), false);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t gather_op = {"gather_columns", gather_backward, NULL};

fsdp_tensor_t *
fsdp_gather_columns(fsdp_tape_t *tape, fsdp_tensor_t *x,
                    const fsdp_tensor_parallel_t *tp, const char *unit)
{
    saved_t s = {*tp, unit};
    size_t ranks = (size_t)fsdp_comm_size(tp->comm);
    size_t columns = fsdp_op_columns(x), n = fsdp_tensor_numel(x);
    size_t bytes = fsdp_tensor_bytes(x);
    char *parts = fsdp_alloc(FSDP_MEM_ACTIVATION, ranks * bytes);
    fsdp_all_gather(tp->comm, unit, x->dtype, x->data, parts, n);
    fsdp_tensor_t *y = fsdp_op_new_columns(tape, x, ranks * columns);
    for (size_t r = 0; r < ranks; r++)
        copy_columns(y, parts + r * bytes, columns, r, true);
    fsdp_free(parts);
    return record(tape, &gather_op, x, &s, y);
}
