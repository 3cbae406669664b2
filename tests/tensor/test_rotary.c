/* Ranks: 1 */
/* The rotation against its twin: many shapes, in place, back and forth. */
#include "mck.h"

#include "fsdp/ops.h"
#include "tensor/kernels.h"
#include "twin/rotary.h"

static const twin_rotary_t shapes[] = {
    {1, 1, 1, 2, 10000},   {6, 3, 2, 4, 10000},     {35, 7, 3, 10, 500000},
    {300, 150, 5, 64, 20}, {257, 257, 2, 128, 1e6},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

static void
turn(const twin_rotary_t *t, const fsdp_tensor_t *table, numbers_t x,
     numbers_t y, bool inverse)
{
    fsdp_kernels(x.dtype)->rotary(x.data, table->data, y.data, t->rows,
                                  t->positions, t->heads, t->depth, inverse);
}

static void
check(fsdp_dtype_t dtype, const twin_rotary_t *t, bool inverse)
{
    size_t n = t->rows * t->heads * t->depth;
    fsdp_tensor_t *table =
        fsdp_rotary_table(dtype, t->positions + 3, t->depth, t->theta);
    numbers_t x = numbers_random(dtype, n, 1, 4), y = numbers_make(dtype, n);
    double *exact = twin_alloc(n, sizeof *exact);
    bounded_t *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        exact[i] = numbers_get(x, i);
    twin_begin(dtype);
    twin_rotary(t, exact, inverse, want);
    turn(t, table, x, y, inverse);
    bool good = numbers_agree("rotary", y, want);
    turn(t, table, x, x, inverse);
    good &= numbers_same_bits(x, y);
    fsdp_tensor_destroy(&table);
    fsdp_free(exact);
    fsdp_free(want);
    numbers_free(x);
    numbers_free(y);
    ck_assert(good);
}

START_TEST(values)
{
    for (int i = 0; i < NUM_SHAPES; i++)
        for (int inverse = 0; inverse < 2; inverse++) {
            check(FSDP_FP32, &shapes[i], inverse);
            check(FSDP_FP64, &shapes[i], inverse);
        }
}
END_TEST

/* A table of few positions is the beginning of one of many. */
START_TEST(a_longer_table)
{
    for (int t = 0; t < 2; t++) {
        fsdp_dtype_t dtype = t ? FSDP_FP64 : FSDP_FP32;
        fsdp_tensor_t *few = fsdp_rotary_table(dtype, 9, 12, 10000);
        fsdp_tensor_t *many = fsdp_rotary_table(dtype, 500, 12, 10000);
        ck_assert(memcmp(few->data, many->data, fsdp_tensor_bytes(few)) == 0);
        fsdp_tensor_destroy(&few);
        fsdp_tensor_destroy(&many);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("rotary");
    TCase *tcase = tcase_create("rotary");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, values);
    tcase_add_test(tcase, a_longer_table);
    return mck_run(argc, argv, suite);
}
