/* Attention with a mistake in it: without one it is the library's own; what each
 * changes is told by who sees whom and by inputs that undo it; gradients are those of
 * differences. */
/* Ranks: 1 */
#include <math.h>
#include <string.h>

#include "fsdp/ops.h"
#include "mck.h"
#include "verify/trace/other_attention.h"

enum {
    B = 2,
    T = 5,
    H = 4,
    G = 2,
    D = 16,
    Q = B * T * H * D,
    K = B * T * G * D
};

/** Queries, keys and values, and what came of them. */
typedef struct case_ {
    double x[Q + 2 * K], out[Q], grad[Q + 2 * K], loss;
    attention_change_t change;
    bool pairs;
} case_t;

static case_t
case_make(void)
{
    case_t c = {.loss = 0};
    for (int i = 0; i < Q + 2 * K; i++)
        c.x[i] = round(sin(i * 1.7 + 0.3) * 256) / 512; /* |x| <= 1/2 */
    return c;
}

static fsdp_tensor_t *
input(fsdp_tape_t *tape, const double *x, size_t width)
{
    size_t shape[3] = {B, T, width};
    fsdp_tensor_t *t = fsdp_tape_new_tensor(tape, FSDP_FP64, 3, shape);
    memcpy(t->data, x, fsdp_tensor_bytes(t));
    t->requires_grad = true;
    return t;
}

/** Where gradients go. */
typedef struct listening {
    fsdp_values_t in;
    double *grad;
} listening_t;

static void
listen(void *context, fsdp_tape_t *tape)
{
    listening_t *l = context;
    double *to = l->grad;
    for (int i = 0; i < l->in.count; i++) {
        const fsdp_tensor_t *g = fsdp_tape_grad(tape, l->in.tensor[i]);
        memcpy(to, g->data, fsdp_tensor_bytes(g));
        to += fsdp_tensor_numel(g);
    }
}

static fsdp_tensor_t *
attend(const case_t *c, fsdp_tape_t *tape, fsdp_values_t in)
{
    fsdp_tensor_t *q = in.tensor[0], *k = in.tensor[1];
    if (c->pairs) {
        q = other_pairs(tape, q, H);
        k = fsdp_scale(tape, other_pairs(tape, k, G), 0.5);
    }
    return other_grouped_attention(tape, q, k, in.tensor[2], H, G, &c->change);
}

/* The loss: half of the mean square of the output and of 1. */
static double
run(case_t *c)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    listening_t l = {.grad = c->grad};
    fsdp_values_t in = {.count = 3,
                        .tensor = {input(tape, c->x, H * D),
                                   input(tape, c->x + Q, G * D),
                                   input(tape, c->x + Q + K, G * D)}};
    l.in = fsdp_tape_after_grads(tape, in, listen, &l);
    fsdp_tensor_t *y = attend(c, tape, l.in);
    memcpy(c->out, y->data, sizeof c->out);
    fsdp_tensor_t *one =
        fsdp_tape_new_tensor(tape, FSDP_FP64, y->ndim, y->shape);
    for (int i = 0; i < Q; i++)
        ((double *)one->data)[i] = 1 + i % 3;
    fsdp_tensor_t *loss = fsdp_mse_loss(tape, y, one);
    c->loss = *(double *)loss->data;
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    return c->loss;
}

/* Fewer than 2^17 roundings, of numbers below 2^4, by which the loss changes at
 * most 2^4 times as much. */
#define ROUNDING (0x1p17 * 0x1p8 * 0x1p-53)

static double
central(case_t *c, int i, double h)
{
    double x = c->x[i];
    c->x[i] = x + h;
    double above = run(c);
    c->x[i] = x - h;
    double below = run(c);
    c->x[i] = x;
    return (above - below) / (2 * h);
}

/* R(h) = (4 D(h) - D(2h)) / 3 lacks about a fifteenth of R(h) - R(2h). */
static void
check_gradient(case_t *c, int i)
{
    double h = 0x1p-6;
    double d1 = central(c, i, h), d2 = central(c, i, 2 * h),
           d4 = central(c, i, 4 * h);
    double r = (4 * d1 - d2) / 3, r2 = (4 * d2 - d4) / 3;
    run(c);
    ck_assert_msg(fabs(c->grad[i] - r) <= fabs(r - r2) + 2 * ROUNDING / h,
                  "element %d: %.17g, by differences %.17g", i, c->grad[i], r);
}

static const attention_change_t changes[] = {
    {0},
    {.everywhere = true},
    {.next = true},
    {.scale = ATTENTION_UNSCALED},
    {.scale = ATTENTION_BY_DEPTH},
    {.scale = ATTENTION_BY_ROOT_OF_CHANNELS},
    {.dealt_keys = true}};

