/* Ranks: 1 2 3 4 5 8 */
/* Every collective, with whole numbers so small that every dtype holds each
 * partial sum: the results are known, to the bit and in every order.  Counts
 * are below, at and above the number of ranks, and none. */
#include "mck.h"
#include "numbers.h"

#include <time.h>

static const size_t counts[] = {0, 1, 2, 3, 4, 5, 7, 16, 1000, 4099};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static fsdp_comm_t *world;
static int size, rank;

/* Element i of row `row` at rank r; the sum over r is W (W + 1) / 2 base. */
static double
base(int row, size_t i)
{
    return (double)((i + 2 * (size_t)row) % 5);
}

static double
sum_of_ranks(void)
{
    return size * (size + 1) / 2.0;
}

/* A buffer [rows][count], filled with (rank + 1) base. */
static void *
make_rows(fsdp_dtype_t dtype, int rows, size_t count)
{
    void *data = bordered((size_t)rows * count * fsdp_dtype_size(dtype));
    for (int row = 0; row < rows; row++)
        for (size_t i = 0; i < count; i++)
            element_set(dtype, data, (size_t)row * count + i,
                        (rank + 1) * base(row, i));
    return data;
}

/* Runs `test` for each dtype of the first `dtypes` and each count. */
static void
for_each_case(int dtypes, bool (*test)(fsdp_dtype_t dtype, size_t count))
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    ck_assert_msg(size <= 10, "bf16 has no such sum: 8 bits hold 4 x 55");
    bool good = true;
    for (int d = 0; d < dtypes; d++)
        for (int c = 0; c < COUNTS; c++)
            good = test(all_dtypes[d], counts[c]) && good;
    mck_assert(good);
}

/* Is data[i] == factor * base(row, i) for the whole row? */
static bool
row_is(fsdp_dtype_t dtype, const void *data, int at, size_t count,
       double factor, int row)
{
    for (size_t i = 0; i < count; i++)
        if (element_get(dtype, data, (size_t)at * count + i) !=
            factor * base(row, i))
            return false;
    return true;
}

/* ---- all-gather, gather ------------------------------------------------- */

static bool
is_gathered(fsdp_dtype_t dtype, const void *out, size_t count)
{
    bool good =
        border_untouched(out, (size_t)size * count * fsdp_dtype_size(dtype));
    for (int q = 0; q < size; q++)
        good = good && row_is(dtype, out, q, count, q + 1, 0);
    return good;
}

static bool
all_gather_case(fsdp_dtype_t dtype, size_t count)
{
    size_t bytes = count * fsdp_dtype_size(dtype);
    void *in = make_rows(dtype, 1, count);
    char *out = bordered((size_t)size * bytes);
    fsdp_all_gather(world, "u", dtype, in, out, count);
    bool good = is_gathered(dtype, out, count);

    memset(out, 0, (size_t)size * bytes);
    memcpy(out + (size_t)rank * bytes, in, bytes);
    fsdp_all_gather(world, "u", dtype, out + (size_t)rank * bytes, out, count);
    good = good && is_gathered(dtype, out, count);
    free(out);
    free(in);
    return good;
}

START_TEST(all_gather)
{
    for_each_case(DTYPES, all_gather_case);
}
END_TEST

static bool
gather_case(fsdp_dtype_t dtype, size_t count)
{
    size_t bytes = count * fsdp_dtype_size(dtype);
    void *in = make_rows(dtype, 1, count);
    bool good = true;
    for (int root = 0; root < size; root++) {
        void *out = rank == root ? bordered((size_t)size * bytes) : NULL;
        fsdp_gather(world, "u", dtype, in, out, count, root);
        good = good && (rank != root || is_gathered(dtype, out, count));
        free(out);
    }
    free(in);
    return good;
}

START_TEST(gather)
{
    for_each_case(DTYPES, gather_case);
}
END_TEST

/* ---- reduce-scatter, all-reduce ----------------------------------------- */

static const fsdp_reduce_order_t orders[] = {FSDP_ORDER_TREE, FSDP_ORDER_RANK,
                                             FSDP_ORDER_RING, FSDP_ORDER_MPI};

static bool
reduce_scatter_case(fsdp_dtype_t dtype, size_t count)
{
    size_t bytes = count * fsdp_dtype_size(dtype);
    void *in = make_rows(dtype, size, count), *same = NULL;
    void *out = bordered(bytes);
    bool good = true;
    for (int o = 0; o < 4; o++) {
        memset(out, 0, bytes);
        fsdp_reduce_scatter(world, "u", dtype, orders[o], in, out, count);
        good = good && border_untouched(out, bytes) &&
               row_is(dtype, out, 0, count, sum_of_ranks(), rank);
    }
    same = make_rows(dtype, size, count); /* the input must not change */
    good = good && memcmp(in, same, (size_t)size * bytes) == 0;
    free(same);
    free(out);
    free(in);
    return good;
}

