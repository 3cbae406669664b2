/* A mixture of experts on all ranks against one process with all experts, which
 * runs the ranks' batches one after another; and against formulas. */
#include <stdio.h>
#include <string.h>

#include "fsdp/gpt2.h"
#include "fsdp/memory.h"
#include "fsdp/moe.h"
#include "mck.h"
#include "nn/differences.h"
#include "nn/nn_case.h"
#include "twin/moe.h"

enum { N = 7, C = 6, H = 5, MAX_RANKS = 8, MAX_PARAMETERS = 4 };

static int
ranks(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

static fsdp_moe_config_t
config_of(fsdp_expert_kind_t kind, fsdp_dtype_t dtype, fsdp_comm_t *comm,
          fsdp_reduce_order_t order)
{
    fsdp_moe_config_t c = fsdp_moe_config_default();
    c.channels = C;
    c.hidden = H;
    c.num_experts = 2 * (size_t)ranks();
    c.kind = kind;
    c.router_aux_loss_coef = 0.5;
    c.std = c.down_std = 0.5;
    c.dtype = dtype;
    c.seed = 4;
    c.comm = comm;
    c.reduce_order = order;
    return c;
}

/* ---- one batch ----------------------------------------------------------- */

typedef struct result {
    double loss, aux, y[N * C];
    double dx[N * C];
} result_t;

static double input[N * C];

/* Batch b: rank b's.  With `crowd` every token of it is the same, so that all
 * go to the same experts and the others get none. */
static void
fill_input(int b, bool crowd)
{
    for (size_t i = 0; i < N * C; i++)
        input[i] = twin_random((uint32_t)b + 1, crowd ? i % C : i);
}

/* The input as rows of a table, whose gradient is then dx. */
static fsdp_parameter_t *
input_table(fsdp_dtype_t dtype)
{
    fsdp_parameter_t *table = fsdp_parameter_create(
        "input", dtype, 2, (size_t[]){N, C}, FSDP_INIT_ZEROS, 0, 0);
    nn_set_parameter(table, input);
    return table;
}

/* The layer on `input`: the sum of its outputs with weights that only `b`
 * tells, plus the auxiliary loss; and the backward. */
static result_t
run(fsdp_module_t *moe, fsdp_dtype_t dtype, int b)
{
    static const int32_t any[N] = {0};
    double upstream[N * C];
    result_t r = {0};
    for (size_t i = 0; i < N * C; i++)
        upstream[i] = twin_random((uint32_t)b + 100, i);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_parameter_t *table = input_table(dtype);
    fsdp_tensor_t *x = fsdp_position_embedding(
        tape, nn_int32(tape, 2, (size_t[]){1, N}, any), table);
    fsdp_values_t out = fsdp_module_call(moe, tape, fsdp_values1(x));
    for (size_t i = 0; i < N * C; i++)
        r.y[i] = fsdp_tensor_get(out.tensor[0], i);
    r.aux = fsdp_tensor_get(out.tensor[1], 0);
    fsdp_tensor_t *loss = nn_weighted_sum(tape, out.tensor[0], upstream);
    loss = fsdp_add(tape, loss, fsdp_cast(tape, out.tensor[1], loss->dtype));
    r.loss = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    for (size_t i = 0; i < N * C; i++)
        r.dx[i] = fsdp_tensor_get(table->grad, i);
    fsdp_tape_destroy(&tape);
    fsdp_parameter_destroy(&table);
    return r;
}

/* ---- ranks against one process ------------------------------------------- */

static double
rounded_sum(fsdp_dtype_t dtype, double a, double b)
{
    fsdp_tensor_t *t = fsdp_tensor_create(FSDP_MEM_OTHER, dtype, 0, NULL);
    fsdp_tensor_set(t, 0, a + b);
    double sum = fsdp_tensor_get(t, 0);
    fsdp_tensor_destroy(&t);
    return sum;
}

/* x[n] as a tree, or left to right, each sum rounded to the type.  The sum of
 * two float64 is rounded by C. */
static double
sum_of(fsdp_dtype_t dtype, fsdp_reduce_order_t order, double *x, int n)
{
    if (order != FSDP_ORDER_TREE) {
        for (int i = 1; i < n; i++)
            x[0] = rounded_sum(dtype, x[0], x[i]);
        return x[0];
    }
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step)
            x[i] = rounded_sum(dtype, x[i], x[i + step]);
    return x[0];
}

typedef struct grads {
    fsdp_tensor_t *of[MAX_RANKS][MAX_PARAMETERS];
} grads_t;

/* Rank `rank` holds experts' gradients summed over all batches, and the gate's
 * of its own batch. */
