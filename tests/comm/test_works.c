/* Ranks: 1 2 3 4 5 8 */
/* Collectives in flight: many at once, on several communicators, waited for in
 * any order, on ranks that are late by random times; messages in pieces. */
#include "mck.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/tuning.h"
#include "fsdp/memory.h"

enum { KINDS = 6, MOST_RANKS = 64, LONGEST = 5000 };

static fsdp_comm_t *world;
static int size, rank;
static uint64_t dice;

static void
set_up(void)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    ck_assert_int_le(size, MOST_RANKS);
    dice = (uint64_t)rank * 77 + 5;
}

/* A number below `limit`, another sequence on each rank. */
static unsigned
throw_dice(unsigned limit)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(dice >> 33) % limit;
}

static void
be_late(void)
{
    long microseconds = throw_dice(4) == 0 ? (long)throw_dice(3000) : 0;
    nanosleep(&(struct timespec){0, microseconds * 1000}, NULL);
}

/* ---- one collective of any kind, and whether its result is right --------- */

typedef struct job {
    fsdp_comm_t *comm;
    int number; /* decides kind, count, root and values, on all ranks alike */
    int64_t *in, *out;
    fsdp_work_t *work;
} job_t;

static size_t
count_of(const job_t *job)
{
    return (size_t)(job->number * 37 % 50);
}

static int64_t
value_of(const job_t *job, int r, size_t i)
{
    return (int64_t)(1000 * job->number) + (r + 1) * (int64_t)(i + 1);
}

static int64_t
sum_of(const job_t *job, size_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < fsdp_comm_size(job->comm); r++)
        sum += value_of(job, r, i);
    return sum;
}

static void
start_job(job_t *job)
{
    size_t n = count_of(job), w = (size_t)fsdp_comm_size(job->comm);
    int root = job->number % (int)w;
    job->in = calloc(w * LONGEST, sizeof *job->in);
    job->out = calloc(w * LONGEST, sizeof *job->out);
    for (size_t i = 0; i < w * n; i++)
        job->in[i] = value_of(job, fsdp_comm_rank(job->comm), i);
    switch (job->number % KINDS) {
    case 0:
        job->work = fsdp_all_gather_start(job->comm, "a", FSDP_INT64, job->in,
                                          job->out, n);
        break;
    case 1:
        job->work = fsdp_reduce_scatter_start(
            job->comm, "b", FSDP_INT64, FSDP_ORDER_TREE, job->in, job->out, n);
        break;
    case 2:
        job->work = fsdp_all_reduce_start(job->comm, "c", FSDP_INT64, FSDP_SUM,
                                          FSDP_ORDER_RING, job->in, n);
        break;
    case 3:
        job->work =
            fsdp_broadcast_start(job->comm, "d", FSDP_INT64, job->in, n, root);
        break;
    case 4:
        job->work = fsdp_gather_start(job->comm, "e", FSDP_INT64, job->in,
                                      job->out, n, root);
        break;
    default:
        job->work = fsdp_reduce_scatter_start(
            job->comm, "f", FSDP_INT64, FSDP_ORDER_MPI, job->in, job->out, n);
    }
}

static int64_t
expected(const job_t *job, size_t i)
{
    size_t n = count_of(job);
    int mine = fsdp_comm_rank(job->comm);
    int root = job->number % fsdp_comm_size(job->comm);
    switch (job->number % KINDS) {
    case 0:
    case 4:
        return value_of(job, (int)(i / n), i % n);
    case 2:
        return sum_of(job, i);
    case 3:
        return value_of(job, root, i);
    default:
        return sum_of(job, (size_t)mine * n + i);
    }
}

static bool
end_job(job_t *job)
{
    size_t w = (size_t)fsdp_comm_size(job->comm), n = count_of(job);
    int kind = job->number % KINDS;
    int root = job->number % (int)w;
    const int64_t *result = kind == 2 || kind == 3 ? job->in : job->out;
    bool good = true;
    fsdp_work_wait(&job->work);
    if (kind == 0 || kind == 4)
        n *= w;
    if (kind == 4 && fsdp_comm_rank(job->comm) != root)
        n = 0;
    for (size_t i = 0; i < n; i++)
        good = good && result[i] == expected(job, i);
    free(job->in);
    free(job->out);
    return good && job->work == NULL;
}

