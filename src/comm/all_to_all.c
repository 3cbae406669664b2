#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

/* All-to-all by direct exchange, with counts of its own for each pair.
 *
 * Cost: one latency; each rank sends what is not for itself.  Peers are taken
 * as in the all-gather. */

/* Where each rank's elements lie, in bytes; lives in the work's scratch. */
typedef struct places {
    size_t send, send_bytes, receive, receive_bytes;
} places_t;

static places_t *
lay_out(int size, size_t element, const size_t *send, const size_t *receive)
{
    places_t *p = fsdp_alloc(FSDP_MEM_COMM, (size_t)size * sizeof *p);
    size_t sent = 0, received = 0;
    for (int r = 0; r < size; r++) {
        p[r] =
            (places_t){sent, send[r] * element, received, receive[r] * element};
        sent += p[r].send_bytes;
        received += p[r].receive_bytes;
    }
    return p;
}

static bool
all_to_all_advance(fsdp_work_t *work)
{
    const places_t *p = work->scratch;
    int rank = work->comm->rank, size = work->comm->size;
    const char *in = work->in;
    char *out = work->out;
    if (work->stage > 0)
        return true;

    for (int i = 1; i < size; i++) {
        int peer = (rank + size - i) % size;
        fsdp_work_receive(work, out + p[peer].receive, p[peer].receive_bytes,
                          peer);
    }
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        fsdp_work_send(work, in + p[peer].send, p[peer].send_bytes, peer);
    }
    if (p[rank].send_bytes > 0)
        memcpy(out + p[rank].receive, in + p[rank].send, p[rank].send_bytes);
    return false;
}

fsdp_work_t *
fsdp_all_to_all_start(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                      const void *in, const size_t *send_counts, void *out,
                      const size_t *recv_counts)
{
    size_t count = 0;
    for (int r = 0; r < fsdp_comm_size(comm); r++)
        count += send_counts[r];
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_ALL_TO_ALL,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .root = -1,
                                              .count = count});
    FSDP_CHECK(send_counts[comm->rank] == recv_counts[comm->rank],
               "%s: an all-to-all that gives itself %zu elements and takes %zu",
               unit ? unit : "all_to_all", send_counts[comm->rank],
               recv_counts[comm->rank]);
    work->in = in;
    work->out = out;
    work->scratch =
        lay_out(comm->size, fsdp_dtype_size(dtype), send_counts, recv_counts);
    return fsdp_work_start(work, all_to_all_advance);
}

void
fsdp_all_to_all(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                const void *in, const size_t *send_counts, void *out,
                const size_t *recv_counts)
{
    fsdp_work_t *work = fsdp_all_to_all_start(comm, unit, dtype, in,
                                              send_counts, out, recv_counts);
    fsdp_work_wait(&work);
}
