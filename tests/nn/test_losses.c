/* Ranks: 1 */
/* The loss over many rows, a chunk at a time, and over none. */
#include "mck.h"

#include "nn/nn_case.h"
#include "twin/numbers.h"

static fsdp_tape_t *
new_tape(void)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    return fsdp_tape_create(&options);
}

enum { ROWS = 600, CHANNELS = 8, CLASSES = 11 };

/* linear_cross_entropy works in chunks of rows; linear and cross_entropy do
 * not.  A logit is a sum of 8 products below 1, its error at most
 * gamma_8 8 < 2^-46 in both; a gradient is one of 600 terms below 1/600 times
 * numbers below 1, whose relative errors are 2^-45 (of exp) and 610 roundings. */
START_TEST(head_in_chunks)
{
    const double bound = 2 * (0x1p-45 + 610 * 0x1p-53);
    static double x[ROWS * CHANNELS], w[CLASSES * CHANNELS];
    static double dx[2][ROWS * CHANNELS];
    static int32_t target[ROWS];
    for (size_t i = 0; i < ROWS * CHANNELS; i++)
        x[i] = twin_random(1, i);
    for (size_t i = 0; i < CLASSES * CHANNELS; i++)
        w[i] = twin_random(2, i);
    for (size_t i = 0; i < ROWS; i++)
        target[i] = i % 7 == 3 ? -100 : (int32_t)(i * 5 % CLASSES);
    double loss[2], dw[2][CLASSES * CHANNELS];
    for (int chunked = 0; chunked < 2; chunked++) {
        fsdp_parameter_t *p = fsdp_parameter_create(
            "w", FSDP_FP64, 2, (size_t[]){CLASSES, CHANNELS}, FSDP_INIT_ZEROS,
            0, 0);
        nn_set_parameter(p, w);
        fsdp_tape_t *tape = new_tape();
        fsdp_tensor_t *in = nn_probe(
            tape, nn_tensor(tape, FSDP_FP64, 2, (size_t[]){ROWS, CHANNELS}, x),
            dx[chunked]);
        fsdp_tensor_t *t = nn_int32(tape, 1, (size_t[]){ROWS}, target);
        fsdp_tensor_t *l =
            chunked ? fsdp_linear_cross_entropy(tape, in, p, t, -100)
                    : fsdp_cross_entropy(tape, fsdp_linear(tape, in, p, NULL),
                                         t, -100);
        loss[chunked] = fsdp_tensor_get(l, 0);
        fsdp_backward(tape, l);
        fsdp_tape_destroy(&tape);
        memcpy(dw[chunked], p->grad->data, sizeof dw[chunked]);
        fsdp_parameter_destroy(&p);
    }
    /* A loss is below log(11) + 2 * 8; the sum of 600 is divided by 514. */
    ck_assert_double_le(fabs(loss[0] - loss[1]), 20 * bound);
    for (size_t i = 0; i < ROWS * CHANNELS; i++)
        ck_assert_double_le(fabs(dx[0][i] - dx[1][i]), bound * CLASSES / 514);
    for (size_t i = 0; i < CLASSES * CHANNELS; i++)
        ck_assert_double_le(fabs(dw[0][i] - dw[1][i]), bound * ROWS / 514);
}
END_TEST

/* All targets ignored: NaN, as in PyTorch, and gradients of 0. */
START_TEST(all_targets_ignored)
{
    static const int32_t ignored[3] = {-100, -100, -100};
    static const double half[12] = {0.5, 0.25, 1, 2};
    fsdp_parameter_t *w = fsdp_parameter_create(
        "w", FSDP_FP64, 2, (size_t[]){5, 4}, FSDP_INIT_ONES, 0, 0);
    for (int chunked = 0; chunked < 2; chunked++) {
        fsdp_tape_t *tape = new_tape();
        fsdp_tensor_t *x =
            nn_tensor(tape, FSDP_FP64, 2, (size_t[]){3, 4}, half);
        fsdp_tensor_t *t = nn_int32(tape, 1, (size_t[]){3}, ignored);
        fsdp_tensor_t *l =
            chunked ? fsdp_linear_cross_entropy(tape, x, w, t, -100)
                    : fsdp_cross_entropy(tape, fsdp_linear(tape, x, w, NULL), t,
                                         -100);
        ck_assert(isnan(fsdp_tensor_get(l, 0)));
        fsdp_backward(tape, l);
        fsdp_tape_destroy(&tape);
        for (size_t i = 0; i < 5 * 4; i++)
            ck_assert(fsdp_tensor_get(w->grad, i) == 0);
        fsdp_parameter_zero_grad(w);
    }
    fsdp_parameter_destroy(&w);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("losses");
    TCase *tcase = tcase_create("losses");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, head_in_chunks);
    tcase_add_test(tcase, all_targets_ignored);
    return mck_run(argc, argv, suite);
}