/* Starts `count` jobs on the communicators in turn and ends them in an order
 * of each rank's own. */
static bool
run_jobs(fsdp_comm_t **comms, int comm_count, int count)
{
    job_t jobs[64];
    bool good = true;
    for (int i = 0; i < count; i++) {
        jobs[i] = (job_t){.comm = comms[i % comm_count], .number = i};
        be_late();
        start_job(&jobs[i]);
    }
    for (int left = count; left > 0; left--) {
        unsigned pick = throw_dice((unsigned)left);
        be_late();
        good = end_job(&jobs[pick]) && good;
        jobs[pick] = jobs[left - 1];
    }
    return good;
}

/* ---- tests -------------------------------------------------------------- */

START_TEST(many_in_any_order)
{
    set_up();
    for (int round = 0; round < 5; round++)
        mck_assert(run_jobs(&world, 1, 60));
}
END_TEST

START_TEST(several_communicators)
{
    set_up();
    fsdp_comm_t *comms[] = {
        fsdp_comm_split(world, rank % 2, rank, "parity"),
        world,
        fsdp_comm_split(world, rank / 2, -rank, "reverse"),
        fsdp_comm_dup(world, "twin"),
    };
    mck_assert(run_jobs(comms, 4, 60));
    fsdp_comm_destroy(&comms[0]);
    fsdp_comm_destroy(&comms[2]);
    fsdp_comm_destroy(&comms[3]);
    ck_assert_ptr_null(comms[0]);
    fsdp_comm_destroy(&comms[0]); /* NULL is allowed */
}
END_TEST

/* Which ranks a split brings together, and in which order. */
START_TEST(split_ranks)
{
    set_up();
    int third = rank / 3;
    int members = size - 3 * third < 3 ? size - 3 * third : 3;
    fsdp_comm_t *comm =
        fsdp_comm_split(world, third, -rank, "a name that is cut at fifteen");
    mck_assert(fsdp_comm_size(comm) == members);
    mck_assert(fsdp_comm_rank(comm) == members - 1 - rank % 3);
    ck_assert_str_eq(fsdp_comm_name(comm), "a name that is ");
    ck_assert_str_eq(fsdp_comm_name(world), "world");
    fsdp_comm_destroy(&comm);
}
END_TEST

/* Messages of one element, of three, five and so on: the same results. */
START_TEST(small_pieces)
{
    static const size_t pieces[] = {8, 24, 40, 1000};
    size_t usual = fsdp_comm_piece_bytes;
    set_up();
    fsdp_comm_piece_bytes = pieces[_i];
    bool good = run_jobs(&world, 1, 24);
    fsdp_comm_piece_bytes = usual;
    mck_assert(good);
}
END_TEST

/* Elements may be cut in two on the way. */
START_TEST(odd_pieces)
{
    size_t usual = fsdp_comm_piece_bytes;
    set_up();
    int64_t in[7], out[7 * MOST_RANKS];
    for (int i = 0; i < 7; i++)
        in[i] = (rank + 1) * 0x0101010101010101 * (i + 1);
    fsdp_comm_piece_bytes = 5;
    fsdp_all_gather(world, "u", FSDP_INT64, in, out, 7);
    fsdp_comm_piece_bytes = usual;
    bool good = true;
    for (int i = 0; i < 7 * size; i++)
        good = good && out[i] == (i / 7 + 1) * 0x0101010101010101 * (i % 7 + 1);
    mck_assert(good);
}
END_TEST

/* Tags run out and begin again. */
START_TEST(few_tags)
{
    int usual = fsdp_comm_tag_limit;
    set_up();
    fsdp_comm_tag_limit = 60;
    bool good = true;
    for (int round = 0; round < 4; round++)
        good = run_jobs(&world, 1, 50) && good;
    fsdp_comm_tag_limit = usual;
    mck_assert(good);
}
END_TEST

