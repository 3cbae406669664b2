/* Ranks: 1 */
/* Attention against its naive float64 twin, within derived bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mck.h"
#include "tensor/attention_case.h"

/* |x[i] - expected[i]| <= bound[i] for all i; NaN is not. */
static bool
within(const case_t *c, const char *what, const void *x, const double *expected,
       const double *bound, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value = case_get(c, x, i);
        if (fabs(value - expected[i]) <= bound[i])
            continue;
        fprintf(stderr,
                "%s[%zu] is %.9g, not %.9g +- %.3g: %zu bytes, T %zu C %zu "
                "H %zu p %g\n",
                what, i, value, expected[i], bound[i], c->size,
                c->shape.positions, c->shape.channels, c->shape.heads,
                c->key.p);
        return false;
    }
    return true;
}

/* The arithmetic of the kernel, and of the twin, which knows no tiles. */
static twin_arithmetic_t
kernel_arithmetic(const case_t *c)
{
    return c->dtype == FSDP_FP32
               ? (twin_arithmetic_t){0x1p-24, 0x1p-149, 64, 0}
               : (twin_arithmetic_t){0x1p-53, 0x1p-1074, 32, 0};
}

static twin_arithmetic_t
twin_arithmetic(const case_t *c)
{
    return (twin_arithmetic_t){0x1p-53, 0x1p-1074, c->shape.positions, 0};
}