static bool
grad_is_right(const fsdp_parameter_t *mine, const grads_t *g, int p,
              fsdp_reduce_order_t order)
{
    bool expert = mine->ndim == 3;
    size_t n = fsdp_parameter_numel(mine), run;
    int rank = fsdp_comm_rank(fsdp_comm_world());
    for (size_t i = 0; i < n; i++) {
        size_t there = fsdp_parameter_whole_element(mine, i, &run);
        double term[MAX_RANKS];
        for (int b = 0; b < ranks(); b++)
            term[b] = fsdp_tensor_get(g->of[b][p], there);
        double want =
            expert ? sum_of(mine->dtype, order, term, ranks()) : term[rank];
        double got = fsdp_tensor_get(mine->grad, i);
        if (memcmp(&got, &want, sizeof got) != 0) {
            fprintf(stderr, "%s[%zu]: %a, not %a\n", mine->name, i, got, want);
            return false;
        }
    }
    return true;
}

static bool
ranks_agree(fsdp_expert_kind_t kind, fsdp_dtype_t dtype,
            fsdp_reduce_order_t order, bool crowd)
{
    int rank = fsdp_comm_rank(fsdp_comm_world());
    fsdp_moe_config_t c = config_of(kind, dtype, fsdp_comm_world(), order);
    fsdp_module_t *mine = fsdp_moe_create("moe", &c);
    c.comm = NULL;
    fsdp_module_t *whole = fsdp_moe_create("moe", &c);
    fsdp_parameter_t *part[MAX_PARAMETERS], *all[MAX_PARAMETERS];
    int count = (int)fsdp_module_parameters(mine, part, MAX_PARAMETERS);
    fsdp_module_parameters(whole, all, MAX_PARAMETERS);
    grads_t g = {0};
    fill_input(rank, crowd);
    result_t want = {0}, got = run(mine, dtype, rank);
    for (int b = 0; b < ranks(); b++) {
        fill_input(b, crowd);
        result_t r = run(whole, dtype, b);
        want = b == rank ? r : want;
        for (int p = 0; p < count; p++) {
            g.of[b][p] = all[p]->grad;
            all[p]->grad = NULL;
        }
    }
    bool good = memcmp(&got, &want, sizeof got) == 0 && got.loss != 0;
    for (int p = 0; p < count; p++)
        good = grad_is_right(part[p], &g, p, order) && good;
    for (int b = 0; b < ranks(); b++)
        for (int p = 0; p < count; p++)
            fsdp_tensor_destroy(&g.of[b][p]);
    fsdp_module_destroy(&whole);
    fsdp_module_destroy(&mine);
    return good;
}

START_TEST(ranks_and_one_process)
{
    static const fsdp_dtype_t types[] = {FSDP_FP32, FSDP_FP64, FSDP_BF16};
    static const fsdp_reduce_order_t orders[] = {
        FSDP_ORDER_TREE, FSDP_ORDER_RANK, FSDP_ORDER_RING};
    bool good = true;
    for (int t = 0; t < 3; t++)
        for (int o = 0; o < 3; o++)
            for (int crowd = 0; crowd < 2; crowd++)
                good = ranks_agree((fsdp_expert_kind_t)_i, types[t], orders[o],
                                   crowd) &&
                       good;
    mck_assert(good);
}
END_TEST

/* ---- formulas ------------------------------------------------------------ */

/* By their order in the module. */
static twin_moe_t
twin_of(const fsdp_moe_config_t *c, fsdp_module_t *moe)
{
    fsdp_parameter_t *p[MAX_PARAMETERS] = {NULL};
    size_t count = fsdp_module_parameters(moe, p, MAX_PARAMETERS);
    return (twin_moe_t){c, fsdp_parameter_data(p[0]), fsdp_parameter_data(p[1]),
                        fsdp_parameter_data(p[2]),
                        count == 4 ? fsdp_parameter_data(p[3]) : NULL};
}

START_TEST(definition)
{
    for (int v = 0; v < 8; v++) {
        fsdp_moe_config_t c = config_of((fsdp_expert_kind_t)(v % 2), FSDP_FP64,
                                        NULL, FSDP_ORDER_TREE);
        c.num_experts = 5;
        c.norm_topk_prob = v / 2 % 2;
        c.top_k = v / 4 ? 1 : 3;
        fsdp_module_t *moe = fsdp_moe_create("moe", &c);
        bounded_t y[N * C];
        twin_begin(FSDP_FP64);
        fill_input(0, false);
        result_t got = run(moe, FSDP_FP64, 0);
        twin_moe_t twin = twin_of(&c, moe);
        ck_assert(twin_is(got.aux, twin_moe(&twin, input, N, y)));
        for (size_t i = 0; i < N * C; i++)
            ck_assert_msg(twin_is(got.y[i], y[i]) && y[i].e < 1e-12,
                          "y %zu: %.17g, not %.17g +- %g", i, got.y[i], y[i].v,
                          y[i].e);
        fsdp_module_destroy(&moe);
    }
}
END_TEST

