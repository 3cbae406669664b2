/* Sums in their orders, the mean loss, distances and what is said of a
 * divergence, against sums written out by hand and numbers from IEEE 754. */
/* Ranks: 1 */
#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "verify/internal.h"

/* Terms of very different sizes, so that every other order has other bits. */
static const float term[7] = {1e8f,   3.14159f, -1e8f,  2.71828f,
                              1.5e4f, -7.25e7f, 0.0101f};

static void *
sum_of(fsdp_reduce_order_t order, int n, size_t numel, const int *destination)
{
    term_sum_t sum = {0};
    for (int i = 0; i < n; i++) {
        float *x = fsdp_alloc(FSDP_MEM_BASELINE, numel * sizeof *x);
        for (size_t k = 0; k < numel; k++)
            x[k] = term[i];
        term_sum_add(&sum, FSDP_FP32, order, x, numel);
    }
    void *out = term_sum_take(&sum, FSDP_FP32, order, numel, destination);
    term_sum_destroy(&sum);
    return out;
}

static float
one_sum(fsdp_reduce_order_t order, int n)
{
    float *out = sum_of(order, n, 1, NULL), value = out[0];
    fsdp_free(out);
    return value;
}

START_TEST(tree_pairs_neighbours)
{
    const float *x = term;
    const float expected[] = {
        x[0],
        x[0] + x[1],
        (x[0] + x[1]) + x[2],
        (x[0] + x[1]) + (x[2] + x[3]),
        ((x[0] + x[1]) + (x[2] + x[3])) + x[4],
        ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]),
        ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]),
    };
    for (int n = 1; n <= 7; n++)
        ck_assert(one_sum(FSDP_ORDER_TREE, n) == expected[n - 1]);
}
END_TEST

START_TEST(rank_goes_left_to_right)
{
    float expected = term[0];
    for (int n = 1; n <= 7; n++) {
        ck_assert(one_sum(FSDP_ORDER_RANK, n) == expected);
        if (n < 7)
            expected += term[n];
    }
}
END_TEST

/* Five terms for five destinations, in no order, as strided shards may be. */
START_TEST(ring_begins_after_the_destination)
{
    static const int destination[10] = {3, 0, 4, 1, 2, 2, 0, 4, 3, 1};
    float *out = sum_of(FSDP_ORDER_RING, 5, 10, destination);
    for (int i = 0; i < 10; i++) {
        int r = destination[i];
        float expected = term[(r + 1) % 5];
        for (int k = 2; k <= 5; k++)
            expected += term[(r + k) % 5];
        ck_assert(out[i] == expected);
    }
    fsdp_free(out);
}
END_TEST

START_TEST(no_term_no_sum)
{
    ck_assert(sum_of(FSDP_ORDER_TREE, 0, 1, NULL) == NULL);
    ck_assert(sum_of(FSDP_ORDER_RING, 0, 1, NULL) == NULL);
}
END_TEST

START_TEST(mean_loss_in_both_orders)
{
    const float *x = term;
    double losses[5];
    for (int i = 0; i < 5; i++)
        losses[i] = term[i];
    float tree = (((x[0] + x[1]) + (x[2] + x[3])) + x[4]) / 5;
    float left = ((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) / 5;
    ck_assert(tree != left);
    ck_assert(fsdp_mean_loss(losses, 5, FSDP_FP32, FSDP_ORDER_TREE) ==
              (double)tree);
    ck_assert(fsdp_mean_loss(losses, 5, FSDP_FP32, FSDP_ORDER_RANK) ==
              (double)left);
    ck_assert(fsdp_mean_loss(losses, 1, FSDP_FP64, FSDP_ORDER_RING) ==
              losses[0]);
}
END_TEST

START_TEST(distances)
{
    ck_assert(verify_ulps(FSDP_FP32, 1, 1 + 0x1p-23) == 1);
    ck_assert(verify_ulps(FSDP_FP32, 1, 1 - 0x1p-24) == 1);
    ck_assert(verify_ulps(FSDP_FP32, 1, 2) == 0x1p23);
    ck_assert(verify_ulps(FSDP_FP64, 1, 2) == 0x1p52);
    ck_assert(verify_ulps(FSDP_FP32, -0x1p-149, 0x1p-149) == 2);
    ck_assert(verify_ulps(FSDP_FP64, 0.0, -0.0) == 0);
    ck_assert(isinf(verify_ulps(FSDP_FP32, (double)NAN, 1)));
}
END_TEST

START_TEST(told_in_words)
{
    char text[512];
    fsdp_divergence_t d = {.found = true,
                           .step = 3,
                           .phase = "reduced gradient",
                           .unit = "transformer.h.1",
                           .name = "transformer.h.1.ln_1.bias",
                           .micro = -1,
                           .element = 17,
                           .rank = 2,
                           .ours = 0.5,
                           .expected = 0.25,
                           .ulps = 8388608};
    fsdp_divergence_format(&d, text, sizeof text);
    ck_assert_str_eq(text, "first divergence: step 3, reduced gradient of "
                           "transformer.h.1.ln_1.bias, unit transformer.h.1, "
                           "element 17, rank 2: 0.5, expected 0.25 (8388608 "
                           "ULPs apart)");
    d = (fsdp_divergence_t){.found = true,
                            .step = 1,
                            .phase = "loss",
                            .micro = 4,
                            .ours = (double)NAN,
                            .expected = 2};
    fsdp_divergence_format(&d, text, sizeof text);
    ck_assert_str_eq(text, "first divergence: step 1, loss, micro-batch 4, "
                           "element 0, rank 0: none or nan, expected 2");
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("parts");
    TCase *tcase = tcase_create("parts");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, tree_pairs_neighbours);
    tcase_add_test(tcase, rank_goes_left_to_right);
    tcase_add_test(tcase, ring_begins_after_the_destination);
    tcase_add_test(tcase, no_term_no_sum);
    tcase_add_test(tcase, mean_loss_in_both_orders);
    tcase_add_test(tcase, distances);
    tcase_add_test(tcase, told_in_words);
    return mck_run(argc, argv, suite);
}
