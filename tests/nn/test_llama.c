/* Ranks: 1 */
/* Llama: names and order of the parameters are Hugging Face's, initial values
 * too; what a configuration leaves out; the rotation's table against Hugging
 * Face's own. */
#include "mck.h"

#include <math.h>

#include "fsdp/llama.h"
#include "nn/golden.h"
#include "nn/nn_case.h"

enum { MAX_PARAMETERS = 64, SIGMAS = 6 };

static fsdp_llama_config_t
small(void)
{
    return (fsdp_llama_config_t){.vocab_size = 17,
                                 .hidden_size = 8,
                                 .intermediate_size = 12,
                                 .num_hidden_layers = 2,
                                 .num_attention_heads = 4,
                                 .num_key_value_heads = 2,
                                 .head_dim = 4,
                                 .max_position_embeddings = 10,
                                 .dtype = FSDP_FP64};
}

/* ---- names -------------------------------------------------------------- */

/* The golden file lists them in the order of named_parameters(). */
static void
assert_golden_names(const char *file, bool tied)
{
    fsdp_llama_config_t config = small();
    config.tie_word_embeddings = tied;
    fsdp_module_t *m = fsdp_llama_create(&config);
    fsdp_safetensors_t *golden = golden_open(file);
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(m, p, MAX_PARAMETERS), k = 0;
    for (size_t i = 0; i < fsdp_safetensors_count(golden); i++) {
        const fsdp_safetensors_entry_t *e = fsdp_safetensors_entry(golden, i);
        if (strncmp(e->name, "init.", 5) != 0)
            continue;
        ck_assert(k < count);
        ck_assert_str_eq(p[k]->name, e->name + 5);
        ck_assert_int_eq(p[k]->ndim, e->ndim);
        for (int d = 0; d < e->ndim; d++)
            ck_assert(p[k]->shape[d] == e->shape[d]);
        k++;
    }
    ck_assert_int_eq(k, count);
    ck_assert_int_eq(k, 1 + 2 * 9 + 1 + !tied);
    fsdp_safetensors_close(&golden);
    fsdp_module_destroy(&m);
}

START_TEST(names)
{
    assert_golden_names("llama_sgd", false);
    assert_golden_names("llama_tied_sgd", true);
}
END_TEST

/* ---- initial values ----------------------------------------------------- */

static void
assert_parameter(fsdp_parameter_t *p, double std)
{
    size_t n = fsdp_parameter_numel(p);
    const double *x = fsdp_parameter_data(p);
    double mean = 0, square = 0;
    bool bias = strstr(p->name, "bias") != NULL;
    for (size_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
        square += x[i] * x[i] / (double)n;
    }
    if (bias || strstr(p->name, "norm") != NULL) {
        ck_assert_msg(mean == !bias && square == !bias, "%s", p->name);
        return;
    }
    ck_assert_msg(fabs(mean) <= SIGMAS * std / sqrt((double)n), "%s", p->name);
    ck_assert_msg(fabs(square - std * std) <=
                      SIGMAS * std * std * sqrt(2 / (double)n),
                  "%s: std %g, not %g", p->name, sqrt(square), std);
}

/* Of 64 channels, so that every weight has hundreds of elements.  Sums of 64
 * ones over 64 are exact. */
START_TEST(initial_values)
{
    fsdp_llama_config_t config = {.hidden_size = 64,
                                  .num_key_value_heads = 2,
                                  .num_hidden_layers = 2,
                                  .initializer_range = 0.03,
                                  .attention_bias = true,
                                  .mlp_bias = true,
                                  .dtype = FSDP_FP64,
                                  .seed = 1};
    fsdp_module_t *m = fsdp_llama_create(&config);
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(m, p, MAX_PARAMETERS);
    ck_assert_int_eq(count, 1 + 2 * (9 + 7) + 2);
    for (size_t k = 0; k < count; k++)
        assert_parameter(p[k], 0.03);
    fsdp_module_destroy(&m);
}
END_TEST

/* ---- what is left out --------------------------------------------------- */

START_TEST(defaults)
{
    fsdp_llama_config_t given = {.hidden_size = 100, .num_attention_heads = 10};
    fsdp_llama_config_t c = fsdp_llama_config_complete(&given);
    ck_assert_int_eq(c.num_key_value_heads, 10);
    ck_assert_int_eq(c.head_dim, 10);
    ck_assert_int_eq(c.intermediate_size, 288); /* 266.7, then 9 x 32 */
    ck_assert(c.rms_norm_eps == 1e-6 && c.rope_theta == 10000);
    ck_assert(c.initializer_range == 0.02 && c.dtype == FSDP_FP32);
    ck_assert(!c.tie_word_embeddings && !c.attention_bias && !c.mlp_bias);
}
END_TEST

/* ---- the rotation ------------------------------------------------------- */

