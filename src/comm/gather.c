#include "comm/internal.h"

#include <string.h>

/* Gather: each rank sends its part to the root.
 *
 * Cost: one latency; the root receives (W - 1) count elements, each other rank
 * sends count. */
static bool
gather_advance(fsdp_work_t *work)
{
    const fsdp_comm_t *comm = work->comm;
    size_t bytes = work->call.bytes;
    int root = work->call.root;
    if (work->stage > 0)
        return true;

    if (comm->rank != root) {
        fsdp_work_send(work, work->in, bytes, root);
        return false;
    }
    for (int peer = 0; peer < comm->size; peer++) {
        char *part = (char *)work->out + (size_t)peer * bytes;
        if (peer != root)
            fsdp_work_receive(work, part, bytes, peer);
        else if (bytes > 0 && part != work->in)
            memcpy(part, work->in, bytes);
    }
    return false;
}

fsdp_work_t *
fsdp_gather_start(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                  const void *in, void *out, size_t count, int root)
{
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_GATHER,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .root = root,
                                              .count = count});
    work->in = in;
    work->out = out;
    return fsdp_work_start(work, gather_advance);
}

void
fsdp_gather(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
            const void *in, void *out, size_t count, int root)
{
    fsdp_work_t *work =
        fsdp_gather_start(comm, unit, dtype, in, out, count, root);
    fsdp_work_wait(&work);
}
