/* Ranks: 1 2 3 4 5 8 */
/* Sums whose bits depend on the order, against naive sums of all ranks' terms
 * in each order, bit for bit. */
#include "mck.h"
#include "numbers.h"

enum { MOST_RANKS = 64 };

static fsdp_comm_t *world;
static int size, rank;

static void
set_up(void)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
    ck_assert_int_le(size, MOST_RANKS);
}

/* ---- the terms ---------------------------------------------------------- */

static uint64_t
scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Numbers of both signs and of magnitudes some bits apart, so that nearly each
 * order of three gives another rounding. */
static double
wild(int r, size_t i)
{
    uint64_t x = scramble(i * MOST_RANKS + (uint64_t)r + 1);
    double mantissa = 1.0 + (double)(x >> 12) * 0x1p-52;
    return ldexp(x & 1 ? -mantissa : mantissa, (int)(x >> 1 & 7) - 4);
}

/* ---- naive sums --------------------------------------------------------- */

/* Rounds the sum of two to the type, in which both stand. */
static double
add(fsdp_dtype_t dtype, double a, double b)
{
    uint64_t sum;
    if (dtype == FSDP_FP32)
        return (float)a + (float)b;
    if (dtype == FSDP_FP64)
        return a + b;
    element_set(dtype, &sum, 0, a + b);
    return element_get(dtype, &sum, 0);
}

static double
sum_of_chain(fsdp_dtype_t dtype, const double *terms, int first)
{
    double sum = terms[first];
    for (int i = 1; i < size; i++)
        sum = add(dtype, sum, terms[(first + i) % size]);
    return sum;
}

/* Level by level, in a list that halves. */
static double
sum_of_tree(fsdp_dtype_t dtype, const double *terms)
{
    double level[MOST_RANKS];
    int width = size;
    memcpy(level, terms, (size_t)size * sizeof *terms);
    while (width > 1) {
        int next = 0;
        for (int i = 0; i < width; i += 2)
            level[next++] =
                i + 1 < width ? add(dtype, level[i], level[i + 1]) : level[i];
        width = next;
    }
    return level[0];
}

static double
naive_sum(fsdp_dtype_t dtype, fsdp_reduce_order_t order, const double *terms,
          int destination)
{
    if (order == FSDP_ORDER_RANK)
        return sum_of_chain(dtype, terms, 0);
    if (order == FSDP_ORDER_RING)
        return sum_of_chain(dtype, terms, (destination + 1) % size);
    return sum_of_tree(dtype, terms);
}

/* What each rank has as element i, rounded to the type. */
static void
terms_of(fsdp_dtype_t dtype, size_t i, double *terms)
{
    uint64_t one;
    for (int r = 0; r < size; r++) {
        element_set(dtype, &one, 0, wild(r, i));
        terms[r] = element_get(dtype, &one, 0);
    }
}

static bool
same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* ---- tests -------------------------------------------------------------- */

static const fsdp_dtype_t floats[] = {FSDP_FP32, FSDP_FP64, FSDP_BF16,
                                      FSDP_FP16};
static const fsdp_reduce_order_t orders[] = {FSDP_ORDER_TREE, FSDP_ORDER_RANK,
                                             FSDP_ORDER_RING};

static void *
make_wild(fsdp_dtype_t dtype, size_t count)
{
    void *data = bordered(count * fsdp_dtype_size(dtype));
    for (size_t i = 0; i < count; i++)
        element_set(dtype, data, i, wild(rank, i));
    return data;
}

/* Long enough for several blocks of the summation, and no multiple of them. */
static bool
reduce_scatter_case(fsdp_dtype_t dtype, fsdp_reduce_order_t order)
{
    enum { COUNT = 9001 };
    double terms[MOST_RANKS];
    void *in = make_wild(dtype, (size_t)size * COUNT);
    void *out = bordered(COUNT * fsdp_dtype_size(dtype));
    bool good = true;
    fsdp_reduce_scatter(world, "u", dtype, order, in, out, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        terms_of(dtype, (size_t)rank * COUNT + i, terms);
        good = good && same_bits(element_get(dtype, out, i),
                                 naive_sum(dtype, order, terms, rank));
    }
    free(out);
    free(in);
    return good;
}

START_TEST(reduce_scatter)
{
    set_up();
    mck_assert(reduce_scatter_case(floats[_i / 3], orders[_i % 3]));
}
END_TEST

/* The chunks of an all-reduce are reduced at their owners. */
static bool
all_reduce_case(fsdp_dtype_t dtype, fsdp_reduce_order_t order, size_t count)
{
    size_t chunk = (count + (size_t)size - 1) / (size_t)size;
    double terms[MOST_RANKS];
    void *data = make_wild(dtype, count);
    bool good = true;
    fsdp_all_reduce(world, "u", dtype, FSDP_SUM, order, data, count);
    for (size_t i = 0; i < count; i++) {
        terms_of(dtype, i, terms);
        good =
            good && same_bits(element_get(dtype, data, i),
                              naive_sum(dtype, order, terms, (int)(i / chunk)));
    }
    free(data);
    return good;
}

