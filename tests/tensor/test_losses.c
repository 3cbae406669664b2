/* Ranks: 1 */
/* Cross-entropy, squared error and sums against their twins. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/cross_entropy.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
enum { IGNORED = -100 };

/* -- cross-entropy -- */

static int32_t *
some_targets(size_t rows, size_t classes)
{
    int32_t *target = twin_alloc(rows, sizeof *target);
    for (size_t r = 0; r < rows; r++)
        target[r] = r % 5 == 3 ? IGNORED : (int32_t)(r * 7 % classes);
    return target;
}

static bool
agrees(numbers_t logits, const int32_t *target, double scale, size_t rows,
       size_t classes, numbers_t loss, numbers_t dlogits)
{
    bounded_t *dwant = twin_alloc(rows * classes, sizeof *dwant);
    bounded_t *want = twin_alloc(rows, sizeof *want);
    twin_begin(logits.dtype);
    for (size_t r = 0; r < rows; r++) {
        bounded_t *row = dwant + r * classes;
        want[r] = b_exact(0);
        for (size_t i = 0; i < classes; i++)
            row[i] = b_exact(0);
        if (target[r] != IGNORED)
            want[r] = twin_cross_entropy(logits, r, classes, (size_t)target[r],
                                         scale, row);
    }
    bool good = numbers_agree("loss", loss, want) &&
                numbers_agree("dlogits", dlogits, dwant);
    fsdp_free(want);
    fsdp_free(dwant);
    return good;
}

static void
check_cross_entropy(fsdp_dtype_t dtype, size_t rows, size_t classes,
                    double spread)
{
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    numbers_t logits = numbers_random(dtype, rows * classes, 1, spread);
    numbers_t loss = numbers_make(dtype, rows);
    numbers_t again = numbers_make(dtype, rows);
    numbers_t dlogits = numbers_make(dtype, rows * classes);
    int32_t *target = some_targets(rows, classes);
    k->cross_entropy(logits.data, target, IGNORED, loss.data, dlogits.data, 0.1,
                     rows, classes);
    bool good = agrees(logits, target, 0.1, rows, classes, loss, dlogits);
    ck_assert_msg(good, "%zu x %zu, spread %g", rows, classes, spread);

    k->cross_entropy(logits.data, target, IGNORED, again.data, NULL, 0.1, rows,
                     classes);
    ck_assert(numbers_same_bits(again, loss));
    k->cross_entropy(logits.data, target, IGNORED, again.data, logits.data, 0.1,
                     rows, classes);
    ck_assert(numbers_same_bits(again, loss));
    ck_assert(numbers_same_bits(logits, dlogits));
    fsdp_free(target);
    numbers_free(logits);
    numbers_free(loss);
    numbers_free(again);
    numbers_free(dlogits);
}

START_TEST(cross_entropy)
{
    static const size_t shapes[][2] = {{1, 1},    {3, 5},     {5, 17},
                                       {17, 3},   {6, 257},   {4, 1023},
                                       {5, 1025}, {200, 256}, {2, 50257}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < 2; t++) {
            check_cross_entropy(dtypes[t], shapes[s][0], shapes[s][1], 1);
            check_cross_entropy(dtypes[t], shapes[s][0], shapes[s][1], 20);
            check_cross_entropy(dtypes[t], shapes[s][0], shapes[s][1], 1e4);
        }
}
END_TEST

/* Equal logits give log V; one sure class gives 0; hopeless ones the distance;
 * a class at -infinity takes no part; a NaN shows. */
START_TEST(extreme_logits)
{
    for (int t = 0; t < 2; t++) {
        const fsdp_kernels_t *k = fsdp_kernels(dtypes[t]);
        double rows[5][4] = {{1e30, 1e30, 1e30, 1e30},
                             {1e30, -1e30, 0, 1},
                             {-1e30, 1e30, 0, 0},
                             {5, -INFINITY, 5, -INFINITY},
                             {0, NAN, 0, 0}};
        int32_t target[5] = {0};
        numbers_t x = numbers_make(dtypes[t], 20), d = numbers_copy(x);
        numbers_t loss = numbers_make(dtypes[t], 5);
        for (size_t i = 0; i < 20; i++)
            numbers_set(x, i, rows[i / 4][i % 4]);
        twin_begin(dtypes[t]);
        k->cross_entropy(x.data, target, IGNORED, loss.data, d.data, 1, 5, 4);
        bounded_t log4 = b_round(log(4), 0, 5), log2 = b_round(M_LN2, 0, 5);
        double far = twin_round(dtypes[t], 2 * numbers_get(x, 0));
        ck_assert(twin_is(numbers_get(loss, 0), log4));
        ck_assert(numbers_get(loss, 1) == 0);
        ck_assert(numbers_get(loss, 2) == far);
        ck_assert(twin_is(numbers_get(loss, 3), log2));
        ck_assert(isnan(numbers_get(loss, 4)));
        double dlogits[16] = {-0.75, 0.25, 0.25, 0.25, 0,    0, 0,   0,
                              -1,    1,    0,    0,    -0.5, 0, 0.5, 0};
        for (size_t i = 0; i < 16; i++)
            ck_assert(numbers_get(d, i) == dlogits[i]);
        numbers_free(x);
        numbers_free(d);
        numbers_free(loss);
    }
}
END_TEST

