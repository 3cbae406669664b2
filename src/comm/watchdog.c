/* The watchdog: no rank waits for ever.
 *
 * Each rank keeps its last call and what it does now in memory that the ranks
 * of a node share, where the others can read it whatever the rank is doing,
 * stopped by a signal or lost in a loop.  The first rank whose wait is too long
 * prints all that and ends the run.  The slots are in one place for all the
 * communicators, since a rank waits in one of them at a time.  Of several nodes
 * each may print what it sees of its own ranks. */
#include "comm/internal.h"
#include "fsdp/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct slot {
    atomic_uint version; /* odd while the rank writes                */
    int pid;
    bool waiting;
    double since;                /* the clock is one for the whole node      */
    fsdp_ledger_entry_t call;    /* the last one                             */
    fsdp_ledger_entry_t awaited; /* while waiting                            */
} slot_t;

typedef struct shared {
    atomic_flag claimed; /* used in the memory of rank 0 of the node only    */
    slot_t slot;
} shared_t;

static struct {
    MPI_Comm node;
    MPI_Win window;
    shared_t *mine, *first;
} dog = {.node = MPI_COMM_NULL};

static double limit = 60.0;

/* The lifeline's thread may want to speak while the memory is given back. */
static pthread_mutex_t claiming = PTHREAD_MUTEX_INITIALIZER;

void
fsdp_comm_set_timeout(double seconds)
{
    limit = seconds;
}

/* ---- what this rank writes ---------------------------------------------- */

void
fsdp_watchdog_create(void)
{
    MPI_Aint size;
    int unit;
    fsdp_comm_check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD,
                                            MPI_COMM_TYPE_SHARED, 0,
                                            MPI_INFO_NULL, &dog.node),
                        "finding the ranks of this node");
    fsdp_comm_check_mpi(MPI_Win_allocate_shared((MPI_Aint)sizeof(shared_t), 1,
                                                MPI_INFO_NULL, dog.node,
                                                &dog.mine, &dog.window),
                        "sharing memory with the ranks of this node (is "
                        "/dev/shm full?)");
    MPI_Win_shared_query(dog.window, 0, &size, &unit, &dog.first);
    memset(dog.mine, 0, sizeof *dog.mine);
    atomic_flag_clear(&dog.mine->claimed);
    dog.mine->slot.pid = (int)getpid();
    dog.mine->slot.since = fsdp_clock_seconds();
    fsdp_comm_check_mpi(MPI_Barrier(dog.node), "MPI_Barrier");
    fsdp_lifeline_create(dog.node);
}

void
fsdp_watchdog_destroy(void)
{
    pthread_mutex_lock(&claiming);
    dog.mine = dog.first = NULL;
    pthread_mutex_unlock(&claiming);
    MPI_Win_free(&dog.window);
    MPI_Comm_free(&dog.node);
}

static slot_t *
begin_write(void)
{
    slot_t *slot = &dog.mine->slot;
    atomic_fetch_add_explicit(&slot->version, 1, memory_order_acq_rel);
    return slot;
}

static void
end_write(slot_t *slot)
{
    atomic_fetch_add_explicit(&slot->version, 1, memory_order_release);
}

void
fsdp_watchdog_note_call(const fsdp_ledger_entry_t *call)
{
    slot_t *slot = begin_write();
    slot->call = *call;
    end_write(slot);
}

static void
note_state(bool waiting, const fsdp_ledger_entry_t *awaited)
{
    slot_t *slot = begin_write();
    slot->waiting = waiting;
    slot->since = fsdp_clock_seconds();
    if (awaited != NULL)
        slot->awaited = *awaited;
    end_write(slot);
}

void
fsdp_watchdog_note_wait(const fsdp_ledger_entry_t *call)
{
    note_state(true, call);
}

void
fsdp_watchdog_note_running(void)
{
    note_state(false, NULL);
}

/* ---- what the others read ----------------------------------------------- */

/* A copy that was not written to meanwhile; a rank that was stopped in the
 * middle of writing gives what there is. */
static slot_t
read_slot(slot_t *slot)
{
    slot_t copy;
    for (int i = 0; i < 1000; i++) {
        unsigned before =
            atomic_load_explicit(&slot->version, memory_order_acquire);
        memcpy(&copy, slot, sizeof copy);
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 &&
            before ==
                atomic_load_explicit(&slot->version, memory_order_relaxed))
            break;
    }
    return copy;
}

/* The state of a process as Linux shows it: 'R', 'S', 'T' for stopped, ...; 0
 * if there is none. */
static char
process_state(int pid)
{
    char path[32], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    fclose(file);
    const char *name_end = strrchr(line, ')');
    return name_end == NULL ? 0 : name_end[2];
}

static void
describe_state(FILE *to, const slot_t *slot)
{
    char line[256], state = process_state(slot->pid);
    double seconds = fsdp_clock_seconds() - slot->since;
    if (state == 'T' || state == 't')
        fprintf(to, "; stopped by a signal or a debugger");
    else if (state == 0 || state == 'Z' || state == 'X')
        fprintf(to, "; the process is gone");

    if (!slot->waiting) {
        fprintf(to, "; outside of collectives for %.1f s", seconds);
    } else if (slot->awaited.sequence == slot->call.sequence &&
               strcmp(slot->awaited.comm, slot->call.comm) == 0) {
        fprintf(to, "; waiting in it for %.1f s", seconds);
    } else {
        fsdp_ledger_format(&slot->awaited, line, sizeof line);
        fprintf(to, "; waiting for %s for %.1f s", line, seconds);
    }
}

static void
describe_rank(FILE *to, int world_rank)
{
    const fsdp_comm_t *world = fsdp_comm_world();
    MPI_Group all, near;
    MPI_Aint size;
    shared_t *shared;
    char line[256];
    int node_rank, unit;
    MPI_Comm_group(world->data, &all);
    MPI_Comm_group(dog.node, &near);
    MPI_Group_translate_ranks(all, 1, &world_rank, near, &node_rank);
    MPI_Group_free(&all);
    MPI_Group_free(&near);
    if (node_rank == MPI_UNDEFINED) {
        fprintf(to, "\n    rank %d: on another node", world_rank);
        return;
    }
    MPI_Win_shared_query(dog.window, node_rank, &size, &unit, &shared);
    slot_t slot = read_slot(&shared->slot);
    fsdp_ledger_format(&slot.call, line, sizeof line);
    fprintf(to, "\n    rank %d: %s", world_rank, line);
    describe_state(to, &slot);
}

bool
fsdp_watchdog_claim(void)
{
    pthread_mutex_lock(&claiming);
    bool first =
        dog.first == NULL || !atomic_flag_test_and_set(&dog.first->claimed);
    pthread_mutex_unlock(&claiming);
    return first;
}

void
fsdp_watchdog_check(double waited)
{
    char *text = NULL;
    size_t length = 0;
    if (limit <= 0.0 || waited < limit)
        return;
    if (!fsdp_watchdog_claim())
        fsdp_comm_await_end();
    FILE *to = open_memstream(&text, &length);
    FSDP_CHECK(to != NULL, "no memory for the report of the watchdog");
    fprintf(to,
            "fsdp: rank %d: waited for more than %g s; the last call of each "
            "rank:",
            fsdp_comm_rank(fsdp_comm_world()), limit);
    for (int r = 0; r < fsdp_comm_size(fsdp_comm_world()); r++)
        describe_rank(to, r);
    fputc('\n', to);
    fclose(to);
    fsdp_comm_print_and_end(text, length);
}
