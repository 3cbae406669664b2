/* What the ledger writes down and the counters count. */
#include "mck.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 11, MOST_RANKS = 64 };

static fsdp_comm_t *world;
static uint64_t size;
static int rank;
static double in[MOST_RANKS * COUNT], out[MOST_RANKS * COUNT];

static void
set_up(void)
{
    world = fsdp_comm_world();
    size = (uint64_t)fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    ck_assert_uint_le(size, MOST_RANKS);
    fsdp_ledger_set_mode(FSDP_LEDGER_RECORD);
}

static void
tear_down(void)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
}

/* ---- the ledger --------------------------------------------------------- */

static void
assert_line(const fsdp_comm_t *comm, size_t i, const char *expected)
{
    char line[256];
    const fsdp_ledger_entry_t *entry = fsdp_ledger_latest(comm, i);
    ck_assert_ptr_nonnull(entry);
    fsdp_ledger_format(entry, line, sizeof line);
    ck_assert_str_eq(line, expected);
}

START_TEST(lines)
{
    fsdp_comm_t *comm = fsdp_comm_dup(world, "twin");
    fsdp_all_gather(comm, "h.0", FSDP_BF16, in, out, 5);
    fsdp_reduce_scatter(comm, "h.1", FSDP_FP32, FSDP_ORDER_RING, in, out, 7);
    fsdp_all_reduce(comm, "loss", FSDP_FP64, FSDP_MAX, FSDP_ORDER_TREE, in, 1);
    fsdp_broadcast(comm, NULL, FSDP_UINT8, in, 3, (int)size - 1);
    fsdp_gather(comm, "save", FSDP_INT64, in, out, 0, 0);
    fsdp_barrier(comm, "end");

    char broadcast[96];
    snprintf(broadcast, sizeof broadcast,
             "#4 broadcast twin - uint8 root %d 3 elements 3 bytes",
             (int)size - 1);
    assert_line(comm, 5, "#1 all_gather twin h.0 bfloat16 5 elements 10 bytes");
    assert_line(comm, 4,
                "#2 reduce_scatter twin h.1 float32 sum/ring 7 "
                "elements 28 bytes");
    assert_line(comm, 3,
                "#3 all_reduce twin loss float64 max/tree 1 elements "
                "8 bytes");
    assert_line(comm, 2, broadcast);
    assert_line(comm, 1, "#5 gather twin save int64 root 0 0 elements 0 bytes");
    assert_line(comm, 0, "#6 barrier twin end");
    ck_assert_uint_eq(fsdp_ledger_length(comm), 6);
    ck_assert_ptr_null(fsdp_ledger_latest(comm, 6));
    fsdp_comm_destroy(&comm);
}
END_TEST

START_TEST(fields)
{
    fsdp_reduce_scatter(world, "h.1", FSDP_FP16, FSDP_ORDER_RANK, in, out, 9);
    const fsdp_ledger_entry_t *entry = fsdp_ledger_latest(world, 0);
    ck_assert_uint_eq(entry->sequence, fsdp_ledger_length(world));
    ck_assert_int_eq((int)entry->kind, FSDP_REDUCE_SCATTER);
    ck_assert_int_eq((int)entry->dtype, FSDP_FP16);
    ck_assert_int_eq((int)entry->op, FSDP_SUM);
    ck_assert_int_eq((int)entry->order, FSDP_ORDER_RANK);
    ck_assert_int_eq(entry->root, -1);
    ck_assert_uint_eq(entry->count, 9);
    ck_assert_uint_eq(entry->bytes, 18);
    ck_assert_str_eq(entry->unit, "h.1");
    ck_assert_str_eq(entry->comm, "world");
}
END_TEST

/* Of a long name the end is kept, which tells units apart. */
START_TEST(long_units)
{
    char unit[101];
    for (int i = 0; i < 100; i++)
        unit[i] = (char)('a' + i % 26);
    unit[100] = '\0';
    fsdp_barrier(world, unit);
    ck_assert_str_eq(fsdp_ledger_latest(world, 0)->unit, unit + 100 - 47);
    fsdp_barrier(world, unit + 53); /* just fits */
    ck_assert_str_eq(fsdp_ledger_latest(world, 0)->unit, unit + 53);
}
END_TEST

