/* Ranks: 1 */
/* One process in the place of T ranks: sums cut into T terms against their
 * definition, within bounds, and gradients against finite differences. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/ops.h"
#include "mck.h"
#include "nn/differences.h"
#include "nn/nn_case.h"
#include "nn/ops_parallel.h"
#include "nn/parallel_case.h"
#include "twin/cross_entropy.h"

/* ---- products ------------------------------------------------------------ */

enum { ROWS = 4, OTHER = 6, MOST_TERMS = 180 };

typedef struct product_case {
    fsdp_dtype_t dtype;
    bool out_in, inputs;
    fsdp_parts_t parts;
    size_t in, out;
} product_case_t;

static double x_value[ROWS * MOST_TERMS], dy_value[ROWS * MOST_TERMS];
static double w_value[OTHER * MOST_TERMS];

static double
weight_at(const product_case_t *c, size_t o, size_t i)
{
    return w_value[c->out_in ? o * c->in + i : i * c->out + o];
}

/* Of the sum that is cut: y[n][o], or dx[n][i]; and the sum of magnitudes. */
static double
cut_sum(const product_case_t *c, size_t n, size_t m, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (size_t k = 0; k < (c->inputs ? c->in : c->out); k++) {
        double term = c->inputs ? x_value[n * c->in + k] * weight_at(c, m, k)
                                : dy_value[n * c->out + k] * weight_at(c, k, m);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

static void
run_product(const product_case_t *c, bool cut, double *result)
{
    size_t shape[2] = {c->out_in ? c->out : c->in, c->out_in ? c->in : c->out};
    fsdp_parameter_t *w =
        fsdp_parameter_create("w", c->dtype, 2, shape, FSDP_INIT_ZEROS, 0, 0);
    fsdp_parameter_t *table = fsdp_parameter_create(
        "x", c->dtype, 2, (size_t[]){ROWS, c->in}, FSDP_INIT_ZEROS, 0, 0);
    nn_set_parameter(w, w_value);
    nn_set_parameter(table, x_value);
    static const int32_t any[ROWS];
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = fsdp_position_embedding(
        tape, nn_int32(tape, 2, (size_t[]){1, ROWS}, any), table);
    fsdp_product_cut_t how = {c->parts, c->inputs};
    fsdp_tensor_t *y =
        fsdp_op_product(tape, x, w, NULL, c->out_in, cut ? &how : NULL);
    for (size_t i = 0; i < ROWS * c->out && c->inputs; i++)
        result[i] = fsdp_tensor_get(y, i);
    fsdp_backward(tape, nn_weighted_sum(tape, y, dy_value));
    for (size_t i = 0; i < ROWS * c->in && !c->inputs; i++)
        result[i] = fsdp_tensor_get(table->grad, i);
    fsdp_tape_destroy(&tape);
    fsdp_parameter_destroy(&table);
    fsdp_parameter_destroy(&w);
}

/* K products and their sum, in any order: gamma_K of the magnitudes; T terms
 * rounded and added: T more. */
static void
check_product(const product_case_t *c, size_t *differing)
{
    double got[ROWS * OTHER], plain[ROWS * OTHER];
    size_t terms = c->inputs ? c->in : c->out;
    twin_begin(c->dtype);
    run_product(c, true, got);
    run_product(c, false, plain);
    for (size_t i = 0; i < ROWS * OTHER; i++) {
        double magnitude, want = cut_sum(c, i / OTHER, i % OTHER, &magnitude);
        double k = (double)terms + c->parts.count;
        double slack = 1 + 0x1p-53 / twin_u;
        ck_assert_msg(fabs(got[i] - want) <= slack * twin_gamma(k) * magnitude,
                      "%s, %d terms of %d groups, element %zu: %g, not %g",
                      c->inputs ? "y" : "dx", c->parts.count, c->parts.groups,
                      i, got[i], want);
        *differing += got[i] != plain[i];
    }
}

START_TEST(products_in_terms)
{
    static const int degrees[] = {2, 3, 4, 5};
    size_t differing = 0;
    for (size_t i = 0; i < ROWS * MOST_TERMS; i++) {
        /* Of float32, so that only sums round. */
        x_value[i] = (float)twin_random(1, i);
        dy_value[i] = (float)twin_random(2, i);
    }
    for (size_t i = 0; i < OTHER * MOST_TERMS; i++)
        w_value[i] = (float)twin_random(3, i);
    for (int v = 0; v < 2 * 2 * 2 * 3 * 4; v++) {
        product_case_t c = {.dtype = v % 2 ? FSDP_FP64 : FSDP_FP32,
                            .out_in = v / 2 % 2,
                            .inputs = v / 4 % 2,
                            .parts = {degrees[v / 24], 1 + 2 * (v / 2 % 2),
                                      (fsdp_reduce_order_t)(v / 8 % 3)}};
        c.in = c.inputs ? MOST_TERMS : OTHER;
        c.out = c.inputs ? OTHER : MOST_TERMS;
        check_product(&c, &differing);
    }
    ck_assert_uint_gt(differing, 0); /* the cut does something */
}
END_TEST

/* Numbers whose sums tell the order: 1, and four times e = 3/8 of its last bit
 * u, which 1 + e rounds away.
 *
 *     tree   ((1 + e) + (e + e)) + e = 1 + u
 *     rank   (((1 + e) + e) + e) + e = 1
 *     ring   rank r adds chunk r, beginning with term r + 1, so that 1 comes
 *            after 4 - r times e: 1, 1, 1 + u, 1 + u, 1 + 2 u (3/2 goes to
 *            the even one) for 0 to 4 of them */
START_TEST(orders)
{
    enum { T = 5, N = 10 };
    float term[T][N], out[N];
    void *pointer[T];
    for (int o = FSDP_ORDER_TREE; o <= FSDP_ORDER_RING; o++) {
        fsdp_parts_t parts = {T, 1, (fsdp_reduce_order_t)o};
        for (int t = 0; t < T; t++) {
            pointer[t] = term[t];
            for (int i = 0; i < N; i++)
                term[t][i] = t == 0 ? 1.0f : 0x3p-26f;
        }
        fsdp_parts_sum(&parts, FSDP_FP32, pointer, out, N);
        for (int i = 0; i < N; i++) {
            int last_bits = o == FSDP_ORDER_TREE   ? 1
                            : o == FSDP_ORDER_RANK ? 0
                                                   : (4 - i / 2) / 2;
            float want = 1.0f + (float)last_bits * 0x1p-23f;
            ck_assert_msg(out[i] == want, "order %d, element %d: %a, not %a", o,
                          i, out[i], want);
        }
    }
}
END_TEST

/* ---- the loss ------------------------------------------------------------ */

enum { N = 8, V = 60 };

typedef struct loss_run {
    double loss, dx[N * N], dw[V * N];
} loss_run_t;

/* x is the unit matrix, so that logit (n, v) is weight (v, n), exactly. */
static void
run_loss(fsdp_dtype_t dtype, const fsdp_tensor_parallel_t *tp,
         const double *weight, const int32_t *target, loss_run_t *r)
{
    static const int32_t any[N];
    double unit[N * N] = {0};
    for (size_t n = 0; n < N; n++)
        unit[n * N + n] = 1;
    fsdp_parameter_t *w = fsdp_parameter_create("w", dtype, 2, (size_t[]){V, N},
                                                FSDP_INIT_ZEROS, 0, 0);
    fsdp_parameter_t *table = fsdp_parameter_create(
        "x", dtype, 2, (size_t[]){N, N}, FSDP_INIT_ZEROS, 0, 0);
    nn_set_parameter(w, weight);
    nn_set_parameter(table, unit);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = fsdp_position_embedding(
        tape, nn_int32(tape, 2, (size_t[]){1, N}, any), table);
    fsdp_tensor_t *loss = fsdp_op_vocab_cross_entropy(
        tape, x, w, nn_int32(tape, 2, (size_t[]){1, N}, target),
        FSDP_IGNORE_INDEX, tp);
    r->loss = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    for (size_t i = 0; i < N * N; i++)
        r->dx[i] = fsdp_tensor_get(table->grad, i);
    for (size_t i = 0; i < V * N; i++)
        r->dw[i] = fsdp_tensor_get(w->grad, i);
    fsdp_tape_destroy(&tape);
    fsdp_parameter_destroy(&table);
    fsdp_parameter_destroy(&w);
}

static void
near(const char *what, size_t i, double got, bounded_t want)
{
    ck_assert_msg(fabs(got - want.v) <= (1 + 0x1p-53 / twin_u) * want.e,
                  "%s %zu: %.17g, not %.17g +- %g", what, i, got, want.v,
                  want.e);
}

static void
check_loss(fsdp_dtype_t dtype, const fsdp_tensor_parallel_t *tp,
           const double *weight, const int32_t *target)
{
    loss_run_t got;
    bounded_t loss[N], dlogits[N][V], term[V];
    double logits[N * V], count = 0;
    for (size_t n = 0; n < N; n++)
        count += target[n] != FSDP_IGNORE_INDEX;
    twin_begin(dtype);
    run_loss(dtype, tp, weight, target, &got);
    for (size_t i = 0; i < N * V; i++)
        logits[i] = weight[i % V * N + i / V];
    numbers_t numbers = {FSDP_FP64, N * V, logits};
    for (size_t n = 0; n < N; n++) {
        loss[n] = b_exact(0);
        for (size_t v = 0; v < V; v++)
            dlogits[n][v] = b_exact(0);
        if (target[n] != FSDP_IGNORE_INDEX)
            loss[n] = twin_cross_entropy(numbers, n, V, (size_t)target[n],
                                         1 / count, dlogits[n]);
    }
    near("loss", 0, got.loss, b_div(b_sum(loss, N), b_exact(count)));
    for (size_t n = 0; n < N; n++) {
        for (size_t v = 0; v < V; v++)
            near("dw", v * N + n, got.dw[v * N + n], dlogits[n][v]);
        for (size_t c = 0; c < N; c++) {
            for (size_t v = 0; v < V; v++)
                term[v] = b_mul(dlogits[n][v], b_exact(weight[v * N + c]));
            bounded_t dx = b_sum(term, V);
            near("dx", n * N + c, got.dx[n * N + c],
                 b_round(dx.v, dx.e, tp->degree));
        }
    }
}

START_TEST(vocabulary_parallel_loss)
{
    static const int32_t target[N] = {0, 59, 14, 15, -100, 29, 30, 44};
    double weight[V * N];
    for (size_t i = 0; i < V * N; i++)
        weight[i] = (float)(8 * twin_random(4, i));
    for (int t = 2; t <= 5; t++)
        for (int o = 0; o < 3; o++) {
            fsdp_tensor_parallel_t tp = {t, NULL, (fsdp_reduce_order_t)o};
            check_loss(FSDP_FP32, &tp, weight, target);
            check_loss(FSDP_FP64, &tp, weight, target);
        }
}
END_TEST

/* ---- models -------------------------------------------------------------- */

typedef struct objective {
    case_model_t model;
    fsdp_module_t *module;
} objective_t;

/* The longest sum is over the channels within GPT-2's MLP. */
enum { T = 4, LONGEST_SUM = 4 * 6 * T, MAX_PARAMETERS = 64 };

static double
loss_of(void *context)
{
    objective_t *o = context;
    double loss = case_run(o->model, o->module, T, 1);
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(o->module, p, MAX_PARAMETERS);
    for (size_t i = 0; i < count; i++)
        fsdp_parameter_zero_grad(p[i]);
    return loss;
}

START_TEST(model_differences)
{
    fsdp_tensor_parallel_t tp = {T, NULL, FSDP_ORDER_TREE};
    objective_t o = {(case_model_t)_i, NULL};
    o.module = case_create(o.model, T, FSDP_FP64);
    ck_assert(case_parallelize(o.model, o.module, &tp) == FSDP_OK);
    fsdp_parameter_t *p[MAX_PARAMETERS];
    fsdp_tensor_t *grad[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(o.module, p, MAX_PARAMETERS);
    case_run(o.model, o.module, T, 1);
    for (size_t i = 0; i < count; i++) {
        grad[i] = p[i]->grad;
        p[i]->grad = NULL;
    }
    double rounding = nn_rounding(loss_of, &o, o.module, LONGEST_SUM);
    for (size_t i = 0; i < count; i++) {
        double *data = p[i]->data;
        size_t n = fsdp_parameter_numel(p[i]);
        for (size_t e = i % 3; e < n; e += 1 + n / 5)
            ck_assert(nn_agrees(p[i]->name, e, fsdp_tensor_get(grad[i], e),
                                nn_derivative(loss_of, &o, &data[e], rounding),
                                1e-5));
        fsdp_tensor_destroy(&grad[i]);
    }
    fsdp_module_destroy(&o.module);
}
END_TEST

static double
case_loss(case_model_t model, fsdp_dtype_t dtype,
          const fsdp_tensor_parallel_t *tp, double *rounding)
{
    objective_t o = {model, case_create(model, tp->degree, dtype)};
    if (rounding == NULL)
        ck_assert(case_parallelize(model, o.module, tp) == FSDP_OK);
    double loss = case_run(model, o.module, tp->degree, 1);
    if (rounding != NULL && dtype == FSDP_FP64)
        *rounding = nn_rounding(loss_of, &o, o.module, LONGEST_SUM);
    fsdp_module_destroy(&o.module);
    return loss;
}

/* The losses of the cut and of the plain model are one number: what lies
 * between them are the roundings of both, in float64 as in float32. */
START_TEST(cut_and_plain)
{
    fsdp_tensor_parallel_t tp = {T, NULL, FSDP_ORDER_TREE};
    case_model_t model = (case_model_t)_i;
    double rounding, plain = case_loss(model, FSDP_FP64, &tp, &rounding);
    ck_assert_double_le(fabs(case_loss(model, FSDP_FP64, &tp, NULL) - plain),
                        2 * rounding);
    plain = case_loss(model, FSDP_FP32, &tp, &rounding);
    ck_assert_double_le(fabs(case_loss(model, FSDP_FP32, &tp, NULL) - plain),
                        2 * 0x1p29 * rounding);
    ck_assert_double_lt(2 * 0x1p29 * rounding, 1e-3 * plain);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("parallel_sums");
    TCase *tcase = tcase_create("sums");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, products_in_terms);
    tcase_add_test(tcase, orders);
    tcase_add_test(tcase, vocabulary_parallel_loss);
    tcase = tcase_create("models");
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, model_differences, CASE_GPT2, CASE_MODELS);
    tcase_add_loop_test(tcase, cut_and_plain, CASE_MLP, CASE_MODELS);
    return mck_run(argc, argv, suite);
}
