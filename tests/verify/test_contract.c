/* The contract's tables as the baseline has them, against numbers worked out by
 * hand: averaging, which rank runs which micro-batch, 16-bit rounding; and how
 * divergences of replicas and types are told. */
/* Ranks: 1 */
#include <math.h>
#include <string.h>

#include "mck.h"
#include "verify/averaging.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- averaging ----------------------------------------------------------- */

static const struct {
    fsdp_averaging_t averaging;
    fsdp_dtype_t type;
    int shards, replicas;
    double factor;
    bool force_sum;
    averaging_t expected; /* times, over, over_shards, times_replica,
                             over_replica, over_all */
} rows[] = {
    {FSDP_SUM_THEN_DIVIDE, FSDP_FP32, 4, 1, 0, false, {1, 1, 4, 1, 1, 1}},
    {FSDP_SUM_THEN_DIVIDE, FSDP_BF16, 3, 2, 0, false, {1, 1, 3, 1, 1, 2}},
    {FSDP_SUM_THEN_DIVIDE, FSDP_FP32, 4, 2, 24, false, {1, 1, 1, 1, 1, 24}},
    {FSDP_SUM_THEN_DIVIDE, FSDP_FP32, 1, 1, 0, false, {1, 1, 1, 1, 1, 1}},
    {FSDP_PREMULTIPLY, FSDP_FP32, 4, 2, 0, false, {0.25, 1, 1, 0.5, 1, 1}},
    {FSDP_PREMULTIPLY, FSDP_FP32, 4, 2, 4, false, {0.25, 1, 1, 1, 1, 1}},
    {FSDP_PREMULTIPLY, FSDP_BF16, 4, 2, 16, false, {0.0625, 1, 1, 1, 1, 1}},
    /* p: 2 for 3, 4 for 6 and 8, 16 for 128, of which the rest comes after */
    {FSDP_PRE_POST, FSDP_FP32, 3, 1, 0, false, {1, 2, 1, 1, 1, 1.5}},
    {FSDP_PRE_POST, FSDP_FP32, 3, 2, 0, false, {1, 4, 1, 1, 1, 1.5}},
    {FSDP_PRE_POST, FSDP_BF16, 8, 1, 0, false, {1, 4, 1, 1, 1, 2}},
    {FSDP_PRE_POST, FSDP_FP32, 2, 1, 128, false, {1, 16, 1, 1, 1, 8}},
    /* float16 and float64 whatever was asked for */
    {FSDP_SUM_THEN_DIVIDE, FSDP_FP16, 4, 1, 0, false, {1, 2, 1, 1, 1, 2}},
    {FSDP_PREMULTIPLY, FSDP_FP64, 2, 1, 0, false, {1, 2, 1, 1, 1, 1}},
    {FSDP_PRE_POST, FSDP_FP16, 4, 2, 0, true, {1, 1, 1, 1, 1, 8}},
    {FSDP_PREMULTIPLY, FSDP_FP32, 4, 2, 24, true, {1, 1, 1, 1, 1, 24}},
};

START_TEST(averaging_as_the_table_says)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        averaging_t a =
            averaging_make(rows[i].averaging, rows[i].type, rows[i].shards,
                           rows[i].replicas, rows[i].factor, rows[i].force_sum);
        ck_assert_msg(memcmp(&a, &rows[i].expected, sizeof a) == 0,
                      "row %zu: %g %g %g %g %g %g", i, a.times, a.over,
                      a.over_shards, a.times_replica, a.over_replica,
                      a.over_all);
    }
}
END_TEST

/* ---- micro-batches --------------------------------------------------------- */

/* Two replicas of two ranks, three micro-batches each: [rank][j]. */
START_TEST(micro_batches_are_dealt_in_the_order_of_the_sums)
{
    static const int each[4][3] = {
        {0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 11}};
    static const int last[4][3] = {
        {0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}};
    /* a replica's shards side by side, its micro-batches one after another */
    static const int last_all_reduce[4][3] = {
        {0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}};
    for (int rank = 0; rank < 4; rank++)
        for (int j = 0; j < 3; j++) {
            ck_assert_int_eq(
                fsdp_global_micro_batch(FSDP_SYNC_EACH, 2, 2, 3, rank, j),
                each[rank][j]);
            ck_assert_int_eq(
                fsdp_global_micro_batch(FSDP_SYNC_LAST, 2, 2, 3, rank, j),
                last[rank][j]);
            ck_assert_int_eq(fsdp_global_micro_batch(FSDP_SYNC_LAST_ALL_REDUCE,
                                                     2, 2, 3, rank, j),
                             last_all_reduce[rank][j]);
        }
}
END_TEST