/* A row alone has the bits that it has among others. */
START_TEST(one_row_alone)
{
    for (int t = 0; t < 2; t++) {
        const fsdp_kernels_t *k = fsdp_kernels(dtypes[t]);
        size_t size = fsdp_dtype_size(dtypes[t]);
        numbers_t x = numbers_random(dtypes[t], 60 * 333, 1, 4);
        numbers_t d = numbers_make(dtypes[t], 60 * 333);
        numbers_t loss = numbers_make(dtypes[t], 60);
        numbers_t d1 = numbers_make(dtypes[t], 333);
        numbers_t loss1 = numbers_make(dtypes[t], 1);
        int32_t *target = some_targets(60, 333);
        k->cross_entropy(x.data, target, IGNORED, loss.data, d.data, 1, 60,
                         333);
        for (size_t r = 0; r < 60; r++) {
            size_t at = r * 333 * size;
            k->cross_entropy((char *)x.data + at, target + r, IGNORED,
                             loss1.data, d1.data, 1, 1, 333);
            ck_assert(memcmp(d1.data, (char *)d.data + at, 333 * size) == 0);
            ck_assert(numbers_get(loss1, 0) == numbers_get(loss, r));
        }
        numbers_t all[] = {x, d, loss, d1, loss1};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            numbers_free(all[i]);
        fsdp_free(target);
    }
}
END_TEST

/* -- sums -- */

static const size_t sizes[] = {0,     1,     2,     3,     5,     16,
                               17,    127,   128,   129,   257,   385,
                               16383, 16384, 16385, 16513, 49153, 100003};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

/* n terms: c = 1, k = n - 1 holds for any order. */
static void
check_sum(fsdp_dtype_t dtype, size_t n)
{
    numbers_t x = numbers_random(dtype, n, 1, 1);
    bounded_t *terms = twin_alloc(n, sizeof *terms);
    twin_begin(dtype);
    for (size_t i = 0; i < n; i++)
        terms[i] = b_exact(numbers_get(x, i));
    double sum = fsdp_kernels(dtype)->sum(x.data, n);
    ck_assert_msg(twin_is(sum, b_sum(terms, n)), "the sum of %zu is %g", n,
                  sum);
    fsdp_free(terms);
    numbers_free(x);
}

/* Neighbours in pairs, level by level, by recursion: the first argument has as
 * many leaves as a power of two below their number. */
static double
tree(fsdp_dtype_t dtype, const double *x, size_t n)
{
    if (n == 1)
        return x[0];
    size_t left = 1;
    while (2 * left < n)
        left *= 2;
    return twin_round(dtype,
                      tree(dtype, x, left) + tree(dtype, x + left, n - left));
}

/* The order, bit for bit: leaves of 128 elements in which only one is not 0, so
 * that a leaf's sum is that element; then the tree. */
static void
check_tree(fsdp_dtype_t dtype, size_t leaves)
{
    numbers_t x = numbers_random(dtype, leaves * 128, 1, 0);
    double *leaf = twin_alloc(leaves, sizeof *leaf);
    for (size_t i = 0; i < leaves; i++) {
        leaf[i] = twin_round(dtype, exp(12 * twin_random(6, i)));
        numbers_set(x, i * 128 + i * 37 % 128, leaf[i]);
    }
    ck_assert(fsdp_kernels(dtype)->sum(x.data, x.n) ==
              tree(dtype, leaf, leaves));
    fsdp_free(leaf);
    numbers_free(x);
}

START_TEST(sums)
{
    for (int t = 0; t < 2; t++) {
        for (size_t s = 0; s < NUM_SIZES; s++)
            check_sum(dtypes[t], sizes[s]);
        for (size_t leaves = 1; leaves < 1000; leaves += leaves / 3 + 1)
            check_tree(dtypes[t], leaves);
    }
}
END_TEST

/* Each square is rounded twice before it is added: c = 1, k = n + 1. */
static void
check_squared_error(fsdp_dtype_t dtype, size_t n)
{
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    numbers_t x = numbers_random(dtype, n, 1, 1);
    numbers_t y = numbers_random(dtype, n, 2, 3);
    numbers_t dx = numbers_make(dtype, n);
    bounded_t *terms = twin_alloc(n, sizeof *terms);
    double *dwant = twin_alloc(n, sizeof *dwant);
    double scale = twin_round(dtype, 1.0 / 3);
    twin_begin(dtype);
    for (size_t i = 0; i < n; i++) {
        bounded_t d =
            b_sub(b_exact(numbers_get(x, i)), b_exact(numbers_get(y, i)));
        terms[i] = b_mul(d, d);
        dwant[i] = twin_round(dtype, scale * twin_round(dtype, d.v));
    }
    double sum = k->squared_error(x.data, y.data, 1.0 / 3, dx.data, n);
    ck_assert_msg(twin_is(sum, b_sum(terms, n)), "%zu squares", n);
    ck_assert(numbers_equal("squared_error", dx, dwant));
    ck_assert(k->squared_error(x.data, y.data, 1.0 / 3, NULL, n) == sum);
    ck_assert(k->squared_error(x.data, y.data, 1.0 / 3, x.data, n) == sum);
    ck_assert(numbers_equal("squared_error in place", x, dwant));
    fsdp_free(terms);
    fsdp_free(dwant);
    numbers_free(x);
    numbers_free(y);
    numbers_free(dx);
}

START_TEST(squared_errors)
{
    for (int t = 0; t < 2; t++)
        for (size_t s = 0; s < NUM_SIZES; s++)
            check_squared_error(dtypes[t], sizes[s]);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("losses");
    TCase *tcase = tcase_create("losses");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, cross_entropy);
    tcase_add_test(tcase, extreme_logits);
    tcase_add_test(tcase, one_row_alone);
    tcase_add_test(tcase, sums);
    tcase_add_test(tcase, squared_errors);
    return mck_run(argc, argv, suite);
}
