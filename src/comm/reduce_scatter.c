#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

/* Reduce-scatter by direct exchange: each rank sends row q of its input to
 * rank q and adds the W terms of its own row itself, in the order asked for.
 *
 * Cost: one latency, (W - 1) count elements sent and received by each rank, as
 * many as in a ring, and (W - 1) count additions.  The price of the free choice
 * of order is room for W - 1 rows; a ring needs one. */

static bool
reduce_scatter_advance(fsdp_work_t *work)
{
    if (work->stage == 0) {
        fsdp_rows_exchange(work);
        return false;
    }
    fsdp_rows_reduce(work, work->out);
    return true;
}

/* ---- the order "mpi" ---------------------------------------------------- */

/* Counts of MPI are ints, and it wants the W rows of one call side by side: a
 * row of more than one piece is cut, and the pieces are packed. */
static bool
mpi_advance(fsdp_work_t *work)
{
    const fsdp_comm_t *comm = work->comm;
    size_t element = fsdp_dtype_size(work->call.dtype);
    size_t size = (size_t)comm->size, bytes = work->call.bytes;
    size_t most = fsdp_comm_piece_bytes / element * element;
    if (work->stage > 0 || bytes == 0)
        return true;

    if (bytes > most)
        work->scratch = fsdp_alloc(FSDP_MEM_COMM, size * bytes);
    for (size_t at = 0, piece; at < bytes; at += piece) {
        const char *in = work->in;
        piece = bytes - at < most ? bytes - at : most;
        if (bytes > most) {
            char *packed = (char *)work->scratch + size * at;
            for (size_t q = 0; q < size; q++)
                memcpy(packed + q * piece, in + q * bytes + at, piece);
            in = packed;
        }
        fsdp_comm_check_mpi(MPI_Ireduce_scatter_block(
                                in, (char *)work->out + at,
                                (int)(piece / element),
                                fsdp_comm_mpi_type(work->call.dtype), MPI_SUM,
                                comm->data, fsdp_work_request(work)),
                            "MPI_Ireduce_scatter_block");
    }
    fsdp_work_count_bytes(work, (size - 1) * bytes); /* as a ring; MPI's way
                                                        is not known */
    return false;
}

fsdp_work_t *
fsdp_reduce_scatter_start(fsdp_comm_t *comm, const char *unit,
                          fsdp_dtype_t dtype, fsdp_reduce_order_t order,
                          const void *in, void *out, size_t count)
{
    FSDP_CHECK(fsdp_reduce_knows(dtype), "%s: no sum of %s",
               unit ? unit : "reduce_scatter", fsdp_dtype_name(dtype));
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_REDUCE_SCATTER,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .op = FSDP_SUM,
                                              .order = order,
                                              .root = -1,
                                              .count = count});
    bool by_mpi = order == FSDP_ORDER_MPI &&
                  fsdp_comm_mpi_type(dtype) != MPI_DATATYPE_NULL;
    work->in = in;
    work->out = out;
    work->rows = (fsdp_rows_t){.row = work->call.bytes,
                               .all = (size_t)comm->size * work->call.bytes};
    return fsdp_work_start(work, by_mpi ? mpi_advance : reduce_scatter_advance);
}

void
fsdp_reduce_scatter(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                    fsdp_reduce_order_t order, const void *in, void *out,
                    size_t count)
{
    fsdp_work_t *work =
        fsdp_reduce_scatter_start(comm, unit, dtype, order, in, out, count);
    fsdp_work_wait(&work);
}