/* A text too small is cut, as by snprintf(). */
START_TEST(short_text)
{
    char text[12];
    memset(text, 'x', sizeof text);
    fsdp_barrier(world, "end");
    fsdp_ledger_format(fsdp_ledger_latest(world, 0), text, 8);
    ck_assert_uint_eq(strlen(text), 7);
    ck_assert_int_eq(text[8], 'x');
    fsdp_all_gather(world, "u", FSDP_FP32, in, out, 1);
    for (size_t room = 1; room < sizeof text; room++) {
        fsdp_ledger_format(fsdp_ledger_latest(world, 0), text, room);
        ck_assert_uint_eq(strlen(text), room - 1);
    }
}
END_TEST

START_TEST(how_many_are_kept)
{
    fsdp_comm_t *comm = fsdp_comm_dup(world, "twin");
    ck_assert_uint_eq(fsdp_ledger_length(comm), 0);
    ck_assert_ptr_null(fsdp_ledger_latest(comm, 0));
    for (int i = 0; i < 1500; i++)
        fsdp_gather(comm, "u", FSDP_FP32, in, out, (size_t)i % 3, 0);
    ck_assert_uint_eq(fsdp_ledger_length(comm), 1500);
    for (size_t i = 0; i < 1024; i++)
        ck_assert_uint_eq(fsdp_ledger_latest(comm, i)->sequence, 1500 - i);
    ck_assert_ptr_null(fsdp_ledger_latest(comm, 1024));

    fsdp_ledger_set_mode(FSDP_LEDGER_OFF);
    fsdp_barrier(comm, "last");
    ck_assert_str_eq(fsdp_ledger_latest(comm, 0)->unit, "last");
    ck_assert_ptr_null(fsdp_ledger_latest(comm, 1));
    fsdp_ledger_set_mode(FSDP_LEDGER_RECORD);
    fsdp_barrier(comm, "more");
    ck_assert_str_eq(fsdp_ledger_latest(comm, 0)->unit, "more");
    ck_assert_uint_eq(fsdp_ledger_length(comm), 1502);
    fsdp_comm_destroy(&comm);
}
END_TEST

/* Calls that fit pass the comparison, on several communicators at once. */
START_TEST(check_lets_pass)
{
    fsdp_ledger_set_mode(FSDP_LEDGER_CHECK);
    ck_assert_int_eq((int)fsdp_ledger_get_mode(), FSDP_LEDGER_CHECK);
    fsdp_comm_t *half = fsdp_comm_split(world, rank % 2, rank, "half");
    for (int i = 0; i < 50; i++) {
        fsdp_work_t *work =
            fsdp_all_gather_start(world, "u", FSDP_FP64, in, out, COUNT);
        fsdp_all_reduce(half, "v", FSDP_FP64, FSDP_SUM, FSDP_ORDER_TREE, in,
                        COUNT);
        fsdp_work_wait(&work);
    }
    /* The halves may call different things at the same time. */
    if (rank % 2 == 0)
        fsdp_barrier(half, "even");
    ck_assert_uint_eq(fsdp_ledger_length(half), rank % 2 == 0 ? 51 : 50);
    fsdp_comm_destroy(&half);
}
END_TEST

START_TEST(kind_names)
{
    static const char *const names[] = {"all_gather", "reduce_scatter",
                                        "all_reduce", "broadcast",
                                        "gather",     "all_to_all",
                                        "barrier"};
    for (int kind = 0; kind < FSDP_COLLECTIVE_COUNT; kind++)
        ck_assert_str_eq(fsdp_collective_name((fsdp_collective_t)kind),
                         names[kind]);
}
END_TEST

/* ---- the counters ------------------------------------------------------- */

static bool
counted(const fsdp_comm_t *comm, fsdp_collective_t kind, uint64_t calls,
        uint64_t bytes)
{
    fsdp_comm_counter_t counter = fsdp_comm_counter(comm, kind);
    if (counter.calls == calls && counter.bytes_sent == bytes)
        return true;
    fprintf(stderr, "%s: %llu calls, %llu bytes\n", fsdp_collective_name(kind),
            (unsigned long long)counter.calls,
            (unsigned long long)counter.bytes_sent);
    return false;
}

static uint64_t
chunk_of(uint64_t count, uint64_t place)
{
    uint64_t chunk = (count + size - 1) / size;
    uint64_t begin = place * chunk < count ? place * chunk : count;
    return begin + chunk < count ? chunk : count - begin;
}

