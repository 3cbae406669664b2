/* Communicators: how they are made, their properties and counters. */
#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

void
fsdp_comm_open(fsdp_comm_t *comm, MPI_Comm mpi, const char *name)
{
    memset(comm, 0, sizeof *comm);
    snprintf(comm->name, sizeof comm->name, "%s", name);
    fsdp_comm_check_mpi(MPI_Comm_dup(mpi, &comm->data), "MPI_Comm_dup");
    fsdp_comm_check_mpi(MPI_Comm_dup(mpi, &comm->control), "MPI_Comm_dup");
    MPI_Comm_rank(comm->data, &comm->rank);
    MPI_Comm_size(comm->data, &comm->size);
}

void
fsdp_comm_close(fsdp_comm_t *comm)
{
    fsdp_comm_check_mpi(MPI_Comm_free(&comm->data), "MPI_Comm_free");
    fsdp_comm_check_mpi(MPI_Comm_free(&comm->control), "MPI_Comm_free");
}

/* MPI makes communicators in blocking calls, which the watchdog does not see:
 * the ranks meet first. */
static void
meet_to_make(fsdp_comm_t *parent, const char *what, const char *name)
{
    char unit[48];
    snprintf(unit, sizeof unit, "%s %s", what, name);
    fsdp_comm_meet(parent, unit);
}

fsdp_comm_t *
fsdp_comm_split(fsdp_comm_t *parent, int color, int key, const char *name)
{
    MPI_Comm mpi;
    FSDP_CHECK(color >= 0, "color %d of \"%s\" is negative", color, name);
    meet_to_make(parent, "fsdp_comm_split", name);
    fsdp_comm_check_mpi(MPI_Comm_split(parent->data, color, key, &mpi),
                        "MPI_Comm_split");
    fsdp_comm_t *comm = fsdp_alloc(FSDP_MEM_OTHER, sizeof *comm);
    fsdp_comm_open(comm, mpi, name);
    fsdp_comm_check_mpi(MPI_Comm_free(&mpi), "MPI_Comm_free");
    return comm;
}

fsdp_comm_t *
fsdp_comm_dup(fsdp_comm_t *parent, const char *name)
{
    meet_to_make(parent, "fsdp_comm_dup", name);
    fsdp_comm_t *comm = fsdp_alloc(FSDP_MEM_OTHER, sizeof *comm);
    fsdp_comm_open(comm, parent->data, name);
    return comm;
}

void
fsdp_comm_destroy(fsdp_comm_t **comm)
{
    if (*comm == NULL)
        return;
    FSDP_CHECK((*comm)->in_flight == 0,
               "communicator \"%s\" is destroyed before %d of its "
               "collectives were waited for",
               (*comm)->name, (*comm)->in_flight);
    fsdp_comm_meet(*comm, "fsdp_comm_destroy");
    fsdp_comm_close(*comm);
    fsdp_free(*comm);
    *comm = NULL;
}

int
fsdp_comm_rank(const fsdp_comm_t *comm)
{
    return comm->rank;
}

int
fsdp_comm_size(const fsdp_comm_t *comm)
{
    return comm->size;
}

const char *
fsdp_comm_name(const fsdp_comm_t *comm)
{
    return comm->name;
}

fsdp_comm_counter_t
fsdp_comm_counter(const fsdp_comm_t *comm, fsdp_collective_t kind)
{
    return comm->counters[kind];
}

void
fsdp_comm_reset_counters(fsdp_comm_t *comm)
{
    memset(comm->counters, 0, sizeof comm->counters);
}

MPI_Datatype
fsdp_comm_mpi_type(fsdp_dtype_t dtype)
{
    switch (dtype) {
    case FSDP_FP32:
        return MPI_FLOAT;
    case FSDP_FP64:
        return MPI_DOUBLE;
    case FSDP_INT32:
        return MPI_INT32_T;
    case FSDP_INT64:
        return MPI_INT64_T;
    case FSDP_UINT8:
        return MPI_UINT8_T;
    case FSDP_BF16:
    case FSDP_FP16:
    case FSDP_DTYPE_NONE:
        break;
    }
    return MPI_DATATYPE_NULL;
}
