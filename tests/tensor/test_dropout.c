/* Ranks: 1 */
/* Dropout: which elements it keeps is prescribed word by word, so its results
 * are exact. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/numbers.h"

/* Word e of stream (seed, dropout, layer, step << 32 | sample) decides. */
static double
dropped(const fsdp_dropout_key_t *key, size_t sample, size_t e, double x,
        fsdp_dtype_t dtype)
{
    uint32_t word = fsdp_random_word(
        key->seed, FSDP_RANDOM_DROPOUT, key->layer,
        (uint64_t)key->step << 32 | (key->first_sample + (uint32_t)sample), e);
    double scale = twin_round(dtype, 1 / (1 - key->p));
    return fsdp_random_uniform(word) >= key->p ? twin_round(dtype, x * scale)
                                               : 0;
}

static void
check_dropout(fsdp_dtype_t dtype, double p, size_t samples, size_t per_sample)
{
    fsdp_dropout_key_t key = {.p = p,
                              .seed = 0x123456789abcdefu,
                              .step = 0xfffffffeu,
                              .first_sample = 70000,
                              .layer = 5};
    size_t n = samples * per_sample;
    numbers_t x = numbers_random(dtype, n, 4, 1), y = numbers_make(dtype, n);
    double *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = p == 0 ? numbers_get(x, i)
                         : dropped(&key, i / per_sample, i % per_sample,
                                   numbers_get(x, i), dtype);
    fsdp_kernels(dtype)->dropout(&key, x.data, y.data, samples, per_sample);
    bool good = numbers_equal("dropout", y, want);
    fsdp_kernels(dtype)->dropout(&key, x.data, x.data, samples, per_sample);
    ck_assert(good && numbers_equal("dropout in place", x, want));
    fsdp_free(want);
    numbers_free(x);
    numbers_free(y);
}

START_TEST(dropout)
{
    static const double ps[] = {0, 0.1, 0.5, 1};
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++)
        for (int d = 0; d < 2; d++) {
            fsdp_dtype_t dtype = d ? FSDP_FP64 : FSDP_FP32;
            check_dropout(dtype, ps[i], 1, 1);
            check_dropout(dtype, ps[i], 3, 5);
            check_dropout(dtype, ps[i], 5, 257);
            check_dropout(dtype, ps[i], 2, 16387);
            check_dropout(dtype, ps[i], 0, 7);
        }
}
END_TEST

/* The border: p is just a word's number, and just above it. */
START_TEST(dropout_at_the_border)
{
    fsdp_dropout_key_t key = {.seed = 1, .layer = 2};
    uint32_t word = fsdp_random_word(1, FSDP_RANDOM_DROPOUT, 2, 0, 0);
    float x = 1, y = -1;
    key.p = fsdp_random_uniform(word);
    fsdp_kernels(FSDP_FP32)->dropout(&key, &x, &y, 1, 1);
    ck_assert(y == (float)(1 / (1 - key.p)));
    key.p = nextafter(key.p, 1);
    fsdp_kernels(FSDP_FP32)->dropout(&key, &x, &y, 1, 1);
    ck_assert(y == 0);
}
END_TEST

/* Sample b is the same whether it comes first or third in a batch. */
START_TEST(dropout_of_a_part_of_the_batch)
{
    fsdp_dropout_key_t key = {.p = 0.3, .seed = 8, .step = 3, .layer = 1};
    numbers_t x = numbers_random(FSDP_FP32, 400, 1, 1);
    numbers_t all = numbers_make(FSDP_FP32, 400);
    numbers_t part = numbers_make(FSDP_FP32, 100);
    fsdp_kernels(FSDP_FP32)->dropout(&key, x.data, all.data, 4, 100);
    key.first_sample = 2;
    fsdp_kernels(FSDP_FP32)->dropout(&key, (float *)x.data + 200, part.data, 1,
                                     100);
    ck_assert(memcmp(part.data, (float *)all.data + 200, 400) == 0);
    numbers_free(x);
    numbers_free(all);
    numbers_free(part);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("dropout");
    TCase *tcase = tcase_create("dropout");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, dropout);
    tcase_add_test(tcase, dropout_at_the_border);
    tcase_add_test(tcase, dropout_of_a_part_of_the_batch);
    return mck_run(argc, argv, suite);
}
