#include "comm/internal.h"

/* Broadcast: the root cuts the data into W chunks and sends one to each rank;
 * the ranks then exchange chunks.  Ranks are counted from the root: "place" 0
 * is the root, whose own chunk goes straight to everybody.
 *
 * Cost: two latencies.  With c = ceil(count / W), the root sends 2 (W - 1) c
 * elements and each other rank (W - 2) c: less than twice count whatever W is,
 * where the root of a flat broadcast would send (W - 1) count.  Of count <= W
 * elements the later places have no chunk; a single element takes one latency. */

static void
send_chunk(fsdp_work_t *work, int chunk, int place)
{
    fsdp_work_send(work,
                   (char *)work->out + fsdp_rows_begin(&work->rows, chunk),
                   fsdp_rows_bytes(&work->rows, chunk),
                   (work->call.root + place) % work->comm->size);
}

static void
receive_chunk(fsdp_work_t *work, int chunk, int place)
{
    fsdp_work_receive(work,
                      (char *)work->out + fsdp_rows_begin(&work->rows, chunk),
                      fsdp_rows_bytes(&work->rows, chunk),
                      (work->call.root + place) % work->comm->size);
}

static bool
root_advance(fsdp_work_t *work)
{
    if (work->stage > 0)
        return true;
    for (int place = 1; place < work->comm->size; place++)
        send_chunk(work, place, place);
    for (int place = 1; place < work->comm->size; place++)
        send_chunk(work, 0, place);
    return false;
}

static bool
broadcast_advance(fsdp_work_t *work)
{
    int size = work->comm->size;
    int mine = (work->comm->rank + size - work->call.root) % size;
    if (mine == 0)
        return root_advance(work);
    if (work->stage == 0)
        receive_chunk(work, mine, 0);
    if (work->stage == 1) {
        for (int place = 0; place < size; place++)
            if (place != mine)
                receive_chunk(work, place, place);
        for (int place = 1; place < size; place++)
            if (place != mine)
                send_chunk(work, mine, place);
    }
    return work->stage == 2;
}

fsdp_work_t *
fsdp_broadcast_start(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                     void *data, size_t count, int root)
{
    fsdp_work_t *work =
        fsdp_work_create(comm, &(fsdp_call_t){.kind = FSDP_BROADCAST,
                                              .unit = unit,
                                              .dtype = dtype,
                                              .root = root,
                                              .count = count});
    work->in = data;
    work->out = data;
    work->rows = fsdp_rows_cut(count, dtype, comm->size);
    return fsdp_work_start(work, broadcast_advance);
}

void
fsdp_broadcast(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
               void *data, size_t count, int root)
{
    fsdp_work_t *work =
        fsdp_broadcast_start(comm, unit, dtype, data, count, root);
    fsdp_work_wait(&work);
}