START_TEST(all_reduce)
{
    static const size_t counts[] = {1, 2, 3, 7, 1013, 20011};
    set_up();
    for (int c = 0; c < 6; c++)
        mck_assert(all_reduce_case(floats[_i / 3], orders[_i % 3], counts[c]));
}
END_TEST

/* Do the terms tell the orders apart?  Else the tests above show nothing. */
START_TEST(orders_differ)
{
    fsdp_dtype_t dtype = floats[_i];
    double terms[MOST_RANKS];
    int tree_rank = 0, rank_ring = 0, ring_ring = 0;
    set_up();
    for (size_t i = 0; i < 1000; i++) {
        terms_of(dtype, i, terms);
        double tree = naive_sum(dtype, FSDP_ORDER_TREE, terms, 0);
        double left = naive_sum(dtype, FSDP_ORDER_RANK, terms, 0);
        double ring = naive_sum(dtype, FSDP_ORDER_RING, terms, 0);
        double next = naive_sum(dtype, FSDP_ORDER_RING, terms, 1 % size);
        tree_rank += !same_bits(tree, left);
        rank_ring += !same_bits(left, ring);
        ring_ring += !same_bits(ring, next);
    }
    if (size > 3)
        ck_assert_int_gt(tree_rank, 50);
    if (size > 2) {
        ck_assert_int_gt(rank_ring, 50);
        ck_assert_int_gt(ring_ring, 50);
    }
}
END_TEST

/* Pattern i of rank r: each rank meets all 65,536 in another order; in the
 * second half the exponents are 0 and 1 only. */
static uint16_t
pattern(int r, size_t i, int fraction_bits)
{
    uint16_t bits = (uint16_t)(i * (2 * (size_t)r + 1) + (size_t)r * 40503);
    uint16_t tiny = (uint16_t)(0x8000 | ((2 << fraction_bits) - 1));
    return i < 65536 ? bits : bits & tiny;
}

/* Subnormals, infinities, NaN, sums that overflow or tie, against each other.
 * All NaN count as equal. */
START_TEST(every_small_float)
{
    enum { COUNT = 2 * 65536 };
    int fraction_bits = _i == 0 ? 7 : 10;
    fsdp_dtype_t dtype = _i == 0 ? FSDP_BF16 : FSDP_FP16;
    uint16_t *data = bordered(COUNT * sizeof *data);
    double terms[MOST_RANKS];
    bool good = true;
    set_up();
    for (size_t i = 0; i < COUNT; i++)
        data[i] = pattern(rank, i, fraction_bits);
    fsdp_all_reduce(world, "u", dtype, FSDP_SUM, FSDP_ORDER_TREE, data, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        for (int r = 0; r < size; r++)
            terms[r] =
                small_float_value(pattern(r, i, fraction_bits), fraction_bits);
        double expected = sum_of_tree(dtype, terms);
        double got = small_float_value(data[i], fraction_bits);
        good =
            good && (isnan(expected) ? isnan(got) : same_bits(expected, got));
    }
    mck_assert(good && border_untouched(data, COUNT * sizeof *data));
    free(data);
}
END_TEST

/* Integers wrap around, as the limbs of exact sums may. */
START_TEST(integers_wrap)
{
    set_up();
    int64_t wide = INT64_MAX;
    int32_t narrow = INT32_MAX;
    fsdp_all_reduce(world, "u", FSDP_INT64, FSDP_SUM, FSDP_ORDER_TREE, &wide,
                    1);
    fsdp_all_reduce(world, "u", FSDP_INT32, FSDP_SUM, FSDP_ORDER_RING, &narrow,
                    1);
    uint64_t w = (uint64_t)size * INT64_MAX;
    uint32_t n = (uint32_t)size * INT32_MAX;
    mck_assert(memcmp(&wide, &w, sizeof w) == 0);
    mck_assert(memcmp(&narrow, &n, sizeof n) == 0);
}
END_TEST

START_TEST(names)
{
    static const char *const expected[] = {"tree", "rank", "ring", "mpi"};
    fsdp_reduce_order_t order;
    for (int i = 0; i < 4; i++) {
        ck_assert_str_eq(fsdp_reduce_order_name((fsdp_reduce_order_t)i),
                         expected[i]);
        ck_assert(fsdp_reduce_order_from_name(expected[i], &order));
        ck_assert_int_eq((int)order, i);
    }
    ck_assert(!fsdp_reduce_order_from_name("Tree", &order));
    ck_assert(!fsdp_reduce_order_from_name("", &order));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("reduce_order");
    TCase *tcase = tcase_create("bits");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, orders_differ, 0, 4);
    tcase_add_loop_test(tcase, reduce_scatter, 0, 12);
    tcase_add_loop_test(tcase, all_reduce, 0, 12);
    tcase_add_loop_test(tcase, every_small_float, 0, 2);
    tcase_add_test(tcase, integers_wrap);
    tcase_add_test(tcase, names);
    return mck_run(argc, argv, suite);
}