START_TEST(reduce_scatter)
{
    for_each_case(SUMMED_DTYPES, reduce_scatter_case);
}
END_TEST

static bool
all_reduce_once(fsdp_dtype_t dtype, fsdp_reduce_op_t op,
                fsdp_reduce_order_t order, size_t count, double factor)
{
    void *data = make_rows(dtype, 1, count);
    fsdp_all_reduce(world, "u", dtype, op, order, data, count);
    bool good = border_untouched(data, count * fsdp_dtype_size(dtype)) &&
                row_is(dtype, data, 0, count, factor, 0);
    free(data);
    return good;
}

static bool
all_reduce_case(fsdp_dtype_t dtype, size_t count)
{
    bool good = true;
    for (int o = 0; o < 4; o++) {
        good = all_reduce_once(dtype, FSDP_SUM, orders[o], count,
                               sum_of_ranks()) &&
               good;
        good = all_reduce_once(dtype, FSDP_MAX, orders[o], count, size) && good;
        good = all_reduce_once(dtype, FSDP_MIN, orders[o], count, 1) && good;
    }
    return good;
}

START_TEST(all_reduce)
{
    for_each_case(SUMMED_DTYPES, all_reduce_case);
}
END_TEST

/* Three numbers, -2 - rank and up, the second a NaN on rank `odd` if there is
 * such a rank; the NaN of any rank is everybody's. */
static bool
extremes_case(fsdp_dtype_t dtype, fsdp_reduce_op_t op, int odd)
{
    double lowest = op == FSDP_MIN ? -1.0 - size : -2.0;
    void *data = bordered(3 * fsdp_dtype_size(dtype));
    bool good = true;
    for (size_t i = 0; i < 3; i++)
        element_set(dtype, data, i, -2.0 - rank + (double)i);
    if (rank == odd)
        element_set(dtype, data, 1, NAN);
    fsdp_all_reduce(world, "u", dtype, op, FSDP_ORDER_TREE, data, 3);
    for (size_t i = 0; i < 3; i++) {
        double x = element_get(dtype, data, i);
        good =
            good && (odd >= 0 && i == 1 ? isnan(x) : x == lowest + (double)i);
    }
    free(data);
    return good;
}

START_TEST(extremes)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    bool good = true;
    for (int d = 0; d < SUMMED_DTYPES; d++) {
        fsdp_dtype_t dtype = all_dtypes[d];
        bool has_nan = dtype != FSDP_INT32 && dtype != FSDP_INT64;
        for (int odd = -1; odd < (has_nan ? size : 0); odd++)
            good = extremes_case(dtype, FSDP_MIN, odd) &&
                   extremes_case(dtype, FSDP_MAX, odd) && good;
    }
    mck_assert(good);
}
END_TEST

/* ---- broadcast, barrier ------------------------------------------------- */

static bool
broadcast_case(fsdp_dtype_t dtype, size_t count)
{
    bool good = true;
    for (int root = 0; root < size; root++) {
        void *data = make_rows(dtype, 1, count);
        fsdp_broadcast(world, "u", dtype, data, count, root);
        good = good && row_is(dtype, data, 0, count, root + 1, 0) &&
               border_untouched(data, count * fsdp_dtype_size(dtype));
        free(data);
    }
    return good;
}

START_TEST(broadcast)
{
    for_each_case(DTYPES, broadcast_case);
}
END_TEST

static double
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Nobody leaves before the last one, another each time, has come. */
START_TEST(barrier)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    bool good = true;
    for (int late = 0; late < size; late++) {
        if (rank == late)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        double came = now();
        fsdp_barrier(world, "u");
        double left = now();
        fsdp_all_reduce(world, "last", FSDP_FP64, FSDP_MAX, FSDP_ORDER_TREE,
                        &came, 1);
        good = good && left >= came;
    }
    mck_assert(good);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("collectives");
    TCase *tcase = tcase_create("whole numbers");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, all_gather);
    tcase_add_test(tcase, gather);
    tcase_add_test(tcase, reduce_scatter);
    tcase_add_test(tcase, all_reduce);
    tcase_add_test(tcase, extremes);
    tcase_add_test(tcase, broadcast);
    tcase_add_test(tcase, barrier);
    return mck_run(argc, argv, suite);
}
