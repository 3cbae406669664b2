/* Exact sums against exact fractions (cases.h) and 128-bit integers. */
/* Ranks: 1 */
#include "serial.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "bits.h"
#include "cases.h"
#include "fsdp/exact_sum.h"

static double
sum_of(const double *x, size_t n)
{
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    for (size_t i = 0; i < n; i++)
        fsdp_exact_sum_add(&sum, x[i]);
    return fsdp_exact_sum_round(&sum);
}

START_TEST(sums_of_fractions)
{
    size_t n = sizeof sum_cases / sizeof sum_cases[0];
    ck_assert_uint_gt(n, 30);
    for (size_t i = 0; i < n; i++)
        ck_assert_bits(
            sum_of(sum_terms + sum_cases[i].first, (size_t)sum_cases[i].count),
            sum_cases[i].want);
}
END_TEST

START_TEST(zeros_and_single_terms)
{
    double zeros[] = {-0.0, -0.0};
    ck_assert_bits(sum_of(zeros, 0), 0.0);
    ck_assert_bits(sum_of(zeros, 2), 0.0);
    /* Every exponent, both signs. */
    for (uint64_t e = 0; e < 2047; e++)
        for (uint64_t sign = 0; sign < 2; sign++) {
            uint64_t bits = sign << 63 | e << 52 | (random_bits(e) >> 12) | 1;
            double x;
            memcpy(&x, &bits, sizeof x);
            ck_assert_bits(sum_of(&x, 1), x);
        }
}
END_TEST

/* 2^k + 2^(k - 53) is half way between two doubles, and goes to the even one;
 * the smallest of all numbers, more or less, decides otherwise. */
START_TEST(ties_go_to_even_everywhere)
{
    for (int k = -1021; k < 1024; k++) {
        double even = ldexp(1.0, k), step = ldexp(1.0, k - 52);
        double half = ldexp(1.0, k - 53), tiny = 0x1p-1074;
        bool has_half = half > tiny; /* and room for less than half */
        for (double sign = -1.0; has_half && sign <= 1.0; sign += 2.0) {
            double up[] = {sign * even, sign * half, sign * tiny};
            double down[] = {sign * even, sign * half, -sign * tiny};
            double odd[] = {sign * (even + step), sign * half, -sign * tiny};
            ck_assert_bits(sum_of(up, 2), sign * even);
            ck_assert_bits(sum_of(up, 3), sign * (even + step));
            ck_assert_bits(sum_of(down, 3), sign * even);
            ck_assert_bits(sum_of(odd, 2), sign * (even + 2.0 * step));
            ck_assert_bits(sum_of(odd, 3), sign * (even + step));
        }
    }
}
END_TEST

START_TEST(overflow_is_infinite)
{
    double twice[] = {DBL_MAX, DBL_MAX};
    double half[] = {DBL_MAX, 0x1p970, -0x1p-1074};
    double back[] = {DBL_MAX, DBL_MAX, -DBL_MAX};
    double top[] = {DBL_MAX, 0x1p969, 0x1p969};
    ck_assert_bits(sum_of(twice, 2), INFINITY);
    ck_assert_bits(sum_of(half, 2), INFINITY); /* the tie goes to 2^1024 */
    ck_assert_bits(sum_of(half, 3), DBL_MAX);
    ck_assert_bits(sum_of(back, 3), DBL_MAX);
    ck_assert_bits(sum_of(top, 3), INFINITY);
    for (int i = 0; i < 2; i++)
        twice[i] = -twice[i];
    ck_assert_bits(sum_of(twice, 2), -INFINITY);
}
END_TEST

