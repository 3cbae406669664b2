/* Models cut over all ranks against one process in their place, bit by bit. */
#include <stdio.h>
#include <string.h>

#include "fsdp/gpt2.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "mck.h"
#include "nn/nn_case.h"
#include "nn/parallel_case.h"
#include "twin/numbers.h"

enum { STEPS = 3 };

static int
ranks(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

static fsdp_tensor_parallel_t
over_ranks(fsdp_reduce_order_t order)
{
    return (fsdp_tensor_parallel_t){ranks(), fsdp_comm_world(), order};
}

static fsdp_tensor_parallel_t
in_their_place(fsdp_reduce_order_t order)
{
    return (fsdp_tensor_parallel_t){ranks(), NULL, order};
}

/* ---- training ------------------------------------------------------------ */

static bool
same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* A few steps: losses, gradients and updated parameters have the same bits. */
static bool
trains_alike(case_model_t model, fsdp_dtype_t dtype, fsdp_reduce_order_t order)
{
    fsdp_tensor_parallel_t tp = over_ranks(order), one = in_their_place(order);
    fsdp_module_t *mine = case_create(model, ranks(), dtype);
    fsdp_module_t *whole = case_create(model, ranks(), dtype);
    bool good = case_parallelize(model, mine, &tp) == FSDP_OK &&
                case_parallelize(model, whole, &one) == FSDP_OK;
    for (uint32_t step = 0; step < STEPS; step++) {
        double a = case_run(model, mine, ranks(), step);
        double b = case_run(model, whole, ranks(), step);
        good = same_bits(a, b) && a > 0 && good;
        good = case_grads_agree(mine, whole) && good;
        case_update(mine);
        case_update(whole);
        good = case_data_agree(mine, whole) && good;
    }
    if (!good)
        fprintf(stderr, "model %d, %s, %s\n", model, fsdp_dtype_name(dtype),
                fsdp_reduce_order_name(order));
    fsdp_module_destroy(&whole);
    fsdp_module_destroy(&mine);
    return good;
}

START_TEST(models_train_alike)
{
    static const fsdp_dtype_t types[] = {FSDP_FP32, FSDP_FP64, FSDP_BF16,
                                         FSDP_FP16};
    static const fsdp_reduce_order_t orders[] = {
        FSDP_ORDER_TREE, FSDP_ORDER_RANK, FSDP_ORDER_RING};
    bool good = true;
    for (int t = 0; t < 4; t++)
        for (int o = 0; o < 3; o++)
            good = trains_alike((case_model_t)_i, types[t], orders[o]) && good;
    mck_assert(good);
}
END_TEST

/* ---- parts --------------------------------------------------------------- */

/* Initial values and places: c_attn's part is three pieces of a row, its share
 * of q, k and v. */
START_TEST(packed_heads)
{
    fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_TREE);
    fsdp_module_t *mine = case_create(CASE_GPT2, ranks(), FSDP_FP32);
    fsdp_module_t *whole = case_create(CASE_GPT2, ranks(), FSDP_FP32);
    ck_assert(case_parallelize(CASE_GPT2, mine, &tp) == FSDP_OK);
    mck_assert(case_data_agree(mine, whole));

    size_t t = (size_t)ranks(), c = 6 * t, own = 6;
    const char *name = "transformer.h.1.attn.c_attn.weight";
    fsdp_parameter_t *part = fsdp_module_find_parameter(mine, name);
    fsdp_parameter_t *all = fsdp_module_find_parameter(whole, name);
    ck_assert_uint_eq(part->shape[0], c);
    ck_assert_uint_eq(part->shape[1], 3 * own);
    const float *a = fsdp_parameter_data(part), *b = fsdp_parameter_data(all);
    size_t first = (size_t)fsdp_comm_rank(fsdp_comm_world()) * own;
    bool good = true;
    for (size_t row = 0; row < c; row++)
        for (size_t j = 0; j < 3 * own; j++)
            good = good && a[row * 3 * own + j] ==
                               b[row * 3 * c + j / own * c + first + j % own];
    mck_assert(good);
    fsdp_module_destroy(&whole);
    fsdp_module_destroy(&mine);
}
END_TEST

