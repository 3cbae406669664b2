/* Ranks: 1 */
/* Every operator, layer and model in float64 against finite differences. */
#include "mck.h"

#include "fsdp/gpt2.h"
#include "fsdp/layers.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "nn/differences.h"
#include "nn/nn_case.h"
#include "twin/numbers.h"

/* Gradients here are of size 1; see nn_agrees(). */
#define SHARP 1e-6

/* ---- operators ---------------------------------------------------------- */

static double
case_value(void *context)
{
    nn_case_t *c = context;
    double *upstream = c->upstream, sum = 0;
    c->upstream = NULL; /* no backward */
    nn_case_run(c, FSDP_FP64);
    c->upstream = upstream;
    for (size_t i = 0; i < c->out_numel; i++)
        sum += upstream[i] * c->out[i];
    return sum;
}

/* An output is made by at most 64 operations on each element of the arrays,
 * whose values are below 2: gamma_k (|out| + 1) is its error, k that many. */
static double
case_rounding(const nn_case_t *c)
{
    double sum = 0;
    size_t operations = 0;
    for (int k = 0; k < nn_case_arrays(c); k++)
        operations += nn_array_numel(&c->array[k]);
    for (size_t i = 0; i < c->out_numel; i++)
        sum += fabs(c->upstream[i]) * (1 + fabs(c->out[i]));
    return twin_gamma(64 * (double)operations) * sum;
}

static bool
array_agrees(nn_case_t *c, nn_array_t *a, const double *grad)
{
    double rounding = case_rounding(c);
    bool good = true;
    for (size_t i = 0; i < nn_array_numel(a); i++)
        good &= nn_agrees(c->name, i, grad[i],
                          nn_derivative(case_value, c, &a->value[i], rounding),
                          SHARP);
    return good;
}

static bool
differences_of(const nn_case_t *operator)
{
    nn_case_t c = *operator;
    nn_case_randomize(&c, 100);
    nn_case_run(&c, FSDP_FP64);
    nn_case_random_upstream(&c, 200);
    nn_case_run(&c, FSDP_FP64);
    double *grad[NN_MAX_ARRAYS] = {NULL};
    for (int k = 0; k < nn_case_arrays(&c); k++) { /* later runs clear them */
        size_t bytes = nn_array_numel(&c.array[k]) * sizeof(double);
        grad[k] = fsdp_alloc(FSDP_MEM_OTHER, bytes);
        memcpy(grad[k], c.array[k].grad, bytes);
    }
    bool good = true;
    for (int k = 0; k < nn_case_arrays(&c); k++) {
        good &= array_agrees(&c, &c.array[k], grad[k]);
        fsdp_free(grad[k]);
    }
    nn_case_free(&c);
    return good;
}

START_TEST(operators)
{
    twin_begin(FSDP_FP64);
    bool good = true;
    for (const nn_case_t *c = nn_operators; c->name != NULL; c++)
        good &= differences_of(c);
    ck_assert(good);
}
END_TEST

/* ---- modules ------------------------------------------------------------ */

enum { MAX_PARAMETERS = 64 };

/* A module and what its loss is. */
typedef struct subject {
    fsdp_module_t *module;
    fsdp_tensor_t *(*loss)(struct subject *s, fsdp_tape_t *tape);
    double *x; /* [4,6], or NULL */
    bool training;
} subject_t;

static const int32_t tokens[] = {3, 0, 3, 6, 1, 5, 0, 2, 4, 4};
static const int32_t targets[] = {0, 3, 6, 1, FSDP_IGNORE_INDEX, 0, 2, 4, 4, 3};
static const size_t two_by_five[] = {2, 5};
static double weight[4 * 64];

static fsdp_tape_t *
new_tape(const subject_t *s, bool grad_enabled)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.grad_enabled = grad_enabled;
    options.training = s->training;
    options.seed = 5;
    return fsdp_tape_create(&options);
}

static double
subject_value(void *context)
{
    subject_t *s = context;
    fsdp_tape_t *tape = new_tape(s, false);
    double value = fsdp_tensor_get(s->loss(s, tape), 0);
    fsdp_tape_destroy(&tape);
    return value;
}

/* No sum on the way to a loss has more than 64 terms. */
static bool
module_agrees(subject_t *s)
{
    twin_begin(FSDP_FP64);
    double rounding = nn_rounding(subject_value, s, s->module, 64);
    fsdp_tape_t *tape = new_tape(s, true);
    fsdp_backward(tape, s->loss(s, tape));
    fsdp_tape_destroy(&tape);

    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(s->module, p, MAX_PARAMETERS);
    bool good = count > 0 && count <= MAX_PARAMETERS;
    for (size_t k = 0; k < count; k++) {
        double *value = p[k]->data;
        for (size_t i = 0; i < fsdp_parameter_numel(p[k]); i++)
            good &= nn_agrees(
                p[k]->name, i, fsdp_tensor_get(p[k]->grad, i),
                nn_derivative(subject_value, s, &value[i], rounding), SHARP);
    }
    return good;
}

/* Values that are no initial values: of size 1/2, biases and gains too, and
 * multiples of 2^-24. */
static void
set_parameters(fsdp_module_t *module)
{
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(module, p, MAX_PARAMETERS);
    for (size_t k = 0; k < count; k++) {
        size_t n = fsdp_parameter_numel(p[k]);
        double *value = twin_alloc(n, sizeof *value);
        for (size_t i = 0; i < n; i++)
            value[i] = 0.5 * twin_random(300 + (uint32_t)k, i);
        nn_set_parameter(p[k], value);
        fsdp_free(value);
    }
}

