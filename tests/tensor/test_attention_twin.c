/* Ranks: 1 */
/* The twin of attention is itself checked: its gradient against differences of
 * its forward.
 *
 * With L(x) = sum(weight out) and D(h) = (L(x + h) - L(x - h)) / 2h, the
 * derivative is D(h/2) + c2 h^2/4 + c4 h^4/16 + ...; the two differences
 * D(2h) - D(h) = 3 c2 h^2 + 15 c4 h^4 + ... and D(h) - D(h/2) = (3 c2 h^2 +
 * 15/4 c4 h^4)/4 + ... are together larger than what is cut off.  To this comes
 * the rounding of L, bounded by sum |weight| out_bound, divided by h. */
#include <math.h>
#include <stdlib.h>

#include "mck.h"
#include "tensor/attention_case.h"

enum { BATCH = 2, POSITIONS = 5, HEADS = 2, DEPTH = 3 };

/* L, and the bound of its rounding error. */
static double
loss(const case_t *c, double *error)
{
    const twin_arithmetic_t arithmetic = {0x1p-53, 0x1p-1074, POSITIONS, 0};
    double *out = case_doubles(c->out_numel), *lse = case_doubles(c->lse_numel);
    double *out_bound = case_doubles(c->out_numel);
    double sum = 0, all = 0, n = (double)c->out_numel;
    twin_attention_forward(&c->twin, out, lse);
    twin_attention_forward_bound(&c->twin, &arithmetic, out_bound, lse);
    *error = 0;
    for (size_t i = 0; i < c->out_numel; i++) {
        sum += c->dout_exact[i] * out[i];
        all += fabs(c->dout_exact[i] * out[i]);
        *error += fabs(c->dout_exact[i]) * out_bound[i];
    }
    *error += n * 0x1p-53 / (1 - n * 0x1p-53) * (all + *error);
    free(out_bound);
    free(lse);
    free(out);
    return sum;
}

/* D(h) for element i, and the bound of its rounding error. */
static double
difference(const case_t *c, size_t i, double h, double *error)
{
    double x = c->qkv_exact[i], up_error, down_error;
    c->qkv_exact[i] = x + h; /* exact: x is a multiple of 2^-6, h 2^-11 or so */
    double up = loss(c, &up_error);
    c->qkv_exact[i] = x - h;
    double down = loss(c, &down_error);
    c->qkv_exact[i] = x;
    *error = (up_error + down_error + 0x1p-53 * fabs(up - down)) / (2 * h);
    return (up - down) / (2 * h);
}

static bool
element_agrees(const case_t *c, size_t i, double derivative)
{
    double h = 0x1p-10, rounding = 0, error[3];
    double twice = difference(c, i, 2 * h, &error[0]);
    double once = difference(c, i, h, &error[1]);
    double half = difference(c, i, h / 2, &error[2]);
    for (int n = 0; n < 3; n++)
        rounding += error[n];
    return fabs(derivative - half) <=
           fabs(twice - once) + fabs(once - half) + rounding;
}

START_TEST(gradient_is_the_limit_of_differences)
{
    const double p = _i ? 0.3 : 0;
    case_t c = case_create(FSDP_FP64, BATCH, POSITIONS, HEADS, DEPTH, 2.0, p);
    double *dqkv = case_doubles(c.qkv_numel), largest = 0;
    bool good = true;
    twin_attention_backward(&c.twin, c.dout_exact, dqkv);
    for (size_t i = 0; i < c.qkv_numel; i++) {
        good = good && element_agrees(&c, i, dqkv[i]);
        largest = fmax(largest, fabs(dqkv[i]));
    }
    free(dqkv);
    case_destroy(&c);
    ck_assert(good);
    ck_assert_double_gt(largest, 0.1);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("attention, twin");
    TCase *tcase = tcase_create("gradient");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, gradient_is_the_limit_of_differences, 0, 2);
    return mck_run(argc, argv, suite);
}