/* A start returns although the others have not come; a test does not wait; and
 * it is the data of the start that are sent. */
START_TEST(start_does_not_wait)
{
    set_up();
    int32_t in = rank, out[MOST_RANKS];
    bool early = false;
    fsdp_work_t *work = NULL;
    fsdp_comm_t *twin = fsdp_comm_dup(world, "twin");
    if (rank == 0) {
        work = fsdp_all_gather_start(world, "u", FSDP_INT32, &in, out, 1);
        early = size > 1 && fsdp_work_test(work);
    }
    /* Only now, when rank 0 has tested, do the others start. */
    fsdp_barrier(twin, "wait for rank 0");
    if (rank != 0)
        work = fsdp_all_gather_start(world, "u", FSDP_INT32, &in, out, 1);
    while (!fsdp_work_test(work))
        continue;
    bool good = !early;
    for (int r = 0; r < size; r++)
        good = good && out[r] == r;
    fsdp_work_wait(&work);
    fsdp_work_wait(&work); /* NULL is allowed */
    fsdp_comm_destroy(&twin);
    mck_assert(good);
}
END_TEST

/* One of each, two of them in flight at a time. */
static void
step(void)
{
    enum { COUNT = 500 };
    static float in[MOST_RANKS * COUNT], out[MOST_RANKS * COUNT];
    static double data[COUNT];
    fsdp_work_t *reduce = fsdp_reduce_scatter_start(
        world, "u", FSDP_FP32, FSDP_ORDER_TREE, in, out, COUNT);
    fsdp_work_t *gather =
        fsdp_all_gather_start(world, "u", FSDP_FP64, data, in, 100);
    fsdp_work_wait(&gather);
    fsdp_work_wait(&reduce);
    fsdp_all_reduce(world, "u", FSDP_FP64, FSDP_SUM, FSDP_ORDER_RANK, data,
                    COUNT);
    fsdp_broadcast(world, "u", FSDP_FP64, data, COUNT, 0);
    fsdp_gather(world, "u", FSDP_FP32, in, out, COUNT, 0);
    fsdp_barrier(world, "u");
}

/* A step that repeats leaves nothing, and asks the system for nothing.  (Under
 * AddressSanitizer no freed block is kept for the next request.) */
START_TEST(no_allocation_in_steady_state)
{
    set_up();
    fsdp_ledger_set_mode(FSDP_LEDGER_CHECK);
    step();
    long requests = fsdp_memory_system_requests();
    for (int i = 0; i < 20; i++)
        step();
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    mck_assert(fsdp_memory_live_blocks() == 0);
#ifndef __SANITIZE_ADDRESS__
    mck_assert(fsdp_memory_system_requests() == requests);
#else
    (void)requests;
#endif
}
END_TEST

/* The communication category counts the rows a reduction waits for, no more. */
START_TEST(scratch_of_a_reduction)
{
    enum { COUNT = 1000 };
    set_up();
    double *in = calloc((size_t)size * COUNT, sizeof *in);
    double *out = calloc(COUNT, sizeof *out);
    fsdp_memory_reset_peaks();
    fsdp_reduce_scatter(world, "u", FSDP_FP64, FSDP_ORDER_TREE, in, out, COUNT);
    size_t expected_bytes = ((size_t)size - 1) * COUNT * sizeof *in;
    size_t peak = fsdp_memory_peak_bytes(FSDP_MEM_COMM);
    free(out);
    free(in);
    mck_assert(peak == expected_bytes);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("works");
    TCase *tcase = tcase_create("in flight");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, many_in_any_order);
    tcase_add_test(tcase, several_communicators);
    tcase_add_test(tcase, split_ranks);
    tcase_add_loop_test(tcase, small_pieces, 0, 4);
    tcase_add_test(tcase, odd_pieces);
    tcase_add_test(tcase, few_tags);
    tcase_add_test(tcase, start_does_not_wait);
    tcase_add_test(tcase, no_allocation_in_steady_state);
    tcase_add_test(tcase, scratch_of_a_reduction);
    return mck_run(argc, argv, suite);
}