/* All parts together are the model, each element once. */
START_TEST(parts_cover_the_model)
{
    for (int m = 0; m < CASE_MODELS; m++) {
        fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_TREE);
        fsdp_module_t *mine = case_create((case_model_t)m, ranks(), FSDP_FP32);
        int64_t count[2] = {0, (int64_t)fsdp_module_num_elements(mine)};
        ck_assert(case_parallelize((case_model_t)m, mine, &tp) == FSDP_OK);
        fsdp_parameter_t *list[64];
        size_t n = fsdp_module_parameters(mine, list, 64);
        for (size_t i = 0; i < n; i++)
            if (list[i]->part_dim >= 0 || list[i]->part == 0)
                count[0] += (int64_t)fsdp_parameter_numel(list[i]);
        fsdp_all_reduce(fsdp_comm_world(), "count", FSDP_INT64, FSDP_SUM,
                        FSDP_ORDER_TREE, count, 1);
        ck_assert_int_eq(count[0], count[1]);
        fsdp_module_destroy(&mine);
    }
}
END_TEST

/* ---- logits -------------------------------------------------------------- */

static fsdp_tensor_t *
logits_of(case_model_t model, fsdp_tape_t *tape, fsdp_module_t *m)
{
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 2, (size_t[]){2, 3});
    for (size_t i = 0; i < 6; i++)
        fsdp_tensor_set(x, i, (double)(5 - i));
    return model == CASE_LLAMA ? fsdp_llama_logits(tape, m, x)
                               : fsdp_gpt2_logits(tape, m, x);
}

/* The logits of the last positions, which all ranks get, and their gradients. */
START_TEST(logits_are_gathered)
{
    fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_RANK);
    fsdp_tensor_parallel_t one = in_their_place(FSDP_ORDER_RANK);
    for (int i = CASE_GPT2_TIED; i <= CASE_LLAMA; i++) {
        case_model_t model = (case_model_t)i;
        fsdp_module_t *m[2];
        fsdp_tape_t *tape[2];
        fsdp_tensor_t *logits[2];
        double weight[256];
        for (size_t k = 0; k < 256; k++)
            weight[k] = twin_random(1, k);
        for (int k = 0; k < 2; k++) {
            m[k] = case_create(model, ranks(), FSDP_FP64);
            ck_assert(case_parallelize(model, m[k], k == 0 ? &tp : &one) ==
                      FSDP_OK);
            tape[k] = fsdp_tape_create(NULL);
            logits[k] = logits_of(model, tape[k], m[k]);
        }
        mck_assert(fsdp_tensor_same_shape(logits[0], logits[1]) &&
                   logits[0]->shape[1] % (size_t)ranks() == 0 &&
                   memcmp(logits[0]->data, logits[1]->data,
                          fsdp_tensor_bytes(logits[0])) == 0);
        for (int k = 0; k < 2; k++)
            fsdp_backward(tape[k], nn_weighted_sum(tape[k], logits[k], weight));
        mck_assert(case_grads_agree(m[0], m[1]));
        for (int k = 0; k < 2; k++) {
            fsdp_tape_destroy(&tape[k]);
            fsdp_module_destroy(&m[k]);
        }
    }
}
END_TEST

/* ---- traffic ------------------------------------------------------------- */

/* A GPT-2 of L layers: in the forward one sum for the embedding, two a block
 * and two for the loss's row statistics; in the backward two a block and one
 * for the head's input. */
START_TEST(collectives_are_as_few_as_that)
{
    fsdp_comm_t *world = fsdp_comm_world();
    fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_TREE);
    fsdp_module_t *m = case_create(CASE_GPT2, ranks(), FSDP_FP32);
    ck_assert(case_parallelize(CASE_GPT2, m, &tp) == FSDP_OK);
    uint64_t before = fsdp_comm_counter(world, FSDP_ALL_REDUCE).calls;
    uint64_t gathers = fsdp_comm_counter(world, FSDP_ALL_GATHER).calls;
    case_run(CASE_GPT2, m, ranks(), 0);
    uint64_t layers = 2, forward = 1 + 2 * layers + 1 + 1;
    ck_assert_uint_eq(fsdp_comm_counter(world, FSDP_ALL_REDUCE).calls - before,
                      ranks() == 1 ? 0 : forward + 2 * layers + 1);
    ck_assert_uint_eq(fsdp_comm_counter(world, FSDP_ALL_GATHER).calls, gathers);
    fsdp_module_destroy(&m);
}
END_TEST

