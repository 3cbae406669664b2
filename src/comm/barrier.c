#include "comm/internal.h"

/* Barrier: each rank sends an empty message to each other one.
 *
 * Cost: one latency, W - 1 messages from each rank.  The usual log2 W rounds
 * would need fewer messages, but where ranks share cores each round is a turn
 * of all of them: on 8 ranks and 2 cores this is several times faster. */
static bool
barrier_advance(fsdp_work_t *work)
{
    const fsdp_comm_t *comm = work->comm;
    if (work->stage > 0)
        return true;
    for (int i = 1; i < comm->size; i++)
        fsdp_work_receive_empty(work,
                                (comm->rank + comm->size - i) % comm->size);
    for (int i = 1; i < comm->size; i++)
        fsdp_work_send_empty(work, (comm->rank + i) % comm->size);
    return false;
}

fsdp_work_t *
fsdp_barrier_start(fsdp_comm_t *comm, const char *unit)
{
    fsdp_work_t *work = fsdp_work_create(
        comm, &(fsdp_call_t){.kind = FSDP_BARRIER, .unit = unit, .root = -1});
    return fsdp_work_start(work, barrier_advance);
}

void
fsdp_barrier(fsdp_comm_t *comm, const char *unit)
{
    fsdp_work_t *work = fsdp_barrier_start(comm, unit);
    fsdp_work_wait(&work);
}

void
fsdp_comm_meet(fsdp_comm_t *comm, const char *unit)
{
    fsdp_work_t *work = fsdp_work_create_uncounted(
        comm, &(fsdp_call_t){.kind = FSDP_BARRIER, .unit = unit, .root = -1});
    fsdp_work_start(work, barrier_advance);
    fsdp_work_wait(&work);
}
