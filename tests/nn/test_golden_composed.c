/* Ranks: 1 */
/* What PyTorch trained under tensor parallelism, and its mixture of experts:
 * data/golden/tensor_parallel.safetensors, moe.safetensors; in float64. */
#include <stdio.h>

#include "fsdp/layers.h"
#include "fsdp/mlp.h"
#include "fsdp/moe.h"
#include "fsdp/optim.h"
#include "fsdp/tensor_parallel.h"
#include "mck.h"
#include "nn/golden.h"
#include "nn/nn_case.h"
#include "nn/rounding.h"

enum { MOST_OUTPUTS = 4096, MOST_TENSORS = 128, LONGEST_SUM = 17 };

/* What a run computes: tensors by their golden names, one after another. */
typedef struct outputs {
    fsdp_safetensors_t *golden;
    fsdp_module_t *module;
    size_t count, tensors;
    char name[MOST_TENSORS][48];
    size_t begin[MOST_TENSORS + 1];
} outputs_t;

static void
put(outputs_t *o, double *out, const char *name, const fsdp_tensor_t *t)
{
    snprintf(o->name[o->tensors], sizeof o->name[0], "%s", name);
    for (size_t e = 0; e < fsdp_tensor_numel(t); e++)
        out[o->count++] = fsdp_tensor_get(t, e);
    o->begin[++o->tensors] = o->count;
}

/* All are within the bounds of both sides of PyTorch's. */
static void
agree(outputs_t *o, nn_outputs_t f)
{
    double *out = twin_alloc(MOST_OUTPUTS, sizeof *out);
    double *bound = twin_alloc(MOST_OUTPUTS, sizeof *bound);
    nn_rounding_of(f, o, o->module, LONGEST_SUM, MOST_OUTPUTS, out, bound);
    ck_assert_uint_gt(o->tensors, 0);
    for (size_t t = 0; t < o->tensors; t++) {
        double *want = golden_read(o->golden, o->name[t], FSDP_FP64);
        size_t begin = o->begin[t], n = o->begin[t + 1] - begin;
        ck_assert_uint_eq(golden_entry(o->golden, o->name[t])->numel, n);
        for (size_t e = 0; e < n; e++) {
            double got = out[begin + e], most = 2 * bound[begin + e];
            ck_assert_msg(fabs(got - want[e]) <= most && most < 1e-11,
                          "%s %zu: %.17g, not %.17g +- %g", o->name[t], e, got,
                          want[e], most);
        }
        fsdp_free(want);
    }
    fsdp_free(out);
    fsdp_free(bound);
}

static void
set_parameter(const outputs_t *o, const char *name, fsdp_parameter_t *p)
{
    double *value = golden_read(o->golden, name, FSDP_FP64);
    nn_set_parameter(p, value);
    fsdp_free(value);
}

/* ---- tensor parallelism -------------------------------------------------- */

static double
mlp_backward(outputs_t *o, int step)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    double *x = golden_read(o->golden, "x", FSDP_FP64);
    int32_t *target = golden_read(o->golden, "target", FSDP_INT32);
    fsdp_tensor_t *loss = fsdp_mlp_loss(
        tape, o->module,
        nn_tensor(tape, FSDP_FP64, 2, (size_t[]){3, 3}, x + 9 * step),
        nn_int32(tape, 1, (size_t[]){3}, target + 3 * step));
    double value = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    fsdp_free(x);
    fsdp_free(target);
    return value;
}

/* Gradients, or parameters, of the step. */
static void
put_parameters(outputs_t *o, double *out, int step, bool grads)
{
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    size_t count = fsdp_module_parameters(o->module, p, NN_MOST_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, "step%d.%s.%s", step,
                 grads ? "grad" : "param", p[i]->name);
        fsdp_tensor_t *t =
            fsdp_tensor_create(FSDP_MEM_OTHER, FSDP_FP64, 1,
                               (size_t[]){fsdp_parameter_numel(p[i])});
        for (size_t e = 0; e < fsdp_parameter_numel(p[i]); e++)
            fsdp_tensor_set(t, e,
                            grads ? fsdp_tensor_get(p[i]->grad, e)
                                  : ((double *)p[i]->data)[e]);
        put(o, out, name, t);
        fsdp_tensor_destroy(&t);
    }
}

static void
train(void *context, double *out)
{
    outputs_t *o = context;
    fsdp_sgd_options_t options = fsdp_sgd_options_default();
    options.lr = 0.125;
    options.momentum = 0.5;
    fsdp_optimizer_t *sgd = fsdp_sgd_create(o->module, &options);
    o->count = o->tensors = 0;
    for (int step = 1; step <= 3; step++) {
        char name[48];
        snprintf(name, sizeof name, "step%d.loss", step);
        snprintf(o->name[o->tensors], sizeof o->name[0], "%s", name);
        out[o->count++] = mlp_backward(o, step - 1);
        o->begin[++o->tensors] = o->count;
        put_parameters(o, out, step, true);
        fsdp_optimizer_step(sgd);
        fsdp_optimizer_zero_grad(sgd);
        put_parameters(o, out, step, false);
    }
    fsdp_optimizer_destroy(&sgd);
}

