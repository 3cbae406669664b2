/* Rows to the ranks of their experts, and back. */

#include <string.h>

#include "fsdp/fault.h"
#include "fsdp/memory.h"
#include "fsdp/moe.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

typedef struct saved {
    fsdp_comm_t *comm;
    const char *unit; /* borrowed */
    size_t *here;     /* [2][P], owned: elements given to each rank, and taken
                          from it, in the forward */
} saved_t;

static void
free_saved(void *saved)
{
    fsdp_free(((saved_t *)saved)->here);
}

/* The fault expert-mesh: each rank takes the piece before its own. */
static void
move_on(size_t *piece, size_t ranks)
{
    size_t last = piece[ranks - 1];
    memmove(piece + 1, piece, (ranks - 1) * sizeof *piece);
    piece[0] = last;
}

/* And what is in the pieces, once they have moved, in a buffer of the caller's. */
static void *
moved(const void *x, const size_t *piece, size_t ranks, size_t size)
{
    size_t others = 0;
    for (size_t r = 1; r < ranks; r++)
        others += piece[r];
    char *out = fsdp_alloc(FSDP_MEM_COMM, (others + piece[0]) * size);
    memcpy(out, (const char *)x + others * size, piece[0] * size);
    memcpy(out + piece[0] * size, x, others * size);
    return out;
}

fsdp_tensor_t *
fsdp_exchange_counts(fsdp_tape_t *tape, const fsdp_tensor_t *counts,
                     fsdp_comm_t *comm, const char *unit)
{
    size_t ranks = (size_t)fsdp_comm_size(comm);
    size_t shape[2] = {ranks, fsdp_tensor_numel(counts) / ranks};
    FSDP_CHECK(shape[0] * shape[1] == fsdp_tensor_numel(counts),
               "%s: %zu experts on %zu ranks", unit, fsdp_tensor_numel(counts),
               ranks);
    fsdp_tensor_t *out = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    size_t *each = fsdp_alloc(FSDP_MEM_COMM, ranks * sizeof *each);
    for (size_t r = 0; r < ranks; r++)
        each[r] = shape[1];
    void *wrong = NULL;
    if (fsdp_fault(FSDP_FAULT_EXPERT_MESH))
        wrong = moved(counts->data, each, ranks, sizeof(int32_t));
    fsdp_all_to_all(comm, unit, FSDP_INT32,
                    wrong != NULL ? wrong : counts->data, each, out->data,
                    each);
    fsdp_free(wrong);
    fsdp_free(each);
    return out;
}

/* The sums of `counts`, cut in P equal pieces, times `columns`. */
static size_t
sum_pieces(const fsdp_tensor_t *counts, size_t ranks, size_t columns,
           size_t *out)
{
    const int32_t *c = counts->data;
    size_t piece = fsdp_tensor_numel(counts) / ranks, all = 0;
    for (size_t r = 0; r < ranks; r++) {
        out[r] = 0;
        for (size_t i = 0; i < piece; i++)
            out[r] += (size_t)c[r * piece + i];
        all += out[r];
        out[r] *= columns;
    }
    return all;
}

static void
exchange_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    size_t ranks = (size_t)fsdp_comm_size(s->comm);
    fsdp_all_to_all(s->comm, s->unit, dy->dtype, dy->data, s->here + ranks,
                    dx->data, s->here);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t exchange_op = {"exchange_rows", exchange_backward,
                                      free_saved};

fsdp_tensor_t *
fsdp_exchange_rows(fsdp_tape_t *tape, fsdp_tensor_t *rows,
                   const fsdp_tensor_t *sent, const fsdp_tensor_t *received,
                   bool back, fsdp_comm_t *comm, const char *unit)
{
    size_t ranks = (size_t)fsdp_comm_size(comm), columns = rows->shape[1];
    saved_t s = {comm, unit,
                 fsdp_alloc(FSDP_MEM_ACTIVATION, 2 * ranks * sizeof *s.here)};
    size_t in = sum_pieces(back ? received : sent, ranks, columns, s.here);
    size_t out =
        sum_pieces(back ? sent : received, ranks, columns, s.here + ranks);
    FSDP_CHECK(rows->ndim == 2 && rows->shape[0] == in,
               "%s: %zu rows, but the counts say %zu", unit, rows->shape[0],
               in);
    fsdp_tensor_t *y =
        fsdp_tape_new_tensor(tape, rows->dtype, 2, (size_t[]){out, columns});
    void *wrong = NULL;
    if (fsdp_fault(FSDP_FAULT_EXPERT_MESH)) {
        move_on(s.here + (back ? ranks : 0), ranks);
        if (!back)
            wrong =
                moved(rows->data, s.here, ranks, fsdp_dtype_size(rows->dtype));
    }
    fsdp_all_to_all(comm, unit, rows->dtype, wrong != NULL ? wrong : rows->data,
                    s.here, y->data, s.here + ranks);
    fsdp_free(wrong);
    fsdp_node_t *node = fsdp_tape_record(tape, &exchange_op, fsdp_values1(rows),
                                         NULL, 0, fsdp_values1(y), sizeof s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = s;
    else
        free_saved(&s);
    return y;
}
