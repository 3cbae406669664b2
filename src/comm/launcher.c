/* An mpirun of another MPI starts N processes that know nothing of each other:
 * each would train alone, and all would write to the same files. */
#include "comm/launcher.h"

#include <signal.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <time.h>

#include "fsdp/status.h"

/* Variables by which launchers tell a process how many it belongs to, and
 * which one it is. */
static const struct launcher {
    const char *size, *rank, *name;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"},
    {"PMI_SIZE", "PMI_RANK", "an mpiexec that speaks another PMI"},
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID", "another MPI's mpiexec"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
     "srun without MPICH's PMI (try srun --mpi=pmi2)"},
};

static long
number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

/* One of the N processes explains; the others leave a moment later, lest the
 * launcher ends the first before it has spoken. */
static _Noreturn void
refuse(const char *name, long rank, const char *count)
{
    struct timespec moment = {1, 0};
    if (rank == 0)
        fsdp_die(FSDP_EXIT_USAGE,
                 "started by %s as one of %s processes, but MPICH sees only "
                 "this one: each would run alone.  Start with MPICH's own "
                 "launcher: mpiexec.mpich -n N ...",
                 name, count);
    nanosleep(&moment, NULL);
    _Exit(FSDP_EXIT_USAGE);
}

static void
refuse_foreign(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const struct launcher *l = &launchers[i];
        if (number_in(l->size) > 1)
            refuse(l->name, number_in(l->rank), getenv(l->size));
    }
    /* PMIx tells its rank only; that a rank 1 exists is known to rank 1. */
    if (number_in("PMIX_RANK") > 0)
        refuse("a launcher that speaks PMIx", 0, "several");
}

void
fsdp_launcher_check(int world_size)
{
    if (world_size == 1)
        refuse_foreign();
#ifdef __linux__
    else
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}
