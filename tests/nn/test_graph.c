/* Ranks: 1 */
/* Modules used twice, parameters that are shared, frozen or not used. */
#include "mck.h"

#include "fsdp/layers.h"
#include "nn/nn_case.h"
#include "nn/small_gpt2.h"
#include "twin/numbers.h"

enum { N = 3, C = 4 };

static const size_t shape[2] = {N, C};
static double numbers[4][N * C];

static void
fill_numbers(void)
{
    for (uint32_t k = 0; k < 4; k++)
        for (size_t i = 0; i < N * C; i++)
            numbers[k][i] = twin_random(k, i);
}

static fsdp_tape_t *
training_tape(void)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    return fsdp_tape_create(&options);
}

static fsdp_parameter_t *
square_weight(const char *name, uint32_t seed)
{
    size_t square[2] = {C, C};
    fsdp_parameter_t *p = fsdp_parameter_create(name, FSDP_FP64, 2, square,
                                                FSDP_INIT_ZEROS, 0, 0);
    double value[C * C];
    for (size_t i = 0; i < C * C; i++)
        value[i] = twin_random(seed, i);
    nn_set_parameter(p, value);
    return p;
}

/* dw[o,i] of y = x w^T is the sum over rows of dy[n,o] x[n,i]. */
static double
weight_grad(const double *dy, const double *x, size_t o, size_t i)
{
    double sum = 0;
    for (size_t n = 0; n < N; n++)
        sum += dy[n * C + o] * x[n * C + i];
    return sum;
}

/* gamma_k of a sum of 2 N products of numbers below 1, added twice more. */
static const double two_uses_bound = 2 * N * (2 * N + 2) * 0x1p-53 * 1.01;

/* ---- several uses ------------------------------------------------------- */

/* One module on two inputs: the gradients of both uses are added. */
START_TEST(module_used_twice)
{
    fill_numbers();
    fsdp_module_t *m = fsdp_linear_create("m", C, C, false, FSDP_FP64, 3);
    fsdp_tape_t *tape = training_tape();
    fsdp_tensor_t *a = nn_tensor(tape, FSDP_FP64, 2, shape, numbers[0]);
    fsdp_tensor_t *b = nn_tensor(tape, FSDP_FP64, 2, shape, numbers[1]);
    fsdp_tensor_t *ya = fsdp_module_call1(m, tape, a);
    fsdp_tensor_t *yb = fsdp_module_call1(m, tape, b);
    fsdp_tensor_t *loss = fsdp_add(tape, nn_weighted_sum(tape, ya, numbers[2]),
                                   nn_weighted_sum(tape, yb, numbers[3]));
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);

    const fsdp_tensor_t *grad = m->parameter[0]->grad;
    ck_assert_ptr_nonnull(grad);
    for (size_t o = 0; o < C; o++)
        for (size_t i = 0; i < C; i++)
            ck_assert_double_le(
                fabs(fsdp_tensor_get(grad, o * C + i) -
                     (weight_grad(numbers[2], numbers[0], o, i) +
                      weight_grad(numbers[3], numbers[1], o, i))),
                two_uses_bound);
    ck_assert_int_eq(m->parameter[0]->awaited_uses, 0);
    ck_assert_ptr_null(m->parameter[0]->incoming);
    fsdp_module_destroy(&m);
}
END_TEST

/* Two backwards without zero_grad() between them add up: twice the same bits. */
START_TEST(gradients_accumulate)
{
    fill_numbers();
    fsdp_parameter_t *w = square_weight("w", 9);
    double once[C * C];
    for (int pass = 0; pass < 2; pass++) {
        fsdp_tape_t *tape = training_tape();
        fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, shape, numbers[0]);
        fsdp_tensor_t *y = fsdp_linear(tape, x, w, NULL);
        fsdp_backward(tape, nn_weighted_sum(tape, y, numbers[1]));
        fsdp_tape_destroy(&tape);
        for (size_t i = 0; i < C * C; i++) {
            double got = fsdp_tensor_get(w->grad, i);
            ck_assert(got == (pass == 0 ? got : 2 * once[i]));
            once[i] = got;
        }
    }
    fsdp_parameter_zero_grad(w);
    ck_assert_ptr_null(w->grad);
    fsdp_parameter_destroy(&w);
}
END_TEST

/* Copies what gpt2 has into the other, tied or not, where names agree. */
static void
copy_parameters(fsdp_module_t *from, fsdp_module_t *to)
{
    fsdp_parameter_t *p[64];
    size_t count = fsdp_module_parameters(to, p, 64);
    for (size_t k = 0; k < count; k++) {
        const char *name = p[k]->name;
        if (strcmp(name, "lm_head.weight") == 0)
            name = "transformer.wte.weight";
        nn_set_parameter(
            p[k], fsdp_parameter_data(fsdp_module_find_parameter(from, name)));
    }
}

/* With equal numbers, the tied weight's gradient is the sum of the two of the
 * untied model, head first: one addition, so the same bits. */
START_TEST(tied_head)
{
    fsdp_module_t *tied = small_gpt2(true, 0), *free_ = small_gpt2(false, 0);
    copy_parameters(tied, free_);
    fsdp_tape_options_t options = fsdp_tape_options_default();
    ck_assert(gpt2_loss(tied, &options) == gpt2_loss(free_, &options));
    fsdp_parameter_t *both =
        fsdp_module_find_parameter(tied, "transformer.wte.weight");
    fsdp_parameter_t *wte =
        fsdp_module_find_parameter(free_, "transformer.wte.weight");
    fsdp_parameter_t *head =
        fsdp_module_find_parameter(free_, "lm_head.weight");
    ck_assert_ptr_null(fsdp_module_find_parameter(tied, "lm_head.weight"));
    for (size_t i = 0; i < fsdp_parameter_numel(both); i++)
        ck_assert(fsdp_tensor_get(both->grad, i) ==
                  fsdp_tensor_get(wte->grad, i) +
                      fsdp_tensor_get(head->grad, i));
    fsdp_module_destroy(&tied);
    fsdp_module_destroy(&free_);
}
END_TEST