START_TEST(specials_decide)
{
    double x[] = {1.0, INFINITY, -2.0, -INFINITY, 3.0, NAN};
    ck_assert_bits(sum_of(x, 3), INFINITY);
    ck_assert_bits(sum_of(x + 2, 3), -INFINITY);
    ck_assert(isnan(sum_of(x, 5)));
    ck_assert(isnan(sum_of(x + 4, 2)));

    fsdp_exact_sum_t sum, other;
    fsdp_exact_sum_clear(&sum);
    fsdp_exact_sum_clear(&other);
    fsdp_exact_sum_add(&sum, INFINITY);
    fsdp_exact_sum_add(&other, 1.0);
    fsdp_exact_sum_merge(&other, &sum);
    ck_assert_bits(fsdp_exact_sum_round(&other), INFINITY);
    fsdp_exact_sum_add(&sum, -INFINITY);
    fsdp_exact_sum_merge(&other, &sum);
    ck_assert(isnan(fsdp_exact_sum_round(&other)));
}
END_TEST

/* Random whole numbers of up to 2^100 times `unit`, as 53 of their bits. */
static double
random_term(uint64_t i, __int128 *total, double unit)
{
    uint64_t bits = random_bits(i);
    __int128 term = (__int128)(bits >> 11) << bits % 48;
    if ((bits & 1) != 0)
        term = -term;
    *total += term;
    return (double)term * unit;
}

/* Integers to double rounds to nearest even, in the compiler's own library. */
static void
check_against_integers(double unit, uint64_t seed)
{
    enum { N = 5000 };
    fsdp_exact_sum_t sum;
    __int128 total = 0;
    fsdp_exact_sum_clear(&sum);
    for (uint64_t i = 0; i < N; i++) {
        fsdp_exact_sum_add(&sum, random_term(seed + i, &total, unit));
        if (i % 500 == 499)
            ck_assert_bits(fsdp_exact_sum_round(&sum), (double)total * unit);
    }
    /* All but cancelled. */
    fsdp_exact_sum_add(&sum, -((double)total * unit));
    __int128 rest = total - (__int128)(double)total;
    ck_assert_bits(fsdp_exact_sum_round(&sum), (double)rest * unit);
}

START_TEST(long_sums_of_integers)
{
    for (int k = -1074; k <= 900; k += 47)
        check_against_integers(ldexp(1.0, k), (uint64_t)(k + 1074) * 10000);
}
END_TEST

/* Terms with 53 ones, at each place within a limb, many times over: the largest
 * additions that a limb can get. */
START_TEST(no_limb_overflows)
{
    const double ones = 0x1.fffffffffffffp0;
    const __int128 ones_int = ((__int128)1 << 53) - 1;
    for (int place = 0; place < 32; place++)
        for (int sign = -1; sign <= 1; sign += 2) {
            fsdp_exact_sum_t sum;
            fsdp_exact_sum_clear(&sum);
            for (int i = 0; i < 10000; i++)
                fsdp_exact_sum_add(&sum, sign * ldexp(ones, place));
            double want = (double)(sign * 10000 * ones_int);
            ck_assert_bits(fsdp_exact_sum_round(&sum), ldexp(want, place - 52));
            ck_assert(sum.pending <= 2048);
        }
}
END_TEST

/* 2^31 additions: 1,024 by hand, then doubled by merging with itself. */
START_TEST(two_to_the_31_additions)
{
    fsdp_exact_sum_t sum;
    fsdp_exact_sum_clear(&sum);
    for (int i = 0; i < 1024; i++)
        fsdp_exact_sum_add(&sum, 0x1.fffffffffffffp1023);
    for (int i = 10; i < 31; i++) {
        fsdp_exact_sum_t copy = sum;
        fsdp_exact_sum_merge(&sum, &copy);
    }
    ck_assert_bits(fsdp_exact_sum_round(&sum), INFINITY);
    /* Taken away again, down to the last. */
    fsdp_exact_sum_t minus;
    fsdp_exact_sum_clear(&minus);
    for (int i = 0; i < 1024; i++)
        fsdp_exact_sum_add(&minus, -0x1.fffffffffffffp1023);
    for (int i = 10; i < 31; i++) {
        fsdp_exact_sum_t copy = minus;
        fsdp_exact_sum_merge(&minus, &copy);
    }
    fsdp_exact_sum_add(&minus, 0.1);
    fsdp_exact_sum_merge(&sum, &minus);
    ck_assert_bits(fsdp_exact_sum_round(&sum), 0.1);
}
END_TEST