/* Sent by this rank, by the formulas of comm.h; of an all-reduce and a
 * broadcast of COUNT elements by the chunks that they are cut into. */
START_TEST(bytes)
{
    fsdp_comm_t *comm = fsdp_comm_dup(world, "twin");
    uint64_t mine = chunk_of(COUNT, (uint64_t)rank);
    uint64_t others = COUNT - mine;
    uint64_t most = 8 * 2 * (size - 1) * ((COUNT + size - 1) / size);
    uint64_t place = ((uint64_t)rank + 1) % size; /* root is the last rank */
    uint64_t chunk = chunk_of(COUNT, place);
    uint64_t broadcast =
        place == 0 ? COUNT - chunk + (size - 1) * chunk : (size - 2) * chunk;

    fsdp_all_gather(comm, "u", FSDP_FP64, in, out, COUNT);
    fsdp_all_gather(comm, "u", FSDP_BF16, in, out, 3);
    for (int order = 0; order < 4; order++)
        fsdp_reduce_scatter(comm, "u", FSDP_FP32, (fsdp_reduce_order_t)order,
                            in, out, COUNT);
    fsdp_all_reduce(comm, "u", FSDP_FP64, FSDP_SUM, FSDP_ORDER_TREE, in, COUNT);
    fsdp_all_reduce(comm, "u", FSDP_FP64, FSDP_SUM, FSDP_ORDER_MPI, in, COUNT);
    fsdp_broadcast(comm, "u", FSDP_FP32, in, COUNT, (int)size - 1);
    fsdp_gather(comm, "u", FSDP_FP64, in, out, COUNT, 0);
    fsdp_barrier(comm, "u");

    mck_assert(
        counted(comm, FSDP_ALL_GATHER, 2, (size - 1) * (COUNT * 8 + 3 * 2)));
    mck_assert(
        counted(comm, FSDP_REDUCE_SCATTER, 4, 4 * (size - 1) * COUNT * 4));
    mck_assert(counted(comm, FSDP_ALL_REDUCE, 2,
                       8 * (others + (size - 1) * mine) + most));
    mck_assert(counted(comm, FSDP_BROADCAST, 1, 4 * broadcast));
    mck_assert(counted(comm, FSDP_GATHER, 1, rank == 0 ? 0 : COUNT * 8));
    mck_assert(counted(comm, FSDP_BARRIER, 1, 0));
    ck_assert_uint_le(8 * (others + (size - 1) * mine), most);
    fsdp_comm_destroy(&comm);
}
END_TEST

/* Each communicator counts for itself, and the library's own meetings not. */
START_TEST(counters_of_a_twin)
{
    fsdp_comm_reset_counters(world);
    fsdp_comm_t *twin = fsdp_comm_dup(world, "twin");
    fsdp_all_gather(twin, "u", FSDP_FP64, in, out, COUNT);
    bool good = true;
    for (int kind = 0; kind < FSDP_COLLECTIVE_COUNT; kind++)
        good = good && counted(world, (fsdp_collective_t)kind, 0, 0);
    good = good && counted(twin, FSDP_ALL_GATHER, 1, (size - 1) * COUNT * 8) &&
           counted(twin, FSDP_BARRIER, 0, 0);
    good = good && fsdp_comm_counter(twin, FSDP_ALL_GATHER).seconds > 0.0 &&
           fsdp_comm_counter(twin, FSDP_ALL_REDUCE).seconds == 0.0;
    fsdp_comm_reset_counters(twin);
    good = good && counted(twin, FSDP_ALL_GATHER, 0, 0) &&
           fsdp_comm_counter(twin, FSDP_ALL_GATHER).seconds == 0.0;
    fsdp_comm_destroy(&twin);
    mck_assert(good);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, lines);
    tcase_add_test(tcase, fields);
    tcase_add_test(tcase, long_units);
    tcase_add_test(tcase, short_text);
    tcase_add_test(tcase, how_many_are_kept);
    tcase_add_test(tcase, check_lets_pass);
    tcase_add_test(tcase, kind_names);
    tcase_add_test(tcase, bytes);
    tcase_add_test(tcase, counters_of_a_twin);
    return mck_run(argc, argv, suite);
}
