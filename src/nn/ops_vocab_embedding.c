/* An embedding whose rows are cut over ranks.  Each looks up those that it has,
 * and zeros in place of the others; the sum over the ranks has them all. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "nn/ops_parallel.h"
#include "tensor/take_rows.h"

/* The positions whose row is in the part, and the rows counted within it. */
typedef struct own {
    size_t count;
    size_t *position;
    int32_t *row;
} own_t;

static own_t
find_own(const fsdp_tensor_t *index, const fsdp_parameter_t *weight)
{
    const int32_t *i = index->data;
    size_t n = fsdp_tensor_numel(index), rows = weight->shape[0];
    size_t first = (size_t)weight->part * rows;
    own_t own = {.position =
                     fsdp_alloc(FSDP_MEM_ACTIVATION, n * sizeof *own.position),
                 .row = fsdp_alloc(FSDP_MEM_ACTIVATION, n * sizeof *own.row)};
    for (size_t k = 0; k < n; k++) {
        if ((size_t)i[k] < first || (size_t)i[k] >= first + rows)
            continue;
        own.position[own.count] = k;
        own.row[own.count++] = (int32_t)((size_t)i[k] - first);
    }
    return own;
}

static void
free_own(own_t *own)
{
    fsdp_free(own->position);
    fsdp_free(own->row);
}

/* dtable gets what the whole table's rows would: rows of dy in ascending
 * position, without those of other ranks. */
static void
embedding_backward(fsdp_node_t *node)
{
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    own_t own = find_own(fsdp_node_input(node, 0), weight);
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    size_t channels = weight->shape[1];
    fsdp_wide_t w = fsdp_wide(dw->dtype);
    size_t bytes = channels * fsdp_dtype_size(w.compute);
    const char *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    void *out = fsdp_wide_out(&w, dw->data, fsdp_tensor_numel(dw));
    char *rows = fsdp_alloc(FSDP_MEM_ACTIVATION, own.count * bytes);
    for (size_t k = 0; k < own.count; k++)
        memcpy(rows + k * bytes, up + own.position[k] * bytes, bytes);
    w.k->fill(out, 0, fsdp_tensor_numel(dw));
    w.k->embedding_backward(own.row, rows, out, own.count, weight->shape[0],
                            channels);
    fsdp_free(rows);
    fsdp_wide_end(&w);
    free_own(&own);
    fsdp_parameter_add_grad(weight, dw);
}

static const fsdp_op_t embedding_op = {"vocab_embedding", embedding_backward,
                                       NULL};

static fsdp_tensor_t *
look_up_own(fsdp_tape_t *tape, fsdp_tensor_t *index, fsdp_parameter_t *weight)
{
    size_t shape[FSDP_MAX_DIMS];
    memcpy(shape, index->shape, sizeof shape);
    shape[index->ndim] = weight->shape[1];
    fsdp_tensor_t *y =
        fsdp_tape_new_tensor(tape, weight->data_dtype, index->ndim + 1, shape);
    size_t bytes = weight->shape[1] * fsdp_dtype_size(y->dtype);
    const char *table = fsdp_parameter_data(weight);
    own_t own = find_own(index, weight);
    fsdp_tensor_zero(y);
    for (size_t k = 0; k < own.count; k++)
        memcpy((char *)y->data + own.position[k] * bytes,
               table + (size_t)own.row[k] * bytes, bytes);
    free_own(&own);
    fsdp_tape_record(tape, &embedding_op, fsdp_values1(index), &weight, 1,
                     fsdp_values1(y), 0);
    return y;
}

/* All terms of an element's sum but one are 0, so any order gives the element,
 * but for -0, which becomes 0. */
static fsdp_tensor_t *
look_up_all(fsdp_tape_t *tape, fsdp_tensor_t *index, fsdp_parameter_t *weight)
{
    fsdp_tensor_t *y = fsdp_embedding(tape, index, weight);
    fsdp_tensor_t *zeros = fsdp_op_new_like(tape, y);
    fsdp_tensor_zero(zeros);
    return fsdp_add(tape, y, zeros);
}

fsdp_tensor_t *
fsdp_op_vocab_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
                        fsdp_parameter_t *weight,
                        const fsdp_tensor_parallel_t *tp)
{
    fsdp_op_check_int32("embedding", index);
    if (tp->comm == NULL)
        return look_up_all(tape, index, weight);
    FSDP_CHECK(index->ndim < FSDP_MAX_DIMS && weight->ndim == 2,
               "embedding: an index of %d dimensions, a weight of %d",
               index->ndim, weight->ndim);
    size_t whole[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(weight, whole);
    fsdp_check_rows(index->data, fsdp_tensor_numel(index), whole[0]);
    return fsdp_sum_over_ranks(tape, look_up_own(tape, index, weight), tp,
                               weight->name);
}
