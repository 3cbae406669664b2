/* Counter-based random numbers against published and computed values. */
/* Ranks: 1 */
#include "serial.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "cases.h"
#include "fsdp/random.h"

/* Random123's kat_vectors for philox4x32, 10 rounds. */
START_TEST(philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0},
         {0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, /* digits of pi */
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        fsdp_philox4x32_10(known[i].counter, known[i].key, out);
        ck_assert_mem_eq(out, known[i].want, sizeof out);
    }
}
END_TEST

/* Where each part of a stream's name goes; all bits are in use. */
START_TEST(block_is_laid_out_as_promised)
{
    const uint64_t seed = 0x1234567089abcdef, b = 0xfedcba9876543210;
    const uint64_t index = 0x0badcafe13579bdf;
    uint32_t key[2] = {0x89abcdef, 0x12345670 ^ (2u << 24)};
    uint32_t counter[4] = {0x13579bdf, 0xa5a5a5a5, 0x76543210,
                           0xfedcba98 ^ 0x0badcafe};
    uint32_t want[4], got[4];
    fsdp_philox4x32_10(counter, key, want);
    ck_assert_int_eq(FSDP_RANDOM_DROPOUT, 2);
    fsdp_random_block(seed, FSDP_RANDOM_DROPOUT, 0xa5a5a5a5, b, index, got);
    ck_assert_mem_eq(got, want, sizeof got);
}
END_TEST

START_TEST(order_of_access_does_not_show)
{
    enum { N = 4096 };
    static uint32_t forward[N];
    for (uint64_t i = 0; i < N; i++)
        forward[i] = fsdp_random_word(7, FSDP_RANDOM_TEST, 1, 2, i);
    for (uint64_t k = 0; k < N; k++) {
        uint64_t i = k * 2731 % N; /* another order; 2731 is odd */
        uint32_t block[4];
        fsdp_random_block(7, FSDP_RANDOM_TEST, 1, 2, i / 4, block);
        ck_assert_uint_eq(block[i % 4], forward[i]);
        ck_assert_uint_eq(fsdp_random_word(7, FSDP_RANDOM_TEST, 1, 2, i),
                          forward[i]);
    }
}
END_TEST

/* Each part of the name of a stream makes another stream. */
START_TEST(streams_differ)
{
    uint32_t block[8][4];
    uint64_t high = (uint64_t)1 << 32;
    fsdp_random_block(1, FSDP_RANDOM_INIT, 5, 6, 7, block[0]);
    fsdp_random_block(2, FSDP_RANDOM_INIT, 5, 6, 7, block[1]);
    fsdp_random_block(1 + high, FSDP_RANDOM_INIT, 5, 6, 7, block[2]);
    fsdp_random_block(1, FSDP_RANDOM_DATA, 5, 6, 7, block[3]);
    fsdp_random_block(1, FSDP_RANDOM_INIT, 4, 6, 7, block[4]);
    fsdp_random_block(1, FSDP_RANDOM_INIT, 5, 6 + high, 7, block[5]);
    fsdp_random_block(1, FSDP_RANDOM_INIT, 5, 7, 7, block[6]);
    fsdp_random_block(1, FSDP_RANDOM_INIT, 5, 6, 8, block[7]);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < 4; k++)
                ck_assert(block[i][k] != block[j][k]);
}
END_TEST

START_TEST(uniform_is_inside_and_exact)
{
    ck_assert(fsdp_random_uniform(0) == 0x1p-33);
    ck_assert(fsdp_random_uniform(0x80000000) == 0.5 + 0x1p-33);
    ck_assert(fsdp_random_uniform(0xffffffff) == 1.0 - 0x1p-33);
}
END_TEST

/* The relative error of the normal quantile, in u = 2^-53:
 *  - the two polynomials have positive coefficients and arguments, so each of
 *    their 14 operations adds at most 1: 28; the division and, in the middle,
 *    the product with q: 2;
 *  - the argument: in the middle 0.180625 - q q is off by 0.4 u at most, and
 *    the ratio's logarithmic derivative, below 4 there, makes it 2.  In the
 *    tails r = sqrt(-log p) is off by 3 u r (the logarithm is within 2 ULP, its
 *    root halves that), r - 1.6 by one more; a relative change of r changes the
 *    quantile by about as much: 5;
 *  - the method: Wichura states 1 part in 10^16: 1. */
static const double normal_bound = (28 + 2 + 5 + 1) * 0x1p-53;

START_TEST(normal_is_the_quantile)
{
    double worst = 0.0;
    for (size_t i = 0; i < sizeof normal_cases / sizeof normal_cases[0]; i++) {
        double want = normal_cases[i].want;
        double got = fsdp_random_normal(normal_cases[i].word);
        double error = fabs(got - want) / fabs(want);
        worst = error > worst ? error : worst;
        ck_assert_msg(error <= normal_bound, "word %u: %.17g, not %.17g",
                      normal_cases[i].word, got, want);
    }
    ck_assert(worst > 0.0); /* or the cases came from here */
}
END_TEST

START_TEST(normal_is_odd_and_rises)
{
    double before = -INFINITY;
    for (uint64_t i = 0; i < 1 << 16; i++) {
        uint32_t word = (uint32_t)(i * 65536 + 12345);
        double x = fsdp_random_normal(word);
        ck_assert(x > before);
        ck_assert(fsdp_random_normal(~word) == -x);
        before = x;
    }
}
END_TEST

/* Mean and variance of n normal numbers have standard deviations 1/sqrt(n) and
 * sqrt(2/n); six of them are passed once in 10^9 seeds, and this is one seed. */
START_TEST(normals_look_normal)
{
    enum { N = 200000 };
    double sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < N; i++) {
        double x =
            fsdp_random_normal(fsdp_random_word(1, FSDP_RANDOM_TEST, 0, 0, i));
        sum += x;
        squares += x * x;
    }
    ck_assert(fabs(sum / N) < 6.0 / sqrt(N));
    ck_assert(fabs(squares / N - 1.0) < 6.0 * sqrt(2.0 / N));
}
END_TEST

/* The test values of FNV's authors, 64 bits, FNV-1a. */
START_TEST(hash_known_answers)
{
    ck_assert(fsdp_hash_name("") == 0xcbf29ce484222325);
    ck_assert(fsdp_hash_name("a") == 0xaf63dc4c8601ec8c);
    ck_assert(fsdp_hash_name("foobar") == 0x85944171f73967e8);
    ck_assert(fsdp_hash_name("\xff") == /* bytes are not signed */
              (0xcbf29ce484222325 ^ 0xff) * 0x100000001b3);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("random");
    TCase *tcase = tcase_create("random");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, philox_known_answers);
    tcase_add_test(tcase, block_is_laid_out_as_promised);
    tcase_add_test(tcase, order_of_access_does_not_show);
    tcase_add_test(tcase, streams_differ);
    tcase_add_test(tcase, uniform_is_inside_and_exact);
    tcase_add_test(tcase, normal_is_the_quantile);
    tcase_add_test(tcase, normal_is_odd_and_rises);
    tcase_add_test(tcase, normals_look_normal);
    tcase_add_test(tcase, hash_known_answers);
    return serial_run(suite);
}