static double
loss_of(void *context)
{
    fsdp_module_t *moe = context;
    double loss = run(moe, FSDP_FP64, 0).loss;
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(moe, p, MAX_PARAMETERS);
    for (size_t i = 0; i < count; i++)
        fsdp_parameter_zero_grad(p[i]);
    return loss;
}

static void
check_differences(fsdp_module_t *moe)
{
    fsdp_parameter_t *p[MAX_PARAMETERS];
    fsdp_tensor_t *grad[MAX_PARAMETERS];
    int count = (int)fsdp_module_parameters(moe, p, MAX_PARAMETERS);
    fill_input(0, false);
    result_t r = run(moe, FSDP_FP64, 0);
    for (int i = 0; i < count; i++) {
        grad[i] = p[i]->grad;
        p[i]->grad = NULL;
    }
    double rounding = nn_rounding(loss_of, moe, moe, N * C);
    for (int i = 0; i < count; i++) {
        double *data = p[i]->data;
        for (size_t e = 0; e < fsdp_parameter_numel(p[i]); e += 3)
            ck_assert(nn_agrees(p[i]->name, e, fsdp_tensor_get(grad[i], e),
                                nn_derivative(loss_of, moe, &data[e], rounding),
                                1e-6));
        fsdp_tensor_destroy(&grad[i]);
    }
    for (size_t e = 0; e < N * C; e++)
        ck_assert(nn_agrees("x", e, r.dx[e],
                            nn_derivative(loss_of, moe, &input[e], rounding),
                            1e-6));
}

/* The gradients of input, gate and experts; no choice of experts changes within
 * the steps. */
START_TEST(differences)
{
    for (int v = 0; v < 4; v++) {
        fsdp_moe_config_t c = config_of((fsdp_expert_kind_t)(v % 2), FSDP_FP64,
                                        NULL, FSDP_ORDER_TREE);
        c.num_experts = 4;
        c.norm_topk_prob = v / 2;
        fsdp_module_t *moe = fsdp_moe_create("moe", &c);
        check_differences(moe);
        fsdp_module_destroy(&moe);
    }
}
END_TEST

/* ---- a language model with experts ---------------------------------------- */

static fsdp_module_t *
language_model(fsdp_comm_t *comm, size_t experts, double coef)
{
    fsdp_gpt2_config_t c = fsdp_gpt2_config_default();
    c.n_layer = 2;
    c.n_head = 2;
    c.n_embd = 6;
    c.vocab_size = 9;
    c.n_positions = 5;
    c.initializer_range = 0.3;
    c.resid_pdrop = 0.25;
    c.dtype = FSDP_FP64;
    c.seed = 6;
    c.n_experts = experts;
    c.router_aux_loss_coef = coef;
    c.expert_comm = comm;
    return fsdp_gpt2_create(&c);
}

static double
language_loss(fsdp_module_t *m, uint32_t salt)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    int32_t tokens[10], targets[10];
    for (uint32_t i = 0; i < 10; i++) {
        tokens[i] = (int32_t)((3 * i + salt) % 9);
        targets[i] = (int32_t)((5 * i + 2 * salt) % 9);
    }
    size_t shape[2] = {2, 5};
    fsdp_tensor_t *loss =
        fsdp_gpt2_loss(tape, m, nn_int32(tape, 2, shape, tokens),
                       nn_int32(tape, 2, shape, targets));
    double value = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    return value;
}

/* What is no expert has the gradient of the rank's own batch. */
static bool
own_grads_agree(fsdp_module_t *mine, fsdp_module_t *whole)
{
    fsdp_parameter_t *a[40], *b[40];
    size_t count = fsdp_module_parameters(mine, a, 40), compared = 0;
    fsdp_module_parameters(whole, b, 40);
    for (size_t i = 0; i < count; i++) {
        if (a[i]->num_parts > 1)
            continue;
        compared++;
        if (memcmp(a[i]->grad->data, b[i]->grad->data,
                   fsdp_tensor_bytes(a[i]->grad)) != 0)
            return false;
    }
    return compared > 0;
}