/* ---- frozen and unused -------------------------------------------------- */

/* Freezing one parameter takes its gradient away and changes no other's bits. */
START_TEST(frozen_parameters)
{
    fsdp_module_t *all = small_gpt2(true, 0);
    fsdp_tape_options_t options = fsdp_tape_options_default();
    gpt2_loss(all, &options);
    fsdp_parameter_t *p[64], *q[64];
    size_t count = fsdp_module_parameters(all, p, 64);
    for (size_t frozen = 0; frozen < count; frozen++) {
        fsdp_module_t *m = small_gpt2(true, 0);
        fsdp_module_parameters(m, q, 64);
        q[frozen]->requires_grad = false;
        gpt2_loss(m, &options);
        for (size_t k = 0; k < count; k++) {
            if (k == frozen)
                ck_assert_msg(q[k]->grad == NULL, "%s", q[k]->name);
            else
                ck_assert_msg(memcmp(q[k]->grad->data, p[k]->grad->data,
                                     fsdp_tensor_bytes(p[k]->grad)) == 0,
                              "%s with %s frozen", q[k]->name, q[frozen]->name);
        }
        fsdp_module_destroy(&m);
    }
    fsdp_module_destroy(&all);
}
END_TEST

/* With everything frozen nothing is recorded. */
START_TEST(all_frozen)
{
    fsdp_module_t *m = small_gpt2(true, 0);
    fsdp_module_set_requires_grad(m, false);
    fsdp_tape_t *tape = training_tape();
    fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){2, 5}, tokens);
    fsdp_tensor_t *y = nn_int32(tape, 2, (size_t[]){2, 5}, targets);
    ck_assert(!fsdp_gpt2_loss(tape, m, x, y)->requires_grad);
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&m);
}
END_TEST

/* Neither what is never run nor what the loss does not depend on gets one. */
START_TEST(unused_parameters)
{
    fill_numbers();
    fsdp_parameter_t *used = square_weight("used", 1);
    fsdp_parameter_t *dropped = square_weight("dropped", 2);
    fsdp_parameter_t *never = square_weight("never", 3);
    fsdp_tape_t *tape = training_tape();
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, shape, numbers[0]);
    fsdp_tensor_t *y = fsdp_linear(tape, x, used, NULL);
    fsdp_linear(tape, y, dropped, NULL);
    fsdp_backward(tape, nn_weighted_sum(tape, y, numbers[1]));
    fsdp_tape_destroy(&tape);
    ck_assert_ptr_nonnull(used->grad);
    ck_assert_ptr_null(dropped->grad);
    ck_assert_ptr_null(never->grad);
    fsdp_parameter_destroy(&used);
    fsdp_parameter_destroy(&dropped);
    fsdp_parameter_destroy(&never);
}
END_TEST

/* no_grad() changes no value. */
START_TEST(no_gradients_if_disabled)
{
    fsdp_module_t *m = small_gpt2(true, 0);
    fsdp_tape_options_t off = {.training = true};
    fsdp_tape_options_t on = fsdp_tape_options_default();
    ck_assert(gpt2_loss(m, &off) == gpt2_loss(m, &on));
    fsdp_module_destroy(&m);
}
END_TEST

/* The logits of a model are the head's, of the last position of each sample; a
 * logit is a sum of 8 products: gamma_8 times the sum of their sizes, on both
 * sides. */
START_TEST(logits_of_the_last_position)
{
    fsdp_module_t *m = small_gpt2(false, 0);
    fsdp_tape_t *tape = training_tape();
    fsdp_tensor_t *index = nn_int32(tape, 2, (size_t[]){2, 5}, tokens);
    fsdp_tensor_t *logits = fsdp_gpt2_logits(tape, m, index);
    fsdp_tensor_t *h =
        fsdp_module_call1(fsdp_module_find(m, "transformer"), tape, index);
    const double *w =
        fsdp_parameter_data(fsdp_module_find_parameter(m, "lm_head.weight"));
    ck_assert_int_eq(logits->ndim, 2);
    ck_assert(logits->shape[0] == 2 && logits->shape[1] == 7);
    for (size_t b = 0; b < 2; b++)
        for (size_t v = 0; v < 7; v++) {
            double sum = 0, size = 0;
            for (size_t c = 0; c < 8; c++) {
                double term =
                    fsdp_tensor_get(h, (b * 5 + 4) * 8 + c) * w[v * 8 + c];
                sum += term;
                size += fabs(term);
            }
            ck_assert_double_le(fabs(fsdp_tensor_get(logits, b * 7 + v) - sum),
                                2 * 8 * 0x1.01p-53 * size);
        }
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&m);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("graph");
    TCase *tcase = tcase_create("uses");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, module_used_twice);
    tcase_add_test(tcase, gradients_accumulate);
    tcase_add_test(tcase, tied_head);
    tcase_add_test(tcase, frozen_parameters);
    tcase_add_test(tcase, all_frozen);
    tcase_add_test(tcase, logits_of_the_last_position);
    tcase_add_test(tcase, unused_parameters);
    tcase_add_test(tcase, no_gradients_if_disabled);
    return mck_run(argc, argv, suite);
}
