#include <string.h>

#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "tensor/take_rows.h"

/* index's shape with the table's channels behind. */
static fsdp_tensor_t *
new_output(fsdp_tape_t *tape, const fsdp_tensor_t *index,
           const fsdp_parameter_t *weight)
{
    FSDP_CHECK(index->ndim < FSDP_MAX_DIMS,
               "embedding: an index of %d dimensions", index->ndim);
    FSDP_CHECK(weight->ndim == 2, "embedding: weight %s has %d dimensions",
               weight->name, weight->ndim);
    size_t shape[FSDP_MAX_DIMS];
    memcpy(shape, index->shape, sizeof shape);
    shape[index->ndim] = weight->shape[1];
    return fsdp_tape_new_tensor(tape, weight->data_dtype, index->ndim + 1,
                                shape);
}

/* ---- rows by index ------------------------------------------------------ */

static void
embedding_backward(fsdp_node_t *node)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    const fsdp_tensor_t *index = fsdp_node_input(node, 0);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    fsdp_wide_t w = fsdp_wide(dw->dtype);
    const void *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    void *out = fsdp_wide_out(&w, dw->data, fsdp_tensor_numel(dw));
    w.k->fill(out, 0, fsdp_tensor_numel(dw));
    w.k->embedding_backward(index->data, up, out, fsdp_tensor_numel(index),
                            weight->shape[0], weight->shape[1]);
    fsdp_wide_end(&w);
    fsdp_parameter_add_grad(weight, dw);
}

static const fsdp_op_t embedding_op = {"embedding", embedding_backward, NULL};

fsdp_tensor_t *
fsdp_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
               fsdp_parameter_t *weight)
{
    fsdp_op_check_int32("embedding", index);
    fsdp_tensor_t *y = new_output(tape, index, weight);
    fsdp_take_rows(index->data, fsdp_parameter_data(weight), y->data,
                   fsdp_tensor_numel(index), weight->shape[0],
                   weight->shape[1] * fsdp_dtype_size(y->dtype));
    fsdp_tape_record(tape, &embedding_op, fsdp_values1(index), &weight, 1,
                     fsdp_values1(y), 0);
    return y;
}

/* ---- rows 0 .. T-1 ------------------------------------------------------ */

/* The samples one after another, in ascending order. */
static void
position_backward(fsdp_node_t *node)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0); /* [B,T,C] */
    size_t sample = dy->shape[1] * dy->shape[2];
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    fsdp_wide_t w = fsdp_wide(dw->dtype);
    size_t bytes = sample * fsdp_dtype_size(w.compute);
    const char *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    void *out = fsdp_wide_out(&w, dw->data, fsdp_tensor_numel(dw));
    w.k->fill(out, 0, fsdp_tensor_numel(dw));
    for (size_t b = 0; b < dy->shape[0]; b++)
        w.k->accumulate(out, up + b * bytes, sample);
    fsdp_wide_end(&w);
    fsdp_parameter_add_grad(weight, dw);
}

static const fsdp_op_t position_op = {"position_embedding", position_backward,
                                      NULL};

fsdp_tensor_t *
fsdp_position_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
                        fsdp_parameter_t *weight)
{
    FSDP_CHECK(index->ndim == 2,
               "position_embedding: an index of %d "
               "dimensions, not [B, T]",
               index->ndim);
    fsdp_tensor_t *y = new_output(tape, index, weight);
    FSDP_CHECK(index->shape[1] <= weight->shape[0],
               "a sequence of %zu tokens, but %s has %zu positions",
               index->shape[1], weight->name, weight->shape[0]);
    size_t bytes = y->shape[1] * y->shape[2] * fsdp_dtype_size(y->dtype);
    const void *rows = fsdp_parameter_data(weight);
    for (size_t b = 0; b < y->shape[0]; b++)
        memcpy((char *)y->data + b * bytes, rows, bytes);
    fsdp_tape_record(tape, &position_op, fsdp_values1(index), &weight, 1,
                     fsdp_values1(y), 0);
    return y;
}