/* Parts of random size, merged in random order, by merge and as MPI does it. */
START_TEST(parts_merge_to_the_same_bits)
{
    enum { N = 3000, PARTS = 7 };
    static double x[N];
    __int128 total = 0;
    for (uint64_t i = 0; i < N; i++)
        x[i] = random_term(777 + i, &total, 0x1p-70);
    for (uint64_t trial = 0; trial < 50; trial++) {
        fsdp_exact_sum_t part[PARTS], merged, added;
        for (int p = 0; p < PARTS; p++)
            fsdp_exact_sum_clear(&part[p]);
        for (uint64_t i = 0; i < N; i++)
            fsdp_exact_sum_add(&part[random_bits(trial * N + i) % PARTS],
                               x[(i * 7 + trial) % N]);
        fsdp_exact_sum_clear(&merged);
        fsdp_exact_sum_clear(&added);
        int64_t *words = (int64_t *)&added;
        for (int p = 0; p < PARTS; p++) {
            int q = (int)((p * 3 + (int)trial) % PARTS);
            fsdp_exact_sum_merge(&merged, &part[q]);
            fsdp_exact_sum_carry(&part[q]);
            for (int w = 0; w < FSDP_EXACT_WORDS; w++)
                words[w] += ((int64_t *)&part[q])[w];
        }
        double want = (double)total * 0x1p-70;
        ck_assert_bits(fsdp_exact_sum_round(&merged), want);
        ck_assert_bits(fsdp_exact_sum_round(&added), want);
    }
}
END_TEST

static void
check_carried(const fsdp_exact_sum_t *sum)
{
    for (int i = 0; i < FSDP_EXACT_LIMBS; i++)
        ck_assert(sum->limb[i] >= INT32_MIN && sum->limb[i] <= INT32_MAX);
}

/* What 2^20 ranks with the same sum would get, and can go on with. */
START_TEST(words_of_a_million_sums_add)
{
    fsdp_exact_sum_t sum;
    __int128 total = 0;
    fsdp_exact_sum_clear(&sum);
    for (uint64_t i = 0; i < 2000; i++)
        fsdp_exact_sum_add(&sum, random_term(31 + i, &total, 1.0));
    fsdp_exact_sum_carry(&sum);
    check_carried(&sum);
    int64_t *words = (int64_t *)&sum;
    for (int w = 0; w < FSDP_EXACT_WORDS; w++)
        words[w] *= 1 << 20;
    double want = (double)total;
    ck_assert_bits(fsdp_exact_sum_round(&sum), ldexp(want, 20));
    for (int i = 0; i < 5000; i++) {
        fsdp_exact_sum_add(&sum, 0x1.fffffffffffffp83);
        fsdp_exact_sum_add(&sum, -0x1.fffffffffffffp83);
    }
    ck_assert_bits(fsdp_exact_sum_round(&sum), ldexp(want, 20));
    fsdp_exact_sum_carry(&sum);
    check_carried(&sum);
}
END_TEST

static void
add_rounding_tests(TCase *tcase)
{
    tcase_add_test(tcase, sums_of_fractions);
    tcase_add_test(tcase, zeros_and_single_terms);
    tcase_add_test(tcase, ties_go_to_even_everywhere);
    tcase_add_test(tcase, overflow_is_infinite);
    tcase_add_test(tcase, specials_decide);
    tcase_add_test(tcase, long_sums_of_integers);
}

static void
add_merging_tests(TCase *tcase)
{
    tcase_add_test(tcase, no_limb_overflows);
    tcase_add_test(tcase, two_to_the_31_additions);
    tcase_add_test(tcase, parts_merge_to_the_same_bits);
    tcase_add_test(tcase, words_of_a_million_sums_add);
}

int
main(void)
{
    Suite *suite = suite_create("exact sum");
    TCase *rounding = tcase_create("rounding");
    TCase *merging = tcase_create("merging");
    suite_add_tcase(suite, rounding);
    suite_add_tcase(suite, merging);
    add_rounding_tests(rounding);
    add_merging_tests(merging);
    return serial_run(suite);
}
