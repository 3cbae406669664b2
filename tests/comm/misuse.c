/* Does wrong what the first argument names; started by the scripts beside it,
 * which look at how the run ends.  Rank 1 is the one that goes wrong.
 *
 *     misuse NAME SECONDS     SECONDS of the watchdog
 */
#include "fsdp/comm.h"

#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 6, MOST_RANKS = 8 };

static double in[MOST_RANKS * COUNT], out[MOST_RANKS * COUNT];
static fsdp_comm_t *world;
static bool odd; /* is this rank the one that goes wrong? */

/* ---- calls that do not fit together ------------------------------------- */

static void
reduce_scatter(const char *unit, fsdp_dtype_t dtype, fsdp_reduce_order_t order,
               size_t count)
{
    fsdp_reduce_scatter(world, unit, dtype, order, in, out, count);
}

static void
other_kind(void)
{
    if (odd)
        fsdp_all_gather(world, "u", FSDP_FP32, in, out, COUNT);
    else
        reduce_scatter("u", FSDP_FP32, FSDP_ORDER_TREE, COUNT);
}

static void
other_unit(void)
{
    reduce_scatter(odd ? "h.1" : "h.0", FSDP_FP32, FSDP_ORDER_TREE, COUNT);
}

static void
other_dtype(void)
{
    reduce_scatter("u", odd ? FSDP_INT32 : FSDP_FP32, FSDP_ORDER_TREE, COUNT);
}

static void
other_order(void)
{
    reduce_scatter("u", FSDP_FP32, odd ? FSDP_ORDER_RING : FSDP_ORDER_TREE,
                   COUNT);
}

static void
other_count(void)
{
    reduce_scatter("u", FSDP_FP32, FSDP_ORDER_TREE, odd ? COUNT - 1 : COUNT);
}

static void
other_op(void)
{
    fsdp_all_reduce(world, "u", FSDP_FP32, odd ? FSDP_MAX : FSDP_SUM,
                    FSDP_ORDER_TREE, in, COUNT);
}

static void
other_root(void)
{
    fsdp_broadcast(world, "u", FSDP_FP32, in, COUNT, odd ? 1 : 0);
}

/* A check that is switched on too late sees it in the sequence numbers. */
static void
other_sequence(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    if (fsdp_comm_rank(world) == 0) {
        /* Only the root of a gather waits, and it has nothing to wait for. */
        fsdp_gather(world, "alone", FSDP_FP32, in, out, 0, 0);
    }
    fsdp_ledger_set_mode(FSDP_LEDGER_CHECK);
    reduce_scatter("u", FSDP_FP32, FSDP_ORDER_TREE, COUNT);
}

static void
early_finalize(void)
{
    if (!odd)
        reduce_scatter("u", FSDP_FP32, FSDP_ORDER_TREE, COUNT);
}

/* The ledger is off: sizes are all there is to see. */
static void
unseen_count(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    other_count();
}

static void
unseen_short(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    /* Rank 0 gets too little; nobody gets too much, which MPI would see. */
    fsdp_gather(world, "u", FSDP_FP32, in, out, odd ? COUNT - 1 : COUNT, 0);
}

/* ---- ranks that do not come --------------------------------------------- */

static void
missing_call(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    fsdp_barrier(world, "before");
    while (odd)
        sleep(1);
    fsdp_all_gather(world, "h.0", FSDP_FP32, in, out, COUNT);
}

static void
stopped(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    fsdp_barrier(world, "before");
    if (odd)
        raise(SIGSTOP);
    fsdp_all_gather(world, "h.0", FSDP_FP32, in, out, COUNT);
}

static void
endless_loop(void)
{
    volatile bool go_on = odd;
    fsdp_barrier(world, "before");
    while (go_on)
        continue;
    fsdp_all_gather(world, "h.0", FSDP_FP32, in, out, COUNT);
}

/* Two communicators, used in opposite orders while each call is compared. */
static void
crossed(void)
{
    fsdp_comm_t *twin = fsdp_comm_dup(world, "twin");
    fsdp_barrier(odd ? twin : world, "first");
    fsdp_barrier(odd ? world : twin, "second");
}

static void
leave(void)
{
    if (odd)
        exit(EXIT_SUCCESS);
    fsdp_barrier(world, "never");
}

static void
crash(void)
{
    if (odd)
        raise(SIGKILL);
    fsdp_barrier(world, "never");
}

/* Killed while the others do not wait, and are soon done. */
static void
crash_alone(void)
{
    fsdp_barrier(world, "before");
    if (odd)
        raise(SIGKILL);
}

/* MPI_Finalize() calls this first of all. */
static int
die_in_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    return raise(SIGKILL);
}

/* Killed when the library's own last meeting is over. */
static void
crash_late(void)
{
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, die_in_finalize, &key, NULL);
    if (odd)
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

/* ---- works that are forgotten ------------------------------------------- */

static void
forgotten(void)
{
    fsdp_barrier_start(world, "forgotten");
}

static void
forgotten_comm(void)
{
    fsdp_comm_t *twin = fsdp_comm_dup(world, "twin");
    fsdp_barrier_start(twin, "forgotten");
    fsdp_comm_destroy(&twin);
}

/* ---- nothing wrong ------------------------------------------------------ */

/* The watchdog counts each wait by itself, and not what a rank computes. */
static void
slow_but_well(void)
{
    struct timespec moment = {0, 300000000};
    for (int i = 0; i < 6; i++) {
        if (odd)
            nanosleep(&moment, NULL);
        fsdp_all_gather(world, "h.0", FSDP_FP32, in, out, COUNT);
    }
}

static const struct scenario {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"kind", other_kind},
    {"unit", other_unit},
    {"dtype", other_dtype},
    {"order", other_order},
    {"count", other_count},
    {"op", other_op},
    {"root", other_root},
    {"sequence", other_sequence},
    {"finalize", early_finalize},
    {"unseen-count", unseen_count},
    {"unseen-short", unseen_short},
    {"missing", missing_call},
    {"stopped", stopped},
    {"loop", endless_loop},
    {"crossed", crossed},
    {"leave", leave},
    {"crash", crash},
    {"crash-alone", crash_alone},
    {"crash-late", crash_late},
    {"forgotten", forgotten},
    {"forgotten-comm", forgotten_comm},
    {"slow", slow_but_well},
};

int
main(int argc, char **argv)
{
    fsdp_init(&argc, &argv);
    world = fsdp_comm_world();
    odd = fsdp_comm_rank(world) == 1;
    fsdp_ledger_set_mode(FSDP_LEDGER_CHECK);
    if (argc > 2)
        fsdp_comm_set_timeout(atof(argv[2]));
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0)
            scenarios[i].run();
    fsdp_finalize();
    return EXIT_SUCCESS;
}
