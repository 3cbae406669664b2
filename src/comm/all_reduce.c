#include "comm/internal.h"

/* All-reduce as a reduce-scatter of W chunks of c = ceil(count / W) elements
 * and an all-gather of the results, both by direct exchange.  Each chunk is
 * added by one rank, so that all ranks end with the same bits.
 *
 * Cost: two latencies, at most 2 (W - 1) c elements sent by each rank.  If
 * count < W the later ranks have no chunk; if count is no multiple of W the
 * last chunk that is not empty is short. */

static char *
chunk(const fsdp_work_t *work, int rank)
{
    return (char *)work->out + fsdp_rows_begin(&work->rows, rank);
}

static void
gather(fsdp_work_t *work)
{
    int rank = work->comm->rank, size = work->comm->size;
    for (int i = 1; i < size; i++) {
        int peer = (rank + size - i) % size;
        fsdp_work_receive(work, chunk(work, peer),
                          fsdp_rows_bytes(&work->rows, peer), peer);
    }
    for (int i = 1; i < size; i++)
        fsdp_work_send(work, chunk(work, rank),
                       fsdp_rows_bytes(&work->rows, rank), (rank + i) % size);
}

static bool
all_reduce_advance(fsdp_work_t *work)
{
    if (work->comm->size == 1 || work->stage == 2)
        return true;
    if (work->stage == 0) {
        fsdp_rows_exchange(work);
    } else {
        fsdp_rows_reduce(work, chunk(work, work->comm->rank));
        gather(work);
    }
    return false;
}

/* ---- the order "mpi" ---------------------------------------------------- */

static bool
mpi_advance(fsdp_work_t *work)
{
    size_t element = fsdp_dtype_size(work->call.dtype);
    size_t most = fsdp_comm_piece_bytes / element * element;
    size_t bytes = work->call.bytes;
    if (work->stage > 0)
        return true;

    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < most ? bytes - at : most;
        fsdp_comm_check_mpi(MPI_Iallreduce(MPI_IN_PLACE, (char *)work->out + at,
                                           (int)(piece / element),
                                           fsdp_comm_mpi_type(work->call.dtype),
                                           MPI_SUM, work->comm->data,
                                           fsdp_work_request(work)),
                            "MPI_Iallreduce");
    }
    /* As the exchange above would send; MPI's way is not known. */
    fsdp_work_count_bytes(work,
                          2 * (size_t)(work->comm->size - 1) * work->rows.row);
    return false;
}

fsdp_work_t *
fsdp_all_reduce_start(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                      fsdp_reduce_op_t op, fsdp_reduce_order_t order,
                      void *data, size_t count)
{
    FSDP_CHECK(fsdp_reduce_knows(dtype), "%s: no all-reduce of %s",
               unit ? unit : "all_reduce", fsdp_dtype_name(dtype));
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_ALL_REDUCE,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .op = op,
                                              .order = order,
                                              .root = -1,
                                              .count = count});
    bool by_mpi = order == FSDP_ORDER_MPI && op == FSDP_SUM &&
                  fsdp_comm_mpi_type(dtype) != MPI_DATATYPE_NULL;
    work->in = data;
    work->out = data;
    work->rows = fsdp_rows_cut(count, dtype, comm->size);
    return fsdp_work_start(work, by_mpi ? mpi_advance : all_reduce_advance);
}

void
fsdp_all_reduce(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                fsdp_reduce_op_t op, fsdp_reduce_order_t order, void *data,
                size_t count)
{
    fsdp_work_t *work =
        fsdp_all_reduce_start(comm, unit, dtype, op, order, data, count);
    fsdp_work_wait(&work);
}
