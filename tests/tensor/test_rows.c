/* Ranks: 1 */
/* Kernels on rows and columns: bias, sums, embedding. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/numbers.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
static const size_t shapes[][2] = {
    {1, 1},    {3, 5},     {17, 1},    {1, 257},   {5, 17}, {64, 255},
    {65, 256}, {257, 257}, {129, 513}, {40, 1025}, {0, 3},  {1000, 3},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

static void
check_add_bias(fsdp_dtype_t dtype, size_t rows, size_t columns)
{
    size_t n = rows * columns;
    numbers_t x = numbers_random(dtype, n, 1, 1);
    numbers_t bias = numbers_random(dtype, columns, 2, 1);
    numbers_t y = numbers_make(dtype, n);
    double *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = twin_round(dtype, numbers_get(x, i) +
                                        numbers_get(bias, i % columns));
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    k->add_bias(x.data, bias.data, y.data, rows, columns);
    ck_assert(numbers_equal("add_bias", y, want));
    k->add_bias(x.data, bias.data, x.data, rows, columns);
    ck_assert(numbers_equal("add_bias in place", x, want));
    fsdp_free(want);
    numbers_free(x);
    numbers_free(bias);
    numbers_free(y);
}

/* A column's sum has N terms: c = 1, k = N - 1. */
static void
check_sum_rows(fsdp_dtype_t dtype, size_t rows, size_t columns)
{
    numbers_t x = numbers_random(dtype, rows * columns, 1, 1);
    numbers_t out = numbers_make(dtype, columns);
    bounded_t *want = twin_alloc(columns, sizeof *want);
    bounded_t *terms = twin_alloc(rows, sizeof *terms);
    twin_begin(dtype);
    for (size_t c = 0; c < columns; c++) {
        for (size_t r = 0; r < rows; r++)
            terms[r] = b_exact(numbers_get(x, r * columns + c));
        want[c] = b_sum(terms, rows);
    }
    fsdp_kernels(dtype)->sum_rows(x.data, out.data, rows, columns);
    ck_assert(numbers_agree("sum_rows", out, want));
    fsdp_free(terms);
    fsdp_free(want);
    numbers_free(x);
    numbers_free(out);
}

START_TEST(bias_and_sum_of_rows)
{
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int t = 0; t < 2; t++) {
            check_add_bias(dtypes[t], shapes[s][0], shapes[s][1]);
            check_sum_rows(dtypes[t], shapes[s][0], shapes[s][1]);
        }
}
END_TEST

/* A column's sum does not depend on the columns beside it. */
START_TEST(sum_of_one_column)
{
    for (int t = 0; t < 2; t++) {
        numbers_t x = numbers_random(dtypes[t], 333 * 300, 1, 1);
        numbers_t all = numbers_make(dtypes[t], 300);
        numbers_t column = numbers_make(dtypes[t], 333);
        numbers_t one = numbers_make(dtypes[t], 1);
        const fsdp_kernels_t *k = fsdp_kernels(dtypes[t]);
        k->sum_rows(x.data, all.data, 333, 300);
        for (size_t c = 0; c < 300; c += 13) {
            for (size_t r = 0; r < 333; r++)
                numbers_set(column, r, numbers_get(x, r * 300 + c));
            k->sum_rows(column.data, one.data, 333, 1);
            ck_assert(numbers_get(one, 0) == numbers_get(all, c));
        }
        numbers_free(x);
        numbers_free(all);
        numbers_free(column);
        numbers_free(one);
    }
}
END_TEST

static int32_t *
random_indices(size_t n, size_t limit, uint32_t seed)
{
    int32_t *index = twin_alloc(n, sizeof *index);
    for (size_t i = 0; i < n; i++)
        index[i] = (int32_t)(fsdp_random_word(seed, FSDP_RANDOM_TEST, 0, 0, i) %
                             limit);
    return index;
}

static void
check_embedding(fsdp_dtype_t dtype, size_t rows, size_t channels, size_t v)
{
    int32_t *index = random_indices(rows, v, 3);
    numbers_t table = numbers_random(dtype, v * channels, 1, 1);
    numbers_t y = numbers_make(dtype, rows * channels);
    double *want = twin_alloc(rows * channels, sizeof *want);
    for (size_t i = 0; i < rows * channels; i++)
        want[i] = numbers_get(table, (size_t)index[i / channels] * channels +
                                         i % channels);
    fsdp_kernels(dtype)->embedding(index, table.data, y.data, rows, v,
                                   channels);
    ck_assert(numbers_equal("embedding", y, want));
    fsdp_free(index);
    fsdp_free(want);
    numbers_free(table);
    numbers_free(y);
}

/* The order is prescribed, so the bits are: added in ascending position to what
 * was there. */
static void
check_embedding_backward(fsdp_dtype_t dtype, size_t rows, size_t channels,
                         size_t v)
{
    int32_t *index = random_indices(rows, v, 3);
    numbers_t dy = numbers_random(dtype, rows * channels, 2, 1);
    numbers_t dtable = numbers_random(dtype, v * channels, 4, 1);
    double *want = twin_alloc(v * channels, sizeof *want);
    for (size_t i = 0; i < v * channels; i++)
        want[i] = numbers_get(dtable, i);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < channels; c++) {
            double *at = want + (size_t)index[i] * channels + c;
            *at = twin_round(dtype, *at + numbers_get(dy, i * channels + c));
        }
    fsdp_kernels(dtype)->embedding_backward(index, dy.data, dtable.data, rows,
                                            v, channels);
    ck_assert(numbers_equal("embedding_backward", dtable, want));
    fsdp_free(index);
    fsdp_free(want);
    numbers_free(dy);
    numbers_free(dtable);
}

START_TEST(embedding)
{
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int t = 0; t < 2; t++)
            for (size_t v = 1; v < 40; v += 19) {
                check_embedding(dtypes[t], shapes[s][0], shapes[s][1], v);
                check_embedding_backward(dtypes[t], shapes[s][0], shapes[s][1],
                                         v);
            }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("rows");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, bias_and_sum_of_rows);
    tcase_add_test(tcase, sum_of_one_column);
    tcase_add_test(tcase, embedding);
    return mck_run(argc, argv, suite);
}
