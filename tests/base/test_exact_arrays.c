/* Exact sums of squares and magnitudes, alone and of whole arrays. */
/* Ranks: 1 */
#include "serial.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "bits.h"
#include "fsdp/exact_sum.h"

START_TEST(squares_are_exact)
{
    for (int k = -480; k <= 440; k += 23) {
        fsdp_exact_sum_t sum;
        unsigned __int128 total = 0;
        fsdp_exact_sum_clear(&sum);
        for (uint64_t i = 0; i < 3000; i++) {
            uint64_t m = random_bits(i + (uint64_t)(k + 480) * 10000) >> 11;
            total += (unsigned __int128)m * m;
            double x = ldexp((double)m, k);
            fsdp_exact_sum_add_square(&sum, i % 2 == 0 ? x : -x);
        }
        ck_assert_bits(fsdp_exact_sum_round(&sum), ldexp((double)total, 2 * k));
    }
}
END_TEST

static double
squares_of(const double *x, int n)
{
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    for (int i = 0; i < n; i++)
        fsdp_exact_sum_add_square(&sum, x[i]);
    return fsdp_exact_sum_round(&sum);
}

START_TEST(squares_at_the_ends)
{
    double small[] = {0x1p-538, 0x1p-538, 0x1p-538, 0x1p-538};
    double tiny[] = {0x1p-1074, 0x1p-700, 0.0};
    double large[] = {0x1p511, 0x1p511, 0x1p511, 0x1p511};
    double over[] = {1.0, -0x1p512}, nan[] = {1.0, NAN};
    ck_assert_bits(squares_of(small, 4), 0x1p-1074);
    ck_assert_bits(squares_of(small, 1), 0.0); /* a quarter of the least */
    ck_assert_bits(squares_of(tiny, 3), 0.0);
    ck_assert_bits(squares_of(large, 3), 0x1.8p1023);
    ck_assert_bits(squares_of(large, 4), INFINITY); /* 2^1024 */
    ck_assert_bits(squares_of(over, 2), INFINITY);
    ck_assert(isnan(squares_of(nan, 2)));

    /* 2^-1106 is the last bit that is kept: 2^32 of it make 2^-1074. */
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    fsdp_exact_sum_add_square(&sum, 0x1p-553);
    for (int i = 0; i < 32; i++) {
        fsdp_exact_sum_t copy = sum;
        fsdp_exact_sum_merge(&sum, &copy);
    }
    ck_assert_bits(fsdp_exact_sum_round(&sum), 0x1p-1074);
}
END_TEST

/* Floats of `range` binary orders around 1, a few of them zeros, subnormals and
 * the largest there are. */
static float
random_float(uint64_t i, int range)
{
    uint64_t bits = random_bits(i);
    float x = ldexpf((float)(1 + (bits & 0xffffff)), -24);
    if (range > 0)
        x = ldexpf(x, (int)(bits >> 32) % range - range / 2);
    if (bits >> 60 == 0)
        x = range > 200 ? FLT_MAX : 0.0f;
    if (bits >> 60 == 1)
        x = range > 200 ? 0x1.234p-140f : 1.0f;
    return (bits >> 59 & 1) != 0 ? -x : x;
}

/* The sums of squares (p = 2) and magnitudes (p = 1), term by term. */
static fsdp_exact_sum_t
norm_terms(const float *x, size_t n, int p)
{
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    for (size_t i = 0; i < n; i++) {
        double t = x[i];
        fsdp_exact_sum_add(&sum, p == 2 ? t * t : fabs(t));
    }
    return sum;
}