/* ---- 16 bits ---------------------------------------------------------------- */

START_TEST(sixteen_bits_round_to_the_nearest_even)
{
    /* 8 bits of bfloat16 and 11 of float16: halfway goes to the even one, and
     * what is beyond halfway by less than a float can tell goes up. */
    ck_assert(value_round(FSDP_BF16, 1 + 0x1p-8) == 1);
    ck_assert(value_round(FSDP_BF16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
    ck_assert(value_round(FSDP_BF16, 1 + 0x3p-8) == 1 + 0x1p-6);
    ck_assert(value_round(FSDP_FP16, 1 + 0x1p-11) == 1);
    ck_assert(value_round(FSDP_FP16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
    ck_assert(value_round(FSDP_FP16, 65519) == 65504);
    ck_assert(isinf(value_round(FSDP_FP16, 65520)));
    ck_assert(value_round(FSDP_FP16, 0x1p-25) == 0);
    ck_assert(value_round(FSDP_FP16, 0x1.8p-25) == 0x1p-24);
    for (int i = 0; i < 4; i++) {
        fsdp_dtype_t t =
            (fsdp_dtype_t[]){FSDP_FP32, FSDP_FP64, FSDP_BF16, FSDP_FP16}[i];
        double u = value_roundoff(t), tiny = value_smallest(t);
        ck_assert(value_round(t, 1 + u) == 1);
        ck_assert(value_round(t, 1 + 2 * u) == 1 + 2 * u);
        ck_assert(value_round(t, tiny) == tiny &&
                  value_round(t, tiny / 2) == 0);
    }
}
END_TEST

START_TEST(distances_of_sixteen_bits)
{
    ck_assert(verify_ulps(FSDP_BF16, 1, 1 + 0x1p-7) == 1);
    ck_assert(verify_ulps(FSDP_FP16, 1, 2) == 0x1p10);
    ck_assert(verify_ulps(FSDP_BF16, -0x1p-133, 0x1p-133) == 2);
    ck_assert(verify_ulps(FSDP_FP16, 0.0, -0.0) == 0);
}
END_TEST

/* ---- words ------------------------------------------------------------------ */

START_TEST(replicas_and_types_told_in_words)
{
    char text[512];
    fsdp_divergence_t d = {.found = true,
                           .step = 2,
                           .phase = "replica",
                           .what = "parameter",
                           .name = "layers.0.bias",
                           .unit = "layers.0",
                           .micro = -1,
                           .element = 5,
                           .rank = 3,
                           .ours = 2,
                           .expected = 1,
                           .ulps = 8388608};
    fsdp_divergence_format(&d, text, sizeof text);
    ck_assert_str_eq(text, "first divergence: step 2, replica (parameter) of "
                           "layers.0.bias, unit layers.0, element 5, rank 3: "
                           "2, expected 1 (8388608 ULPs apart)");
    d = (fsdp_divergence_t){.found = true,
                            .step = 1,
                            .phase = "unit output",
                            .unit = "(root)",
                            .micro = 0,
                            .our_type = FSDP_FP32,
                            .expected_type = FSDP_BF16};
    fsdp_divergence_format(&d, text, sizeof text);
    ck_assert_str_eq(text, "first divergence: step 1, unit output, unit "
                           "(root), micro-batch 0, element 0, rank 0: float32, "
                           "expected bfloat16");
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("contract");
    TCase *tcase = tcase_create("contract");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, averaging_as_the_table_says);
    tcase_add_test(tcase, micro_batches_are_dealt_in_the_order_of_the_sums);
    tcase_add_test(tcase, sixteen_bits_round_to_the_nearest_even);
    tcase_add_test(tcase, distances_of_sixteen_bits);
    tcase_add_test(tcase, replicas_and_types_told_in_words);
    return mck_run(argc, argv, suite);
}
