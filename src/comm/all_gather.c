#include "comm/internal.h"

#include <string.h>

/* All-gather by direct exchange: each rank sends its part to each other rank.
 *
 * Cost: one latency, (W - 1) count elements sent and received by each rank, as
 * many as in a ring, which has W - 1 latencies.  Peers are taken in the order
 * rank + 1, rank + 2, ..., so that not all send to the same one first. */
static bool
all_gather_advance(fsdp_work_t *work)
{
    const fsdp_comm_t *comm = work->comm;
    size_t bytes = work->call.bytes;
    char *out = work->out, *mine = out + (size_t)comm->rank * bytes;
    if (work->stage > 0)
        return true;

    for (int i = 1; i < comm->size; i++) {
        int peer = (comm->rank + comm->size - i) % comm->size;
        fsdp_work_receive(work, out + (size_t)peer * bytes, bytes, peer);
    }
    for (int i = 1; i < comm->size; i++)
        fsdp_work_send(work, work->in, bytes, (comm->rank + i) % comm->size);
    if (bytes > 0 && work->in != mine)
        memcpy(mine, work->in, bytes);
    return false;
}

fsdp_work_t *
fsdp_all_gather_start(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                      const void *in, void *out, size_t count)
{
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_ALL_GATHER,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .root = -1,
                                              .count = count});
    work->in = in;
    work->out = out;
    return fsdp_work_start(work, all_gather_advance);
}

void
fsdp_all_gather(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                const void *in, void *out, size_t count)
{
    fsdp_work_t *work =
        fsdp_all_gather_start(comm, unit, dtype, in, out, count);
    fsdp_work_wait(&work);
}