/* ---- wrong use ----------------------------------------------------------- */

static void
expect_refusal(fsdp_status_t status, const char *a, const char *b)
{
    ck_assert_int_eq(status, FSDP_ERR_USAGE);
    ck_assert_msg(strstr(fsdp_error_message(), a) != NULL &&
                      strstr(fsdp_error_message(), b) != NULL,
                  "%s", fsdp_error_message());
}

static fsdp_module_t *
mlp_of(size_t hidden)
{
    fsdp_mlp_config_t config = {.num_layers = 2, .width = {3, hidden, 4}};
    return fsdp_mlp_create(&config);
}

/* Refused whether there are ranks or one process; nothing has changed then. */
START_TEST(refusals)
{
    fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_TREE);
    fsdp_tensor_parallel_t one = {6, NULL, FSDP_ORDER_TREE};
    size_t t = (size_t)ranks();
    fsdp_module_t *m = mlp_of(6 * t + 1);
    expect_refusal(fsdp_tensor_parallel_mlp(m, &one), "layers.0.weight",
                   "multiple of 6");
    if (t > 1) {
        expect_refusal(fsdp_tensor_parallel_mlp(m, &tp), "layers.0.weight",
                       "dim 0");
        tp.degree++;
        expect_refusal(fsdp_tensor_parallel_mlp(m, &tp), "communicator", "");
        tp.degree--;
    }
    ck_assert_uint_eq(fsdp_module_num_elements(m),
                      (3 + 1 + 4) * (6 * t + 1) + 4);
    fsdp_module_destroy(&m);

    m = mlp_of(6 * t);
    fsdp_parallel_plan_t plan = {"layers.9", FSDP_COLWISE_PARALLEL, 0};
    expect_refusal(fsdp_parallelize_module(m, &one, &plan, 1), "layers.9",
                   "no module");
    plan = (fsdp_parallel_plan_t){"layers.0", FSDP_HEAD_PARALLEL, 0};
    expect_refusal(fsdp_parallelize_module(m, &one, &plan, 1), "layers.0",
                   "head-parallel");
    plan = (fsdp_parallel_plan_t){"layers.0", FSDP_COLWISE_PARALLEL, 7};
    expect_refusal(fsdp_parallelize_module(m, &one, &plan, 1), "layers.0",
                   "multiple of 42");
    one.degree = 0;
    expect_refusal(fsdp_tensor_parallel_mlp(m, &one), "0 ranks", "");
    if (t > 1) {
        fsdp_parameter_data(m->child[1]->parameter[0]);
        expect_refusal(fsdp_tensor_parallel_mlp(m, &tp), "layers.1.weight",
                       "storage");
    }
    fsdp_module_destroy(&m);
}
END_TEST

START_TEST(heads_and_second_calls_are_refused)
{
    fsdp_tensor_parallel_t one = {8, NULL, FSDP_ORDER_TREE};
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    fsdp_module_t *m = fsdp_gpt2_create(&config);
    expect_refusal(fsdp_tensor_parallel_gpt2(m, &one), "transformer.h.0.attn",
                   "heads");
    one.degree = 2;
    ck_assert(fsdp_tensor_parallel_gpt2(m, &one) == FSDP_OK);
    expect_refusal(fsdp_tensor_parallel_gpt2(m, &one), "transformer.wte", "");
    fsdp_module_destroy(&m);
    if (ranks() == 1)
        return;
    fsdp_tensor_parallel_t tp = over_ranks(FSDP_ORDER_TREE);
    m = mlp_of(6 * (size_t)ranks() * (size_t)ranks());
    ck_assert(fsdp_tensor_parallel_mlp(m, &tp) == FSDP_OK);
    expect_refusal(fsdp_tensor_parallel_mlp(m, &tp), "layers.0.weight",
                   "already");
    fsdp_module_destroy(&m);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("tensor_parallel");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, models_train_alike, 0, CASE_MODELS);
    tcase_add_test(tcase, packed_heads);
    tcase_add_test(tcase, parts_cover_the_model);
    tcase_add_test(tcase, logits_are_gathered);
    tcase_add_test(tcase, collectives_are_as_few_as_that);
    tcase = tcase_create("refusals");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, heads_and_second_calls_are_refused);
    return mck_run(argc, argv, suite);
}