/* In two pieces, the first of `cut` elements. */
static void
check_pieces(const float *x, size_t n, size_t cut)
{
    static double wide[6000];
    for (size_t i = 0; i < n; i++)
        wide[i] = x[i];
    for (int p = 1; p <= 2; p++) {
        fsdp_exact_sum_t want = norm_terms(x, n, p), f32, f64;
        fsdp_exact_sum_clear(&f32);
        fsdp_exact_sum_clear(&f64);
        if (p == 1) {
            fsdp_exact_sum_add_magnitudes_f32(&f32, x, cut);
            fsdp_exact_sum_add_magnitudes_f32(&f32, x + cut, n - cut);
            fsdp_exact_sum_add_magnitudes_f64(&f64, wide, n);
        } else {
            fsdp_exact_sum_add_squares_f32(&f32, x, cut);
            fsdp_exact_sum_add_squares_f32(&f32, x + cut, n - cut);
            fsdp_exact_sum_add_squares_f64(&f64, wide, n);
        }
        double result = fsdp_exact_sum_round(&want);
        ck_assert_bits(fsdp_exact_sum_round(&f32), result);
        ck_assert_bits(fsdp_exact_sum_round(&f64), result);

        /* Not only the rounded sums are the same: nothing is left. */
        for (int w = 0; w < FSDP_EXACT_LIMBS; w++)
            want.limb[w] = -want.limb[w];
        fsdp_exact_sum_merge(&f32, &want);
        fsdp_exact_sum_merge(&f64, &want);
        ck_assert_bits(fsdp_exact_sum_round(&f32), 0.0);
        ck_assert_bits(fsdp_exact_sum_round(&f64), 0.0);
    }
}

static void
check_array(const float *x, size_t n)
{
    check_pieces(x, n, 0);
    check_pieces(x, n, n / 3);
}

START_TEST(arrays_are_their_terms)
{
    static float x[6000];
    static const size_t sizes[] = {0, 1, 2, 3, 1023, 1024, 1025, 3072, 5999};
    static const int ranges[] = {0, 1, 20, 100, 250};
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            for (size_t i = 0; i < sizes[s]; i++)
                x[i] = random_float(i + r * 100000, ranges[r]);
            check_array(x, sizes[s]);
        }
    memset(x, 0, sizeof x);
    check_array(x, 6000);
    for (int i = 0; i < 6000; i++)
        x[i] = FLT_MAX;
    check_array(x, 6000);
    for (int i = 0; i < 6000; i++)
        x[i] = 0x1p-149f * (float)(i % 5);
    check_array(x, 6000);
}
END_TEST

/* The most that a block of 1,024 terms can ask of a double: all of them, or all
 * that is left of them after the first cut (exact_sum_array.c), just below the
 * power of two that bounds them, with ones in their last bits. */
START_TEST(fullest_blocks)
{
    static float x[1024];
    for (int trial = 0; trial < 20; trial++) {
        for (int i = 0; i < 1024; i++)
            x[i] = 1.0f - 0x1p-24f * (float)(1 + (i * 7 + trial * 3) % 512);
        check_array(x, 1024);
        for (int i = 0; i < 1024; i++)
            x[i] *= 0x1p-21f;
        x[0] = 1.0f; /* bounded by 2^2, cut at 2^-41: all below 2^-42 is left */
        check_array(x, 1024);
    }
}
END_TEST

START_TEST(arrays_with_specials)
{
    static float x[3000];
    fsdp_exact_sum_t sum;
    for (int i = 0; i < 3000; i++)
        x[i] = 1.0f;
    x[1500] = -INFINITY;
    fsdp_exact_sum_clear(&sum);
    fsdp_exact_sum_add_squares_f32(&sum, x, 3000);
    fsdp_exact_sum_add_magnitudes_f32(&sum, x, 3000);
    ck_assert_bits(fsdp_exact_sum_round(&sum), INFINITY);
    x[2999] = NAN;
    fsdp_exact_sum_clear(&sum);
    fsdp_exact_sum_add_squares_f32(&sum, x, 3000);
    ck_assert(isnan(fsdp_exact_sum_round(&sum)));
    ck_assert_int_eq(sum.nan, 1);
    ck_assert_int_eq(sum.plus_inf, 1);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("exact arrays");
    TCase *tcase = tcase_create("exact arrays");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, squares_are_exact);
    tcase_add_test(tcase, squares_at_the_ends);
    tcase_add_test(tcase, arrays_are_their_terms);
    tcase_add_test(tcase, fullest_blocks);
    tcase_add_test(tcase, arrays_with_specials);
    return serial_run(suite);
}
