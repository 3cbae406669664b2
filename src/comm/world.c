/* The world's beginning and end, and every way out through MPI. */
#include "comm/internal.h"
#include "comm/launcher.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Not from fsdp_alloc(): it lives longer than any block that may be counted. */
static fsdp_comm_t world;
static bool initialized;
static pid_t process; /* that called fsdp_init(); children may exit */

/* ---- ways out ----------------------------------------------------------- */

/* Waits, 2 s at most, until what was written to a pipe is read. */
static void
drain(int output)
{
    struct timespec moment = {0, 5000000};
    struct stat kind;
    int left = 0;
    if (fstat(output, &kind) != 0 || !S_ISFIFO(kind.st_mode))
        return;
    for (int i = 0; i < 400; i++) {
        if (ioctl(output, FIONREAD, &left) != 0 || left == 0)
            break;
        nanosleep(&moment, NULL);
    }
}

/* The launcher ends all processes at once and drops what it has not yet passed
 * on, so the message gets a moment for its way.  What MPI_Abort() would add to
 * it goes nowhere. */
static _Noreturn void
end_all(int code)
{
    struct timespec moment = {0, 100000000};
    int over, nowhere = open("/dev/null", O_WRONLY);
    drain(STDOUT_FILENO);
    drain(STDERR_FILENO);
    nanosleep(&moment, NULL);
    if (nowhere >= 0)
        dup2(nowhere, STDERR_FILENO);
    MPI_Finalized(&over);
    if (!over)
        MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

void
fsdp_comm_await_end(void)
{
    struct timespec ten_seconds = {10, 0};
    nanosleep(&ten_seconds, NULL);
    end_all(FSDP_EXIT_FAULT);
}

/* Returns in one rank of a node; it will end the others. */
static void
ask_to_speak(void)
{
    if (!fsdp_watchdog_claim())
        fsdp_comm_await_end();
}

/* fsdp_die() is for messages of a few lines; this one has a line a rank. */
void
fsdp_comm_print_and_end(const char *text, size_t length)
{
    fflush(stdout);
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written <= 0)
            break;
        text += written;
        length -= (size_t)written;
    }
    end_all(FSDP_EXIT_FAULT);
}

void
fsdp_comm_check_mpi(int code, const char *doing)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fsdp_die(FSDP_EXIT_FAULT, "%s: MPI failed: %s", doing, text);
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

/* The launcher ends the others when a rank is gone, but if its exit status was
 * 0 it may call the whole run a success. */
static void
refuse_early_exit(void)
{
    if (initialized && getpid() == process)
        fsdp_die(FSDP_EXIT_FAULT, "exit() without fsdp_finalize(): the other "
                                  "ranks would wait for this one");
}

void
fsdp_init(int *argc, char ***argv)
{
    int provided, rank, size;
    FSDP_CHECK(!initialized, "fsdp_init() was called twice");
    fsdp_comm_check_mpi(
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided),
        "starting MPI");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    fsdp_launcher_check(size);
    fsdp_set_process(rank, end_all);
    fsdp_set_speaker(ask_to_speak);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    FSDP_CHECK(provided >= MPI_THREAD_FUNNELED,
               "this MPI cannot be used together with threads");
    set_tag_limit();
    fsdp_comm_open(&world, MPI_COMM_WORLD, "world");
    fsdp_watchdog_create();
    initialized = true;
    process = getpid();
    FSDP_CHECK(atexit(refuse_early_exit) == 0, "no more exit handlers");
}

void
fsdp_finalize(void)
{
    FSDP_CHECK(initialized, "fsdp_finalize() without fsdp_init()");
    FSDP_CHECK(fsdp_work_alive() == 0,
               "fsdp_finalize(): %ld collectives were started and not waited "
               "for",
               fsdp_work_alive());
    fsdp_comm_meet(&world, "fsdp_finalize");
    fsdp_comm_close(&world);
    fsdp_watchdog_destroy();
    initialized = false;
    fsdp_comm_check_mpi(MPI_Finalize(), "ending MPI");
    fsdp_lifeline_destroy();
    fsdp_set_process(-1, NULL);
    fsdp_set_speaker(NULL);
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