static bool
check_module(fsdp_module_t *module,
             fsdp_tensor_t *(*loss)(subject_t *s, fsdp_tape_t *tape))
{
    double x[4 * 6];
    for (size_t i = 0; i < 4 * 6; i++)
        x[i] = twin_random(402, i); /* no ReLU is near its corner */
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)
        weight[i] = twin_random(401, i);
    subject_t s = {.module = module, .loss = loss, .x = x, .training = true};
    set_parameters(module);
    bool good = module_agrees(&s);
    fsdp_module_destroy(&module);
    return good;
}

static fsdp_tensor_t *
loss_of_numbers(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, (size_t[]){4, 6}, s->x);
    return nn_weighted_sum(tape, fsdp_module_call1(s->module, tape, x), weight);
}

static fsdp_tensor_t *
loss_of_tokens(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, two_by_five, tokens);
    return nn_weighted_sum(tape, fsdp_module_call1(s->module, tape, x), weight);
}

START_TEST(layers)
{
    ck_assert(check_module(fsdp_linear_create("m", 6, 5, true, FSDP_FP64, 1),
                           loss_of_numbers));
    ck_assert(check_module(fsdp_linear_create("m", 6, 5, false, FSDP_FP64, 1),
                           loss_of_numbers));
    ck_assert(check_module(fsdp_conv1d_create("m", 6, 5, 0.1, FSDP_FP64, 1),
                           loss_of_numbers));
    ck_assert(check_module(fsdp_layer_norm_create("m", 6, 1e-5, FSDP_FP64),
                           loss_of_numbers));
    ck_assert(check_module(fsdp_rms_norm_create("m", 6, 1e-6, FSDP_FP64),
                           loss_of_numbers));
    ck_assert(check_module(fsdp_embedding_create("m", 7, 3, 1, FSDP_FP64, 1),
                           loss_of_tokens));
    ck_assert(
        check_module(fsdp_position_embedding_create("m", 7, 3, 1, FSDP_FP64, 1),
                     loss_of_tokens));
}
END_TEST

static fsdp_tensor_t *
loss_of_mlp(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, (size_t[]){4, 6}, s->x);
    fsdp_tensor_t *target =
        nn_int32(tape, 1, (size_t[]){4}, (int32_t[]){2, 0, 1, 2});
    return fsdp_mlp_loss(tape, s->module, x, target);
}

START_TEST(mlp)
{
    fsdp_mlp_config_t config = {
        .num_layers = 3, .width = {6, 7, 5, 3}, .dtype = FSDP_FP64};
    ck_assert(check_module(fsdp_mlp_create(&config), loss_of_mlp));
}
END_TEST

static fsdp_tensor_t *
loss_of_gpt2(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, two_by_five, tokens);
    fsdp_tensor_t *y = nn_int32(tape, 2, two_by_five, targets);
    return fsdp_gpt2_loss(tape, s->module, x, y);
}

static fsdp_tensor_t *
last_logits_of_gpt2(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, two_by_five, tokens);
    return nn_weighted_sum(tape, fsdp_gpt2_logits(tape, s->module, x), weight);
}

static fsdp_module_t *
gpt2_create(bool tied, double dropout)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = 2;
    config.n_head = 2;
    config.n_embd = 4;
    config.vocab_size = 7;
    config.n_positions = 6;
    config.tie_word_embeddings = tied;
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = dropout;
    config.dtype = FSDP_FP64;
    return fsdp_gpt2_create(&config);
}

START_TEST(gpt2)
{
    ck_assert(check_module(gpt2_create(true, 0), loss_of_gpt2));
    ck_assert(check_module(gpt2_create(false, 0), loss_of_gpt2));
    ck_assert(check_module(gpt2_create(true, 0.25), loss_of_gpt2));
    ck_assert(check_module(gpt2_create(true, 0), last_logits_of_gpt2));
}
END_TEST

static fsdp_tensor_t *
loss_of_llama(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, two_by_five, tokens);
    fsdp_tensor_t *y = nn_int32(tape, 2, two_by_five, targets);
    return fsdp_llama_loss(tape, s->module, x, y);
}

static fsdp_tensor_t *
last_logits_of_llama(subject_t *s, fsdp_tape_t *tape)
{
    fsdp_tensor_t *x = nn_int32(tape, 2, two_by_five, tokens);
    return nn_weighted_sum(tape, fsdp_llama_logits(tape, s->module, x), weight);
}

static fsdp_llama_config_t
small_llama(void)
{
    fsdp_llama_config_t config = fsdp_llama_config_default();
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.hidden_size = 8;
    config.intermediate_size = 5;
    config.vocab_size = 7;
    config.max_position_embeddings = 6;
    config.dtype = FSDP_FP64;
    return config;
}

/* Then tied, with all biases, heads wider than width / heads, and dropout. */
START_TEST(llama)
{
    fsdp_llama_config_t config = small_llama();
    ck_assert(check_module(fsdp_llama_create(&config), loss_of_llama));
    ck_assert(check_module(fsdp_llama_create(&config), last_logits_of_llama));
    config.tie_word_embeddings = true;
    config.attention_bias = config.mlp_bias = true;
    config.head_dim = 4;
    config.num_key_value_heads = 1;
    config.attention_dropout = 0.25;
    ck_assert(check_module(fsdp_llama_create(&config), loss_of_llama));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("differences");
    TCase *tcase = tcase_create("differences");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, operators);
    tcase_add_test(tcase, layers);
    tcase_add_test(tcase, mlp);
    tcase_add_test(tcase, gpt2);
    tcase_add_test(tcase, llama);
    return mck_run(argc, argv, suite);
}
