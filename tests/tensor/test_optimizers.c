/* Ranks: 1 */
/* SGD and AdamW: bit for bit PyTorch's sequence of rounded operations, and
 * within its bound of the textbook's formula in float64. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/optimizers.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
static const size_t sizes[] = {0, 1, 3, 5, 17, 257, 16385, 33001};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes, STEPS = 5 };

/* Gradients of all sizes, and some exact zeros. */
static numbers_t
gradient(fsdp_dtype_t dtype, size_t n, int step)
{
    numbers_t g = numbers_random(dtype, n, 10 + (uint32_t)step, 1);
    for (size_t i = 0; i < n; i++)
        numbers_set(g, i,
                    i % 7 == 3 ? 0 : ldexp(numbers_get(g, i), -(int)(i % 40)));
    return g;
}

/* -- SGD -- */

static void
sgd_step(twin_sgd_t o, numbers_t param, numbers_t grad, numbers_t buffer,
         bool first)
{
    fsdp_kernels(param.dtype)
        ->sgd(param.data, grad.data, o.momentum != 0 ? buffer.data : NULL,
              param.n, o.lr, o.momentum, o.dampening, o.weight_decay,
              o.nesterov, first);
}

static void
check_sgd(fsdp_dtype_t dtype, size_t n, twin_sgd_t o)
{
    numbers_t param = numbers_random(dtype, n, 1, 1);
    numbers_t buffer = numbers_make(dtype, n);
    numbers_t want_param = numbers_copy(param);
    numbers_t want_buffer = numbers_copy(buffer);
    for (int step = 1; step <= STEPS; step++) {
        numbers_t grad = gradient(dtype, n, step);
        torch_sgd(o, want_param, grad, want_buffer, step == 1);
        sgd_step(o, param, grad, buffer, step == 1);
        ck_assert(numbers_same_bits(param, want_param));
        ck_assert(numbers_same_bits(buffer, want_buffer));
        ck_assert(numbers_guarded(param) && numbers_guarded(buffer));
        numbers_free(grad);
    }
    numbers_t all[] = {param, buffer, want_param, want_buffer};
    for (int i = 0; i < 4; i++)
        numbers_free(all[i]);
}