START_TEST(gradients_of_all)
{
    for (size_t k = 0; k < sizeof changes / sizeof *changes; k++)
        for (int pairs = 0; pairs < 2; pairs++) {
            case_t c = case_make();
            c.change = changes[k];
            c.pairs = pairs;
            for (int i = 0; i < Q + 2 * K; i += 17)
                check_gradient(&c, i);
        }
}
END_TEST

/* Sums of at most T + D terms, in another order. */
static void
check_close(const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_double_le(fabs(a[i] - b[i]), ROUNDING);
}

START_TEST(unchanged_it_is_the_librarys)
{
    case_t c = case_make();
    run(&c);
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *y = fsdp_grouped_attention(
        tape, input(tape, c.x, H * D), input(tape, c.x + Q, G * D),
        input(tape, c.x + Q + K, G * D), H, G, 0, 0);
    check_close(c.out, y->data, Q);
    double qkv[3 * Q];
    for (int i = 0; i < 3 * Q; i++)
        qkv[i] = c.x[(i * 5) % (Q + 2 * K)];
    fsdp_tensor_t *x = input(tape, qkv, 3 * H * D);
    check_close(other_attention(tape, x, H, &c.change)->data,
                fsdp_attention(tape, x, H, 0, 0)->data, Q);
    fsdp_tape_destroy(&tape);
}
END_TEST

/* The positions of sample 0 whose output changes with the values of position j. */
static unsigned
seen_by(attention_change_t change, int j)
{
    case_t a = case_make(), b = case_make();
    unsigned who = 0;
    a.change = b.change = change;
    for (int i = 0; i < G * D; i++)
        b.x[Q + K + j * G * D + i] += 1;
    run(&a);
    run(&b);
    for (int i = 0; i < Q; i++)
        if (a.out[i] != b.out[i])
            who |= 1u << i / (H * D);
    return who;
}

START_TEST(who_sees_whom)
{
    for (int j = 0; j < T; j++) {
        unsigned all = (1u << T) - 1, after = all & ~((1u << j) - 1);
        unsigned late = j > 0 ? after | 1u << (j - 1) : after;
        mck_assert(seen_by(changes[0], j) == after);
        mck_assert(seen_by(changes[1], j) == all);
        mck_assert(seen_by(changes[2], j) == late);
        mck_assert(seen_by(changes[6], j) == after);
    }
}
END_TEST

START_TEST(scales_are_those_of_other_queries)
{
    /* sqrt(D) is 4, D is 16, the root of all channels 8 */
    static const double undo[] = {1, 1, 1, 0.25, 4, 2, 1};
    case_t right = case_make();
    run(&right);
    for (int k = 3; k < 6; k++) {
        case_t c = case_make();
        c.change = changes[k];
        run(&c);
        mck_assert(memcmp(c.out, right.out, sizeof c.out) != 0);
        for (int i = 0; i < Q; i++)
            c.x[i] *= undo[k];
        run(&c);
        mck_assert(memcmp(c.out, right.out, sizeof c.out) == 0);
    }
}
END_TEST

/* Dealt, head 1 reads key head 1; else, key head 0: the same if those two are
 * exchanged. */
START_TEST(key_heads_in_turn)
{
    case_t right = case_make(), dealt = case_make();
    dealt.change.dealt_keys = true;
    for (int i = 0; i < 2 * K; i++)
        right.x[Q + i] = dealt.x[Q + (i / D ^ 1) * D + i % D];
    run(&right);
    run(&dealt);
    for (int i = 0; i < Q; i++)
        mck_assert((right.out[i] == dealt.out[i]) ==
                   (i / D % H == 1 || i / D % H == 2));
}
END_TEST

START_TEST(neighbours_become_halves)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    case_t c = case_make();
    const double *y = other_pairs(tape, input(tape, c.x, H * D), H)->data;
    for (int i = 0; i < Q; i++)
        mck_assert(y[i] ==
                   c.x[i - i % D + 2 * (i % (D / 2)) + i % D / (D / 2)]);
    fsdp_tape_destroy(&tape);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("other_attention");
    TCase *tcase = tcase_create("other_attention");
    tcase_add_test(tcase, gradients_of_all);
    tcase_add_test(tcase, unchanged_it_is_the_librarys);
    tcase_add_test(tcase, who_sees_whom);
    tcase_add_test(tcase, scales_are_those_of_other_queries);
    tcase_add_test(tcase, key_heads_in_turn);
    tcase_add_test(tcase, neighbours_become_halves);
    suite_add_tcase(suite, tcase);
    return mck_run(argc, argv, suite);
}
