/* Verdicts on small traces written by hand: what is a rounding is within it, what
 * is more is wrong at its place, and the bounds are those of the formulas. */
/* Ranks: 1 */
#include <math.h>
#include <string.h>

#include "mck.h"
#include "verdict_sides.h"
#include "verify/verdict/internal.h"

/* ---- sums -------------------------------------------------------------------- */

/* Ranks' gradients 1, 1 and 1 and what theirs makes of them. */
static side_t
mean_of_three(const char *folder, float mean)
{
    side_t s = side(folder, 3);
    const char *const micro[] = {"0", "1", "2"};
    const float one[4] = {1, 1, 1, 1}, result[4] = {1, 1, mean, 1};
    for (int r = 0; r < 3; r++)
        side_add(&s, 1, r, "unreduced_grad", micro[r], one);
    side_add(&s, 1, 0, "reduced_grad", "2", result);
    return s;
}

/* Three terms of 1 over 3: two additions, a constant and a product in each of two
 * places of averaging; gamma_6 = 6 u / (1 - 6 u), u = 2^-24: 3 * 2^-23 and a
 * little more. */
START_TEST(bound_of_a_mean)
{
    side_t ours = mean_of_three("ours", 1);
    const struct {
        float mean;
        fsdp_verdict_kind_t kind;
    } cases[] = {{1, FSDP_VERDICT_EQUAL},
                 {1 + 0x1p-23f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {1 + 3 * 0x1p-23f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {1 + 4 * 0x1p-23f, FSDP_VERDICT_WRONG},
                 {3, FSDP_VERDICT_WRONG},
                 {1.0f / 3, FSDP_VERDICT_WRONG},
                 {NAN, FSDP_VERDICT_WRONG},
                 {INFINITY, FSDP_VERDICT_WRONG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t theirs = mean_of_three("theirs", cases[i].mean);
        bool wrong = cases[i].kind == FSDP_VERDICT_WRONG;
        expect_named(&ours, &theirs, NULL, cases[i].kind,
                     wrong ? "reduced_grad" : NULL, 2);
    }
}
END_TEST

/* Cancelling terms: the bound is of their magnitudes, not of the sum; two ranks,
 * a power of two: one addition, gamma_1 (1 + 1) / 2. */
START_TEST(bound_of_cancelling_terms)
{
    const float a[4] = {1, 1, 1, 1}, b[4] = {-1, -1, -1, -1};
    const struct {
        float mean;
        fsdp_verdict_kind_t kind;
    } cases[] = {{0x1p-25f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {0x1p-24f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {0x1.001p-24f, FSDP_VERDICT_WRONG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t s[2] = {side("ours", 2), side("theirs", 2)};
        for (int k = 0; k < 2; k++) {
            side_add(&s[k], 1, 0, "unreduced_grad", "0", a);
            side_add(&s[k], 1, 1, "unreduced_grad", "1", b);
            side_add_all(&s[k], 1, "reduced_grad", "1",
                         k == 0 ? 0 : cases[i].mean);
        }
        expect(&s[0], &s[1], cases[i].kind,
               cases[i].kind == FSDP_VERDICT_WRONG ? "reduced_grad" : NULL);
    }
}
END_TEST

/* One reduced gradient is that of the step, without any rounding; two are added
 * once. */
START_TEST(gradient_of_the_step)
{
    static const char two[] = "\"micro_batches\":2,\"steps\":[{\"step\":1}]";
    for (int many = 0; many < 2; many++)
        for (int off = 0; off < 3; off++) {
            side_t s[2] = {side("ours", 2), side("theirs", 2)};
            for (int k = 0; k < 2; k++) {
                float moved = k == 1 ? (float)off * 0x1p-23f : 0;
                side_add_all(&s[k], 1, "reduced_grad", "1", 0.75f);
                if (many) {
                    s[k].settings = two;
                    side_add_all(&s[k], 1, "reduced_grad", "3", 0.375f);
                }
                side_add_all(&s[k], 1, "grad", "-",
                             (many ? 1.125f : 0.75f) + moved);
            }
            /* gamma_1 of 1.125 is 1.125 2^-24: no ulp of it */
            bool wrong = off > 0;
            expect(&s[0], &s[1],
                   wrong ? FSDP_VERDICT_WRONG : FSDP_VERDICT_EQUAL,
                   wrong ? "grad" : NULL);
        }
}
END_TEST

/* ---- norm and clipping ---------------------------------------------------------- */

static const char clipping[] =
    "\"micro_batches\":1,\"grad_clip\":1,\"steps\":[{\"step\":1,\"lr\":0.125}],"
    "\"optimizer\":{\"name\":\"sgd\",\"momentum\":0}";

/* Gradients 2, 2, 2, 2: the norm is 4, and of the coefficient 1 / (4 + 1e-6). */
static side_t
clipped(const char *folder, float norm, double coefficient)
{
    side_t s = side(folder, 2);
    s.settings = clipping;
    side_add_all(&s, 1, "grad", "-", 2);
    side_add_all(&s, 1, "clipped_grad", "-", (float)(2 * coefficient));
    s.tensor[s.count] = (hand_tensor_t){s.key[s.count], "[1]", 1, {norm}, NULL};
    strcpy(s.key[s.count], "norm/-/norm");
    s.rank[s.count] = 0;
    s.step[s.count++] = 1;
    return s;
}

START_TEST(norm_and_clipping)
{
    double sound = 1 / (4 + 1e-6);
    side_t ours = clipped("ours", 4, sound);
    const struct {
        float norm;
        double coefficient;
        fsdp_verdict_kind_t kind;
        const char *phase;
    } cases[] = {
        {4, sound, FSDP_VERDICT_EQUAL, NULL},
        {4 + 0x1p-21f, sound, FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4, sound * (1 + 0x1p-23), FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4 * (1 + 0x1p-18f), sound, FSDP_VERDICT_WRONG, "norm"},
        {(float)sqrt(8), sound, FSDP_VERDICT_WRONG, "norm"},
        {4, 1 / (4 + 2e-6), FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4, 1 / (4 + 8e-6), FSDP_VERDICT_WRONG, "clipped_grad"},
        {4, 0.25 * sqrt(2), FSDP_VERDICT_WRONG, "clipped_grad"},
        {4, 1, FSDP_VERDICT_WRONG, "clipped_grad"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t theirs = clipped("theirs", cases[i].norm, cases[i].coefficient);
        expect(&ours, &theirs, cases[i].kind, cases[i].phase);
    }
}
END_TEST

/* Where the norm is small, the 1e-6 that is added to it is not. */
START_TEST(small_norms)
{
    double sound = 0x1p-12 / (0x1p-10 + 1e-6), without = 0.25;
    for (int wrong = 0; wrong < 2; wrong++) {
        side_t s[2] = {side("ours", 1), side("theirs", 1)};
        for (int k = 0; k < 2; k++) {
            double by = wrong && k == 1 ? without : sound;
            s[k].settings = "\"micro_batches\":1,\"grad_clip\":"
                            "0.000244140625,\"steps\":[{\"step\":1}]";
            side_add_all(&s[k], 1, "grad", "-", 0x1p-11f);
            side_add_all(&s[k], 1, "clipped_grad", "-",
                         (float)(by * 0x1p-11) * (k == 1 ? 1 + 0x1p-23f : 1));
        }
        expect(&s[0], &s[1],
               wrong ? FSDP_VERDICT_WRONG : FSDP_VERDICT_WITHIN_ROUNDING,
               wrong ? "clipped_grad" : NULL);
    }
}
END_TEST

/* The numbers that bounds are made of, beside values from tables; with two
 * degrees of freedom P = 1 - t / sqrt(2 + t^2), nearly 1 / t^2. */
START_TEST(numbers)
{
    const struct {
        double p, freedom, t;
    } student[] = {{0.05, 2, 4.303},
                   {0.05, 10, 2.228},
                   {0.001, 16, 4.015},
                   {0.001, 30, 3.646},
                   {1e-12, 2, 1e6}};
    for (size_t i = 0; i < sizeof student / sizeof *student; i++) {
        double t = verdict_student(student[i].p, student[i].freedom);
        ck_assert_msg(fabs(t - student[i].t) < 2e-3 * student[i].t, "%g", t);
    }
    ck_assert_double_eq(verdict_gamma(3, 0.125), 0.375 / 0.625);
    ck_assert(isinf(verdict_gamma(8, 0.125)));
    /* l = sqrt(2 ln(2e12)) = 7.527 */
    double random = verdict_gamma_random(1e6, 0x1p-24, 1);
    ck_assert(fabs(random - 7.527e3 * 0x1p-24) < 1e-3 * random);
    ck_assert_double_eq(verdict_gamma_random(2, 0x1p-24, 1),
                        verdict_gamma(2, 0x1p-24));
    ck_assert_double_eq(verdict_ulps(FSDP_FP32, 1 + 0x1p-22, 1), 2);
    ck_assert_double_eq(verdict_ulps(FSDP_BF16, 4, 4.03125), 1);
}
END_TEST

/* ---- copies ----------------------------------------------------------------------- */

START_TEST(what_allows_no_rounding)
{
    side_t ours = side("ours", 2), initial = side("theirs", 2);
    side_t stale = side("theirs", 2), copy = side("theirs", 2);
    const float next[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 4.5f};
    side_add_all(&ours, 0, "parameter", "-", 1);
    side_add_all(&initial, 0, "parameter", "-", 1 + 0x1p-23f);
    expect(&ours, &initial, FSDP_VERDICT_WRONG, "parameter");

    side_add(&ours, 1, 0, "gathered_parameter", "0", next);
    side_add(&stale, 0, 0, "parameter", "-", next);
    side_add_all(&stale, 1, "gathered_parameter", "0", 1);
    fsdp_verdict_t *v = NULL;
    ck_assert(judge(&ours, &stale, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_WRONG);
    fsdp_verdict_destroy(&v);

    side_add_all(&copy, 0, "parameter", "-", 1);
    side_add(&copy, 1, 0, "grad", "-", next);
    side_add(&copy, 1, 1, "grad", "-", other);
    side_add(&ours, 1, 0, "grad", "-", next);
    ck_assert(judge(&ours, &copy, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_WRONG);
    ck_assert_int_eq(v->first_wrong->rank, 0);
    ck_assert_int_eq(v->first_wrong->other_rank, 1);
    ck_assert_uint_eq(v->first_wrong->element, 3);
    ck_assert_double_eq(v->first_wrong->other_value, 4.5);
    fsdp_verdict_destroy(&v);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("verdict");
    TCase *tests = tcase_create("verdict");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, bound_of_a_mean);
    tcase_add_test(tests, bound_of_cancelling_terms);
    tcase_add_test(tests, gradient_of_the_step);
    tcase_add_test(tests, norm_and_clipping);
    tcase_add_test(tests, small_norms);
    tcase_add_test(tests, numbers);
    tcase_add_test(tests, what_allows_no_rounding);
    return mck_run(argc, argv, suite);
}