START_TEST(sgd)
{
    static const twin_sgd_t options[] = {
        {.lr = 0.1},
        {.lr = 0.01, .weight_decay = 0.1},
        {.lr = 0.03, .momentum = 0.9},
        {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
        {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.02, .nesterov = true},
    };
    for (size_t o = 0; o < sizeof options / sizeof *options; o++)
        for (size_t s = 0; s < NUM_SIZES; s++)
            for (int t = 0; t < 2; t++)
                check_sgd(dtypes[t], sizes[s], options[o]);
}
END_TEST

/* Numbers that can be followed by hand: lr 1/2, momentum 1/2, decay 1/4.
 *      p0 = 4, g = 1: d = 1 + 4/4 = 2, b = 2, p1 = 4 - 2/2 = 3
 *             g = 1: d = 1 + 3/4,      b = 1 + 7/4, p2 = 3 - 11/8 = 13/8
 * with nesterov: p1 = 4 - (2 + 1)/2 = 5/2 */
START_TEST(sgd_by_hand)
{
    for (int t = 0; t < 2; t++) {
        twin_sgd_t o = {.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25};
        numbers_t p = numbers_make(dtypes[t], 1), b = numbers_copy(p);
        numbers_t g = numbers_copy(p);
        numbers_set(p, 0, 4);
        numbers_set(g, 0, 1);
        sgd_step(o, p, g, b, true);
        ck_assert(numbers_get(p, 0) == 3 && numbers_get(b, 0) == 2);
        sgd_step(o, p, g, b, false);
        ck_assert(numbers_get(p, 0) == 1.625 && numbers_get(b, 0) == 2.75);
        o.nesterov = true;
        numbers_set(p, 0, 4);
        sgd_step(o, p, g, b, true);
        ck_assert(numbers_get(p, 0) == 2.5 && numbers_get(b, 0) == 2);
        numbers_free(p);
        numbers_free(b);
        numbers_free(g);
    }
}
END_TEST

/* -- AdamW -- */

static const twin_adamw_t adamw_options[] = {
    {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.lr = 1e-2, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-5, .weight_decay = 0.01},
    {.lr = 1e-2, .beta1 = 0.3, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.01},
    {.lr = 1e-2, .beta1 = 0, .beta2 = 0.99, .eps = 1e-6},
};
enum { NUM_ADAMW = sizeof adamw_options / sizeof *adamw_options };

/* param, exp_avg, exp_avg_sq */
static void
adamw_step(twin_adamw_t o, const numbers_t state[3], numbers_t grad, int step)
{
    fsdp_kernels(grad.dtype)
        ->adamw(state[0].data, grad.data, state[1].data, state[2].data, grad.n,
                o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, step);
}

static void
make_state(fsdp_dtype_t dtype, size_t n, numbers_t state[3])
{
    for (int i = 0; i < 3; i++)
        state[i] = numbers_random(dtype, n, 1, i == 0);
    for (size_t i = 0; i < n; i++) { /* +0, not -0 */
        numbers_set(state[1], i, 0);
        numbers_set(state[2], i, 0);
    }
}

static void
check_adamw(fsdp_dtype_t dtype, size_t n, twin_adamw_t o)
{
    numbers_t state[3], want[3];
    make_state(dtype, n, state);
    make_state(dtype, n, want);
    for (int step = 1; step <= STEPS; step++) {
        numbers_t grad = gradient(dtype, n, step);
        torch_adamw(o, want[0], grad, want[1], want[2], step);
        adamw_step(o, state, grad, step);
        for (int i = 0; i < 3; i++)
            ck_assert_msg(numbers_same_bits(state[i], want[i]) &&
                              numbers_guarded(state[i]),
                          "state %d, beta1 %g", i, o.beta1);
        numbers_free(grad);
    }
    for (int i = 0; i < 3; i++) {
        numbers_free(state[i]);
        numbers_free(want[i]);
    }
}

START_TEST(adamw)
{
    for (size_t o = 0; o < NUM_ADAMW; o++)
        for (size_t s = 0; s < NUM_SIZES; s++)
            for (int t = 0; t < 2; t++)
                check_adamw(dtypes[t], sizes[s], adamw_options[o]);
}
END_TEST

static void
check_adamw_bound(fsdp_dtype_t dtype, twin_adamw_t o)
{
    enum { N = 100 };
    numbers_t state[3];
    bounded_t want[3][N];
    make_state(dtype, N, state);
    for (int s = 0; s < 3; s++)
        for (size_t i = 0; i < N; i++)
            want[s][i] = b_exact(numbers_get(state[s], i));
    for (int step = 1; step <= STEPS; step++) {
        numbers_t grad = numbers_random(dtype, N, 20 + (uint32_t)step, 1);
        for (size_t i = 0; i < N; i++)
            twin_adamw_step(o, numbers_get(grad, i), step, &want[0][i],
                            &want[1][i], &want[2][i]);
        adamw_step(o, state, grad, step);
        numbers_free(grad);
        ck_assert(numbers_agree("param", state[0], want[0]) &&
                  numbers_agree("exp_avg", state[1], want[1]) &&
                  numbers_agree("exp_avg_sq", state[2], want[2]));
    }
    for (int s = 0; s < 3; s++)
        numbers_free(state[s]);
}

START_TEST(adamw_by_the_book)
{
    for (size_t o = 0; o < NUM_ADAMW; o++)
        for (int t = 0; t < 2; t++) {
            twin_begin(dtypes[t]);
            check_adamw_bound(dtypes[t], adamw_options[o]);
        }
}
END_TEST

/* A constant gradient g moves a parameter by lr g / (|g| + eps) each step, in
 * exact arithmetic: with g = 1, eps = 0 and lr = 2^-10 by lr.  Rounding of the
 * two averages: each is off by at most gamma_(6 t) of itself after t steps. */
START_TEST(adamw_of_a_constant_gradient)
{
    for (int t = 0; t < 2; t++) {
        twin_adamw_t o = {.lr = 0x1p-10, .beta1 = 0.9, .beta2 = 0.999};
        numbers_t state[3], g = numbers_make(dtypes[t], 1);
        make_state(dtypes[t], 1, state);
        numbers_set(state[0], 0, 1);
        numbers_set(g, 0, 1);
        twin_begin(dtypes[t]);
        for (int step = 1; step <= 50; step++) {
            adamw_step(o, state, g, step);
            bounded_t want = {1 - step * 0x1p-10, 0};
            double one_step = twin_gamma(12 * step + 4) * 0x1p-10;
            want.e = step * (one_step + twin_gamma(1));
            ck_assert(twin_is(numbers_get(state[0], 0), want));
        }
        for (int i = 0; i < 3; i++)
            numbers_free(state[i]);
        numbers_free(g);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("optimizers");
    TCase *tcase = tcase_create("optimizers");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, sgd);
    tcase_add_test(tcase, sgd_by_hand);
    tcase_add_test(tcase, adamw);
    tcase_add_test(tcase, adamw_by_the_book);
    tcase_add_test(tcase, adamw_of_a_constant_gradient);
    return mck_run(argc, argv, suite);
}