/* One process in the place of the two ranks; test_composition.c holds the ranks
 * to it. */
START_TEST(tensor_parallel)
{
    fsdp_tensor_parallel_t tp = {2, NULL, FSDP_ORDER_TREE};
    fsdp_mlp_config_t config = {
        .num_layers = 5, .width = {3, 8, 5, 6, 17, 6}, .dtype = FSDP_FP64};
    outputs_t *o = fsdp_calloc(FSDP_MEM_OTHER, sizeof *o);
    o->golden = golden_open("tensor_parallel");
    o->module = fsdp_mlp_create(&config);
    ck_assert(fsdp_tensor_parallel_mlp(o->module, &tp) == FSDP_OK);
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    size_t count = fsdp_module_parameters(o->module, p, NN_MOST_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        char *name = fsdp_format("init.%s", p[i]->name);
        set_parameter(o, name, p[i]);
        fsdp_free(name);
    }
    agree(o, train);
    ck_assert_uint_eq(o->tensors, 3 * (1 + 2 * 10));
    fsdp_safetensors_close(&o->golden);
    fsdp_module_destroy(&o->module);
    fsdp_free(o);
}
END_TEST

/* ---- experts ------------------------------------------------------------- */

enum { TOKENS = 7, CHANNELS = 6 };

static const char *const moe_names[] = {"gate", "w1", "w2", "w3"};
static const char *moe_case;

static const char *
moe_name(const char *what)
{
    static char name[48];
    snprintf(name, sizeof name, "%s.%s", moe_case, what);
    return name;
}

/* The input is a parameter of its own: rows of a table, in their order. */
static void
run_moe(void *context, double *out)
{
    outputs_t *o = context;
    static const int32_t any[TOKENS] = {0};
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    size_t count = fsdp_module_parameters(o->module, p, NN_MOST_PARAMETERS);
    fsdp_tensor_t *x = fsdp_position_embedding(
        tape, nn_int32(tape, 2, (size_t[]){1, TOKENS}, any), p[count - 1]);
    fsdp_values_t y =
        fsdp_module_call(o->module->child[0], tape, fsdp_values1(x));
    double *upstream = golden_read(o->golden, moe_name("upstream"), FSDP_FP64);
    o->count = o->tensors = 0;
    put(o, out, moe_name("y"), y.tensor[0]);
    put(o, out, moe_name("aux"), y.tensor[1]);
    fsdp_backward(tape,
                  fsdp_add(tape, nn_weighted_sum(tape, y.tensor[0], upstream),
                           y.tensor[1]));
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "grad.%s", i < 4 ? moe_names[i] : "x");
        put(o, out, moe_name(name), p[i]->grad);
        fsdp_parameter_zero_grad(p[i]);
    }
    fsdp_tape_destroy(&tape);
    fsdp_free(upstream);
}

/* Two of six experts with weights that add up to 1 (Mixtral), three or one with
 * weights that do not. */
START_TEST(experts)
{
    static const size_t top_k[] = {2, 3, 1};
    static const char *const names[] = {"k2", "k3", "k1"};
    fsdp_moe_config_t c = fsdp_moe_config_default();
    outputs_t *o = fsdp_calloc(FSDP_MEM_OTHER, sizeof *o);
    c.channels = CHANNELS;
    c.hidden = 5;
    c.num_experts = 6;
    c.top_k = top_k[_i];
    c.norm_topk_prob = _i == 0;
    c.router_aux_loss_coef = 0.5;
    c.dtype = FSDP_FP64;
    moe_case = names[_i];
    o->golden = golden_open("moe");
    o->module = fsdp_module_create("", "Both", NULL, NULL, 0);
    fsdp_module_add_child(o->module, fsdp_moe_create("moe", &c));
    fsdp_module_add_child(
        o->module, fsdp_position_embedding_create("input", TOKENS, CHANNELS, 1,
                                                  FSDP_FP64, 0));
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    ck_assert_uint_eq(fsdp_module_parameters(o->module, p, NN_MOST_PARAMETERS),
                      5);
    for (size_t i = 0; i < 5; i++)
        set_parameter(o, moe_name(i < 4 ? moe_names[i] : "x"), p[i]);
    agree(o, run_moe);
    ck_assert_uint_eq(o->tensors, 7);
    fsdp_safetensors_close(&o->golden);
    fsdp_module_destroy(&o->module);
    fsdp_free(o);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden_composed");
    TCase *tcase = tcase_create("golden");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, tensor_parallel);
    tcase_add_loop_test(tcase, experts, 0, 3);
    return mck_run(argc, argv, suite);
}
