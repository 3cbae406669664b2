/* Draws from few rows, where a weak permutation would show, and at the ends of
 * epochs and of numbers. */
/* Ranks: 1 */
#include <math.h>

#include "files.h"
#include "mck.h"

/* Chi-squared of the counts of equally likely outcomes, against the bound of
 * Laurent and Massart (2000) that chance passes once in 10^9 times. */
static void
expect_uniform(const int *counts, size_t outcomes, double draws)
{
    double mean = draws / (double)outcomes, chi = 0, x = 9 * log(10);
    double freedom = (double)outcomes - 1;
    for (size_t i = 0; i < outcomes; i++)
        chi += (counts[i] - mean) * (counts[i] - mean) / mean;
    ck_assert_msg(chi < freedom + 2 * sqrt(freedom * x) + 2 * x,
                  "chi-squared of %g with %g degrees of freedom", chi, freedom);
}

/* The first two rows of an epoch: all pairs come equally often, over the seeds
 * and over the epochs of one seed. */
START_TEST(few_rows_in_any_order)
{
    enum { DRAWS = 40000, MOST = 20 };
    put_rows("", "1,0\n", 7 + 2 * _i, "");
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
    size_t n = fsdp_dataset_size(data, FSDP_TRAIN);
    ck_assert(n > 2 && n <= MOST);
    for (int over_epochs = 0; over_epochs < 2; over_epochs++) {
        int counts[MOST * MOST] = {0};
        for (size_t i = 0; i < DRAWS; i++) {
            uint64_t seed = over_epochs ? 7 : i, step = over_epochs ? i + 1 : 1;
            size_t a = fsdp_dataset_draw(data, seed, step, 0, n);
            size_t b = fsdp_dataset_draw(data, seed, step, 1, n);
            ck_assert(a < n && b < n && a != b);
            counts[a * (n - 1) + b - (b > a)]++;
        }
        expect_uniform(counts, n * (n - 1), DRAWS);
    }
}
END_TEST

/* A step may reach over the end of an epoch, or over several epochs. */
START_TEST(batch_larger_than_the_table)
{
    enum { BATCH = 1000 };
    put_rows("", "1,0\n", 20, "");
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
    size_t n = fsdp_dataset_size(data, FSDP_TRAIN), drawn = 0;
    int seen[20] = {0};
    for (uint64_t step = 1; step <= 3; step++)
        for (size_t i = 0; i < BATCH; i++) {
            size_t d = fsdp_dataset_draw(data, 1, step, i, BATCH);
            ck_assert(d < n && seen[d] == (int)(drawn / n));
            seen[d]++;
            drawn++;
        }
}
END_TEST

/* Steps and places beyond 32 bits of product, seeds beyond 32 bits. */
START_TEST(high_bits_count)
{
    put_rows("", "0123456789", 1000, "");
    ck_assert(fsdp_dataset_open_text(path, 1, &data) == FSDP_OK);
    uint64_t seed = 3, step = 5;
    size_t plain = fsdp_dataset_draw(data, seed, step, 2, 4);
    int same = 0;
    for (int bit = 0; bit < 64; bit++) {
        uint64_t flip = (uint64_t)1 << bit;
        same += fsdp_dataset_draw(data, seed ^ flip, step, 2, 4) == plain;
        if (bit < 31)
            same += fsdp_dataset_draw(data, seed, step ^ flip, 2, 4) == plain;
    }
    /* 95 chances of 1 in 8,999 each: five would be one in 10^12 */
    ck_assert_int_lt(same, 5);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("draws");
    TCase *tcase = tcase_create("draws");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_loop_test(tcase, few_rows_in_any_order, 0, 7);
    tcase_add_test(tcase, batch_larger_than_the_table);
    tcase_add_test(tcase, high_bits_count);
    return mck_run(argc, argv, suite);
}
