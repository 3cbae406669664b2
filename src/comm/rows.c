/* Buffers cut into one row a rank, and the first half of every reduction:
 * each rank gets the W versions of its own row and adds them itself. */
#include "comm/internal.h"
#include "fsdp/memory.h"

fsdp_rows_t
fsdp_rows_cut(size_t count, fsdp_dtype_t dtype, int size)
{
    size_t element = fsdp_dtype_size(dtype), ranks = (size_t)size;
    size_t longest = count / ranks + (count % ranks != 0);
    return (fsdp_rows_t){.row = longest * element, .all = count * element};
}

size_t
fsdp_rows_begin(const fsdp_rows_t *rows, int r)
{
    size_t begin = (size_t)r * rows->row;
    return begin < rows->all ? begin : rows->all;
}

size_t
fsdp_rows_bytes(const fsdp_rows_t *rows, int r)
{
    return fsdp_rows_begin(rows, r + 1) - fsdp_rows_begin(rows, r);
}

static char *
own_version(const fsdp_work_t *work, int r)
{
    /* The reduction reads its own term only; the type is that of scratch. */
    return (char *)(uintptr_t)work->in + fsdp_rows_begin(&work->rows, r);
}

/* Where this rank's row arrives from `peer`; there is no place for its own. */
static char *
arrival(const fsdp_work_t *work, int peer)
{
    int rank = work->comm->rank;
    size_t at = (size_t)(peer < rank ? peer : peer - 1);
    return (char *)work->scratch + at * fsdp_rows_bytes(&work->rows, rank);
}

void
fsdp_rows_exchange(fsdp_work_t *work)
{
    int rank = work->comm->rank, size = work->comm->size;
    size_t mine = fsdp_rows_bytes(&work->rows, rank);
    if (size > 1)
        work->scratch = fsdp_alloc(FSDP_MEM_COMM, (size_t)(size - 1) * mine);
    for (int i = 1; i < size; i++) {
        int peer = (rank + size - i) % size;
        fsdp_work_receive(work, arrival(work, peer), mine, peer);
    }
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        fsdp_work_send(work, own_version(work, peer),
                       fsdp_rows_bytes(&work->rows, peer), peer);
    }
}

void
fsdp_rows_reduce(const fsdp_work_t *work, void *out)
{
    int rank = work->comm->rank, size = work->comm->size;
    const fsdp_ledger_entry_t *call = &work->call;
    char **terms = fsdp_alloc(FSDP_MEM_OTHER, (size_t)size * sizeof *terms);
    for (int q = 0; q < size; q++)
        terms[q] = q == rank ? own_version(work, q) : arrival(work, q);
    fsdp_reduce_terms(
        &(fsdp_reduction_t){.dtype = call->dtype,
                            .op = call->op,
                            .order = call->order,
                            .size = size,
                            .own = rank,
                            .destination = rank,
                            .terms = terms,
                            .out = out,
                            .count = fsdp_rows_bytes(&work->rows, rank) /
                                     fsdp_dtype_size(call->dtype)});
    fsdp_free(terms);
}