/* Hugging Face's table is made in float32: an exponent with one rounding, times
 * log(theta) < 10 in the power's relative error; the power itself (2 ULP, 4 u at
 * most), its reciprocal and the product with the position.  So an angle is off
 * by its 16 u, and cosine or sine by that and their own 4 u. */
static void
assert_table(const fsdp_safetensors_t *golden, const char *name, size_t column)
{
    enum { POSITIONS = 64, DEPTH = 12, HALF = DEPTH / 2 };
    double *want = golden_read(golden, name, FSDP_FP64);
    fsdp_tensor_t *table =
        fsdp_rotary_table(FSDP_FP32, POSITIONS, DEPTH, 10000);
    ck_assert_int_eq(golden_entry(golden, name)->numel, POSITIONS * DEPTH);
    for (size_t t = 0; t < POSITIONS; t++)
        for (size_t i = 0; i < DEPTH; i++) { /* both halves are the same */
            double exponent = -2.0 * (double)(i % HALF) / DEPTH;
            double angle = (double)t * pow(10000, exponent);
            double bound = (16 * angle + 4) * 0x1p-24;
            double got = fsdp_tensor_get(table, t * DEPTH + column + i % HALF);
            ck_assert_msg(fabs(got - want[t * DEPTH + i]) <= bound,
                          "%s of %zu, %zu: %.9g, not %.9g", name, t, i, got,
                          want[t * DEPTH + i]);
        }
    fsdp_tensor_destroy(&table);
    fsdp_free(want);
}

START_TEST(rotation)
{
    fsdp_safetensors_t *golden = golden_open("operators");
    assert_table(golden, "rotary_table.cos", 0);
    assert_table(golden, "rotary_table.sin", 6);
    fsdp_safetensors_close(&golden);
}
END_TEST

static const int32_t tokens[] = {3, 0, 3, 16, 1, 5, 0, 2};

static double
loss_of(fsdp_module_t *m, fsdp_tape_t *tape, size_t length, fsdp_tensor_t **out)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){1, length}, tokens);
    fsdp_tensor_t *loss = fsdp_llama_loss(tape, m, x, x);
    if (out != NULL)
        *out = loss;
    return fsdp_tensor_get(loss, 0);
}

static double
first_gradient(fsdp_module_t *m)
{
    fsdp_parameter_t *p =
        fsdp_module_find_parameter(m, "model.layers.0.self_attn.q_proj.weight");
    double g = fsdp_tensor_get(p->grad, 0);
    fsdp_parameter_zero_grad(p);
    return g;
}

/* A longer sequence between a forward and its backward makes a longer table;
 * the backward still has its own. */
START_TEST(tables_that_grow)
{
    fsdp_llama_config_t config = small();
    fsdp_tape_options_t options = fsdp_tape_options_default();
    double want = 0;
    for (int longer = 0; longer < 2; longer++) {
        fsdp_module_t *m = fsdp_llama_create(&config);
        fsdp_tape_t *tape = fsdp_tape_create(&options);
        fsdp_tensor_t *loss;
        loss_of(m, tape, 3, &loss);
        if (longer) {
            fsdp_tape_t *other = fsdp_tape_create(&options);
            loss_of(m, other, 4, NULL);
            loss_of(m, other, 8, NULL);
            fsdp_tape_destroy(&other);
        }
        fsdp_backward(tape, loss);
        double got = first_gradient(m);
        ck_assert(longer ? got == want : got != 0);
        want = got;
        fsdp_tape_destroy(&tape);
        fsdp_module_destroy(&m);
    }
}
END_TEST

/* ---- logits ------------------------------------------------------------- */

/* Those of the last position: its target's share of the loss, which is
 * T loss(T) - (T-1) loss(T-1), by the softmax of the logits.  Three roundings
 * of sums of at most T terms of size 10, and the losses' own. */
START_TEST(logits)
{
    fsdp_llama_config_t config = small();
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_module_t *m = fsdp_llama_create(&config);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){1, 8}, tokens);
    fsdp_tensor_t *y = fsdp_llama_logits(tape, m, x);
    double share =
        8 * loss_of(m, tape, 8, NULL) - 7 * loss_of(m, tape, 7, NULL);
    double sum = 0;
    ck_assert(y->ndim == 2 && y->shape[0] == 1 && y->shape[1] == 17);
    for (size_t i = 0; i < 17; i++)
        sum += exp(fsdp_tensor_get(y, i));
    double want = log(sum) - fsdp_tensor_get(y, (size_t)tokens[7]);
    ck_assert_double_lt(fabs(share - want), 1000 * 0x1p-53 * 10);
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&m);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("llama");
    TCase *tcase = tcase_create("llama");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, initial_values);
    tcase_add_test(tcase, defaults);
    tcase_add_test(tcase, rotation);
    tcase_add_test(tcase, tables_that_grow);
    tcase_add_test(tcase, logits);
    return mck_run(argc, argv, suite);
}
