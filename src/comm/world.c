/* The world's beginning and end, and every way out through MPI. */
#include "comm/internal.h"
#include "comm/launcher.h"
#include "fsdp/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

/* Not from fsdp_alloc(): it lives longer than any block that may be counted. */
static fsdp_comm_t world;
static bool initialized;

/* ---- ways out ----------------------------------------------------------- */

static void
end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

void
fsdp_comm_await_end(void)
{
    struct timespec ten_seconds = {10, 0};
    nanosleep(&ten_seconds, NULL);
    end_all(FSDP_EXIT_FAULT);
    abort();
}

void
fsdp_comm_die(const char *format, ...)
{
    char text[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!fsdp_watchdog_claim())
        fsdp_comm_await_end();
    fsdp_die(FSDP_EXIT_FAULT, "%s", text);
}

void
fsdp_comm_check_mpi(int code, const char *doing)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fsdp_comm_die("%s: MPI failed: %s", doing, text);
}

/* ---- beginning and end -------------------------------------------------- */

static void
set_tag_limit(void)
{
    int *limit, found;
    fsdp_comm_check_mpi(
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found),
        "asking for the largest tag");
    fsdp_comm_tag_limit = found ? *limit : 32767;
}

void
fsdp_init(int *argc, char ***argv)
{
    int provided, rank, size;
    FSDP_CHECK(!initialized, "fsdp_init() was called twice");
    /* Our own message says more than MPICH's, which comes after it. */
    setenv("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1", 0);
    fsdp_comm_check_mpi(
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided),
        "starting MPI");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    fsdp_launcher_check(size);
    fsdp_set_process(rank, end_all);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    FSDP_CHECK(provided >= MPI_THREAD_FUNNELED,
               "this MPI cannot be used together with threads");
    set_tag_limit();
    fsdp_comm_open(&world, MPI_COMM_WORLD, "world");
    fsdp_watchdog_create();
    initialized = true;
}

void
fsdp_finalize(void)
{
    FSDP_CHECK(initialized, "fsdp_finalize() without fsdp_init()");
    fsdp_comm_meet(&world, "fsdp_finalize");
    fsdp_comm_close(&world);
    fsdp_watchdog_destroy();
    initialized = false;
    fsdp_comm_check_mpi(MPI_Finalize(), "ending MPI");
    fsdp_set_process(-1, NULL);
}

bool
fsdp_is_initialized(void)
{
    return initialized;
}

fsdp_comm_t *
fsdp_comm_world(void)
{
    FSDP_CHECK(initialized, "no world: call fsdp_init() first");
    return &world;
}

int
fsdp_comm_world_rank(const fsdp_comm_t *comm, int rank)
{
    MPI_Group from, to;
    int result;
    MPI_Comm_group(comm->data, &from);
    MPI_Comm_group(world.data, &to);
    MPI_Group_translate_ranks(from, 1, &rank, to, &result);
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    return result;
}