static void
add_to(double *x, const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* Expected values and how far from them a kernel's can be: its own error and
 * the twin's. */
typedef struct expected {
    double *out, *lse, *dqkv, *out_bound, *lse_bound, *dqkv_bound;
    double *out_twin, *lse_twin, *dqkv_twin; /* the twin's share */
} expected_t;

static void
expect_forward(const case_t *c, expected_t *e)
{
    twin_arithmetic_t kernel = kernel_arithmetic(c), twin = twin_arithmetic(c);
    twin_attention_forward(&c->twin, e->out, e->lse);
    twin_attention_forward_bound(&c->twin, &kernel, e->out_bound, e->lse_bound);
    twin_attention_forward_bound(&c->twin, &twin, e->out_twin, e->lse_twin);
    add_to(e->out_bound, e->out_twin, c->out_numel);
    add_to(e->lse_bound, e->lse_twin, c->lse_numel);
}

/* The kernel is given the twin's out and lse, rounded to its type: so the test
 * of the backward does not depend on the forward. */
static void
expect_backward(const case_t *c, expected_t *e)
{
    twin_arithmetic_t kernel = kernel_arithmetic(c), twin = twin_arithmetic(c);
    double *out_error = case_doubles(c->out_numel);
    double *lse_error = case_doubles(c->lse_numel);
    for (size_t i = 0; i < c->out_numel; i++)
        out_error[i] =
            e->out_twin[i] + kernel.unit * fabs(e->out[i]) + kernel.tiny;
    for (size_t i = 0; i < c->lse_numel; i++)
        lse_error[i] =
            e->lse_twin[i] + kernel.unit * fabs(e->lse[i]) + kernel.tiny;

    twin_attention_backward(&c->twin, c->dout_exact, e->dqkv);
    twin_attention_backward_bound(&c->twin, &kernel, c->dout_exact, out_error,
                                  lse_error, e->dqkv_bound);
    twin_attention_backward_bound(&c->twin, &twin, c->dout_exact, e->out_twin,
                                  e->lse_twin, e->dqkv_twin);
    add_to(e->dqkv_bound, e->dqkv_twin, c->qkv_numel);
    free(lse_error);
    free(out_error);
}

static expected_t
expect(const case_t *c)
{
    expected_t e = {
        case_doubles(c->out_numel), case_doubles(c->lse_numel),
        case_doubles(c->qkv_numel), case_doubles(c->out_numel),
        case_doubles(c->lse_numel), case_doubles(c->qkv_numel),
        case_doubles(c->out_numel), case_doubles(c->lse_numel),
        case_doubles(c->qkv_numel),
    };
    expect_forward(c, &e);
    expect_backward(c, &e);
    return e;
}

static void
expected_free(expected_t *e)
{
    double *all[] = {e->out,       e->lse,       e->dqkv,
                     e->out_bound, e->lse_bound, e->dqkv_bound,
                     e->out_twin,  e->lse_twin,  e->dqkv_twin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static bool
agrees(case_t *c)
{
    expected_t e = expect(c);
    case_forward(c);
    bool good = within(c, "out", c->out, e.out, e.out_bound, c->out_numel) &&
                within(c, "lse", c->lse, e.lse, e.lse_bound, c->lse_numel);
    case_put(c, c->out, e.out, c->out_numel);
    case_put(c, c->lse, e.lse, c->lse_numel);
    case_backward(c);
    good =
        good && within(c, "dqkv", c->dqkv, e.dqkv, e.dqkv_bound, c->qkv_numel);
    expected_free(&e);
    return good;
}

/* All shapes at magnitude 2: scores of some 4 sqrt(D) / 3 in size. */
static void
check_shapes(fsdp_dtype_t dtype, double p)
{
    const size_t positions[] = {1, 2, 13, 64, 65, 129};
    const size_t depths[] = {1, 5, 16, 64}, heads[] = {1, 3};
    for (size_t i = 0; i < 6 * 4 * 2; i++) {
        size_t h = heads[i % 2], d = depths[i / 2 % 4], t = positions[i / 8];
        case_t c = case_create(dtype, 2, t, h, d, 2.0, p);
        bool good = agrees(&c);
        case_destroy(&c);
        ck_assert_msg(good, "T %zu D %zu H %zu", t, d, h);
    }
}

START_TEST(agrees_with_twin)
{
    check_shapes(FSDP_FP32, 0);
    check_shapes(FSDP_FP64, 0);
}
END_TEST

START_TEST(agrees_with_twin_under_dropout)
{
    check_shapes(FSDP_FP32, 0.3);
    check_shapes(FSDP_FP64, 0.3);
}
END_TEST

/* Scores up to 128 * 128 sqrt(D): probabilities are 0 or 1 nearly always, and
 * exp() of a score by itself would be infinite. */
START_TEST(large_scores)
{
    for (int i = 0; i < 8; i++) {
        case_t c = case_create(i % 2 ? FSDP_FP64 : FSDP_FP32, 1, 129, 2,
                               i / 2 % 2 ? 16 : 1, 128.0, i / 4 ? 0.3 : 0);
        bool good = agrees(&c);
        double largest = 0;
        for (size_t l = 0; l < c.lse_numel; l++)
            largest = fmax(largest, fabs(case_get(&c, c.lse, l)));
        case_destroy(&c);
        ck_assert(good);
        ck_assert_double_gt(largest, 1e4);
    }
}
END_TEST

/* With v all ones an output is the sum of its probabilities. */
START_TEST(probabilities_sum_to_one)
{
    for (int i = 0; i < 2; i++) {
        case_t c = case_create(i ? FSDP_FP64 : FSDP_FP32, 2, 129, 3, 5, 4.0, 0);
        case_set_values(&c, 1);
        double *ones = case_doubles(c.out_numel);
        double *bound = case_doubles(c.out_numel);
        double *lse_bound = case_doubles(c.lse_numel);
        twin_arithmetic_t kernel = kernel_arithmetic(&c);
        for (size_t n = 0; n < c.out_numel; n++)
            ones[n] = 1;
        twin_attention_forward_bound(&c.twin, &kernel, bound, lse_bound);
        case_forward(&c);
        bool good = within(&c, "sum", c.out, ones, bound, c.out_numel);
        free(lse_bound);
        free(bound);
        free(ones);
        case_destroy(&c);
        ck_assert(good);
    }
}
END_TEST

/* Everything dropped: zeros, not 0 * infinity. */
START_TEST(all_dropped)
{
    case_t c = case_create(FSDP_FP32, 2, 70, 2, 5, 2.0, 1);
    bool zero = true;
    case_forward(&c);
    case_backward(&c);
    for (size_t i = 0; i < c.out_numel; i++)
        zero = zero && case_get(&c, c.out, i) == 0;
    for (size_t i = 0; i < c.qkv_numel; i++)
        zero = zero && case_get(&c, c.dqkv, i) == 0;
    case_destroy(&c);
    ck_assert(zero);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("attention");
    TCase *tcase = tcase_create("twin");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, agrees_with_twin);
    tcase_add_test(tcase, agrees_with_twin_under_dropout);
    tcase_add_test(tcase, large_scores);
    tcase_add_test(tcase, probabilities_sum_to_one);
    tcase_add_test(tcase, all_dropped);
    return mck_run(argc, argv, suite);
}
