#include "comm/internal.h"

/* Barrier: MPI's own, since there are no data whose order could matter; only
 * the waiting is ours.
 *
 * Cost: log2 W latencies, no data. */
static bool
barrier_advance(fsdp_work_t *work)
{
    if (work->stage > 0)
        return true;
    fsdp_comm_check_mpi(MPI_Ibarrier(work->comm->data, fsdp_work_request(work)),
                        "a barrier");
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