START_TEST(language_model_on_ranks)
{
    uint32_t rank = (uint32_t)fsdp_comm_rank(fsdp_comm_world());
    size_t n = 2 * (size_t)ranks();
    fsdp_module_t *mine = language_model(fsdp_comm_world(), n, 0.1);
    fsdp_module_t *whole = language_model(NULL, n, 0.1);
    fsdp_module_t *without = language_model(NULL, n, 0);
    double a = language_loss(mine, rank), b = language_loss(whole, rank);
    mck_assert(memcmp(&a, &b, sizeof a) == 0);
    mck_assert(own_grads_agree(mine, whole));
    /* Each of two blocks adds coef E f.P, f at most 1 and P of sum 1. */
    double c = language_loss(without, rank);
    mck_assert(b > c && b - c < 2 * 0.1 * 2 * ranks() * 2);
    ck_assert(fsdp_gpt2_experts(mine, 1)->num_parameters == 2);
    fsdp_module_destroy(&without);
    fsdp_module_destroy(&whole);
    fsdp_module_destroy(&mine);
}
END_TEST

static double
language_loss_of(void *context)
{
    fsdp_parameter_t *p[40];
    double loss = language_loss(context, 1);
    size_t count = fsdp_module_parameters(context, p, 40);
    for (size_t i = 0; i < count; i++)
        fsdp_parameter_zero_grad(p[i]);
    return loss;
}

/* With these numbers no choice of experts changes within the steps. */
START_TEST(language_model_differences)
{
    fsdp_module_t *m = language_model(NULL, 6, 0.1);
    fsdp_parameter_t *p[40];
    fsdp_tensor_t *grad[40];
    size_t count = fsdp_module_parameters(m, p, 40);
    language_loss(m, 1);
    for (size_t i = 0; i < count; i++) {
        grad[i] = p[i]->grad;
        p[i]->grad = NULL;
    }
    double rounding = nn_rounding(language_loss_of, m, m, 24);
    for (size_t i = 0; i < count; i++) {
        double *data = p[i]->data;
        size_t n = fsdp_parameter_numel(p[i]);
        for (size_t e = i % 3; e < n; e += 1 + n / 4)
            ck_assert(nn_agrees(
                p[i]->name, e, fsdp_tensor_get(grad[i], e),
                nn_derivative(language_loss_of, m, &data[e], rounding), 1e-5));
        fsdp_tensor_destroy(&grad[i]);
    }
    fsdp_module_destroy(&m);
}
END_TEST

/* ---- routing ------------------------------------------------------------- */

/* Equal probabilities: the first experts, in order; origin is sorted. */
START_TEST(ties_and_order)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    static const double logits[3 * 4] = {1, 1, 1, 1, 0, 2, 0, 2, 3, 0, 1, 3};
    static const int32_t expert[] = {0, 1, 1, 3, 0, 3};
    static const int32_t origin[] = {0, 4, 1, 2, 3, 5};
    static const int32_t counts[] = {2, 2, 0, 2};
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, (size_t[]){3, 4}, logits);
    fsdp_routing_t r = fsdp_route(tape, x, 2, true, 0);
    ck_assert(r.aux == NULL);
    ck_assert(memcmp(r.expert->data, expert, sizeof expert) == 0);
    ck_assert(memcmp(r.origin->data, origin, sizeof origin) == 0);
    ck_assert(memcmp(r.counts->data, counts, sizeof counts) == 0);
    for (size_t i = 0; i < 6; i++)
        ck_assert(fsdp_tensor_get(r.weight, i) == 0.5);
    fsdp_tape_destroy(&tape);
}
END_TEST

START_TEST(faults)
{
    fsdp_moe_config_t c = config_of(FSDP_EXPERT_GELU, FSDP_FP32,
                                    fsdp_comm_world(), FSDP_ORDER_TREE);
    ck_assert(fsdp_moe_config_fault(&c) == NULL);
    c.top_k = c.num_experts + 1;
    char *fault = fsdp_moe_config_fault(&c);
    ck_assert(fault != NULL && strstr(fault, "token") != NULL);
    fsdp_free(fault);
    c.top_k = 1;
    c.num_experts++;
    fault = fsdp_moe_config_fault(&c);
    ck_assert((fault != NULL) == (ranks() > 1));
    fsdp_free(fault);
    c.hidden = 0;
    fault = fsdp_moe_config_fault(&c);
    ck_assert(fault != NULL && strstr(fault, "hidden") != NULL);
    fsdp_free(fault);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("moe");
    TCase *tcase = tcase_create("moe");
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, ranks_and_one_process, 0, 2);
    tcase_add_test(tcase, definition);
    tcase_add_test(tcase, differences);
    tcase_add_test(tcase, language_model_on_ranks);
    tcase_add_test(tcase, language_model_differences);
    tcase_add_test(tcase, ties_and_order);
    tcase_add_test(tcase, faults);
    return mck_run(argc, argv, suite);
}
