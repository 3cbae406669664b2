/* Ranks: 1 */
/* Initial values are those of PyTorch's and Hugging Face's distributions, and a
 * function of seed, name and element alone; names and shapes are theirs too.
 *
 * Bounds on the moments of n values: the mean of n normal values has the
 * standard deviation s / sqrt(n), their mean square s^2 sqrt(2 / n); uniform in
 * +-b, b / sqrt(3 n) and b^2 sqrt(4 / (45 n)).  Six of these leave a chance of
 * 2e-9 to a right generator; the seeds are fixed. */
#include "mck.h"

#include <math.h>

#include "fsdp/gpt2.h"
#include "fsdp/layers.h"
#include "fsdp/mlp.h"
#include "nn/golden.h"

enum { MAX_PARAMETERS = 128, SIGMAS = 6 };

static const double *
values(fsdp_parameter_t *p)
{
    ck_assert(p->dtype == FSDP_FP64);
    return fsdp_parameter_data(p);
}

typedef struct moments {
    double mean, square, largest;
} moments_t;

static moments_t
moments_of(fsdp_parameter_t *p)
{
    size_t n = fsdp_parameter_numel(p);
    const double *x = values(p);
    moments_t m = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        m.mean += x[i] / (double)n;
        m.square += x[i] * x[i] / (double)n;
        m.largest = fmax(m.largest, fabs(x[i]));
    }
    return m;
}

static void
assert_normal(fsdp_parameter_t *p, double std)
{
    double n = (double)fsdp_parameter_numel(p);
    moments_t m = moments_of(p);
    ck_assert_msg(fabs(m.mean) <= SIGMAS * std / sqrt(n), "%s: mean %g",
                  p->name, m.mean);
    ck_assert_msg(fabs(m.square - std * std) <=
                      SIGMAS * std * std * sqrt(2 / n),
                  "%s: std %g, not %g", p->name, sqrt(m.square), std);
    /* Not truncated: of 1000 values or more one is beyond 2.5 std. */
    ck_assert_msg(n < 1000 || m.largest > 2.5 * std, "%s: at most %g", p->name,
                  m.largest);
}

static void
assert_uniform(fsdp_parameter_t *p, double bound)
{
    double n = (double)fsdp_parameter_numel(p), b2 = bound * bound;
    moments_t m = moments_of(p);
    ck_assert_msg(m.largest <= bound, "%s: %g", p->name, m.largest);
    ck_assert_msg(fabs(m.mean) <= SIGMAS * bound / sqrt(3 * n), "%s: mean %g",
                  p->name, m.mean);
    ck_assert_msg(fabs(m.square - b2 / 3) <= SIGMAS * b2 * sqrt(4 / (45 * n)),
                  "%s: mean square %g", p->name, m.square);
}

static void
assert_constant(fsdp_parameter_t *p, double value)
{
    for (size_t i = 0; i < fsdp_parameter_numel(p); i++)
        ck_assert_msg(values(p)[i] == value, "%s", p->name);
}

static bool
ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static fsdp_module_t *
gpt2_create(bool tied, uint64_t seed)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = 3;
    config.n_embd = 64;
    config.n_positions = 32;
    config.initializer_range = 0.03;
    config.tie_word_embeddings = tied;
    config.dtype = FSDP_FP64;
    config.seed = seed;
    return fsdp_gpt2_create(&config);
}

/* ---- distributions ------------------------------------------------------ */

static void
assert_gpt2_parameter(fsdp_parameter_t *p)
{
    bool norm = strstr(p->name, "ln_") != NULL;
    if (ends_with(p->name, "bias"))
        assert_constant(p, 0);
    else if (norm)
        assert_constant(p, 1);
    else if (ends_with(p->name, "c_proj.weight"))
        assert_normal(p, 0.03 / sqrt(6));
    else
        assert_normal(p, 0.03);
}

START_TEST(gpt2_distributions)
{
    for (int tied = 0; tied < 2; tied++) {
        fsdp_module_t *m = gpt2_create(tied, 1);
        fsdp_parameter_t *p[MAX_PARAMETERS];
        size_t count = fsdp_module_parameters(m, p, MAX_PARAMETERS);
        ck_assert_int_eq(count, 2 + 3 * 12 + 2 + !tied);
        for (size_t k = 0; k < count; k++)
            assert_gpt2_parameter(p[k]);
        fsdp_module_destroy(&m);
    }
}
END_TEST

START_TEST(layer_distributions)
{
    fsdp_module_t *m = fsdp_linear_create("a", 50, 200, true, FSDP_FP64, 1);
    assert_uniform(m->parameter[0], 1 / sqrt(50));
    assert_uniform(m->parameter[1], 1 / sqrt(50));
    fsdp_module_destroy(&m);
    m = fsdp_embedding_create("b", 100, 50, 1, FSDP_FP64, 1);
    assert_normal(m->parameter[0], 1);
    fsdp_module_destroy(&m);
    m = fsdp_conv1d_create("c", 100, 50, 0.02, FSDP_FP64, 1);
    assert_normal(m->parameter[0], 0.02);
    assert_constant(m->parameter[1], 0);
    fsdp_module_destroy(&m);
    m = fsdp_linear_create("d", 0, 3, true, FSDP_FP64, 1); /* in = 0 gives 0 */
    assert_constant(m->parameter[1], 0);
    fsdp_module_destroy(&m);
}
END_TEST

/* ---- what they depend on ------------------------------------------------ */

/* Whole, in pieces, backwards, and after others: the same bits. */
START_TEST(independent_of_order)
{
    fsdp_module_t *a = gpt2_create(true, 5), *b = gpt2_create(true, 5);
    fsdp_parameter_t *p[MAX_PARAMETERS], *q[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(a, p, MAX_PARAMETERS);
    fsdp_module_parameters(b, q, MAX_PARAMETERS);
    for (size_t k = 0; k < count; k++)
        fsdp_parameter_data(p[k]);
    for (size_t k = count; k-- > 0;) {
        size_t n = fsdp_parameter_numel(q[k]), piece = 7;
        double *out = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *out);
        for (size_t end = n; end > 0; end -= end < piece ? end : piece) {
            size_t begin = end < piece ? 0 : end - piece;
            fsdp_parameter_init_range(q[k], begin, end - begin, out + begin);
        }
        ck_assert_mem_eq(out, p[k]->data, n * sizeof *out);
        fsdp_free(out);
    }
    fsdp_module_destroy(&a);
    fsdp_module_destroy(&b);
}
END_TEST

/* Another seed or another name gives other numbers. */
START_TEST(seed_and_name_count)
{
    fsdp_module_t *m[3] = {fsdp_linear_create("a", 9, 9, true, FSDP_FP64, 1),
                           fsdp_linear_create("a", 9, 9, true, FSDP_FP64, 2),
                           fsdp_linear_create("b", 9, 9, true, FSDP_FP64, 1)};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < i; j++)
                ck_assert_mem_ne(values(m[i]->parameter[k]),
                                 values(m[j]->parameter[k]),
                                 9 * sizeof(double));
    for (int i = 0; i < 3; i++)
        fsdp_module_destroy(&m[i]);
}
END_TEST

/* ---- names -------------------------------------------------------------- */

/* The parameters of a module are the "init." entries of a golden file. */
static void
assert_golden_names(const char *file, fsdp_module_t *m)
{
    fsdp_safetensors_t *golden = golden_open(file);
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(m, p, MAX_PARAMETERS), found = 0;
    for (size_t i = 0; i < fsdp_safetensors_count(golden); i++) {
        const fsdp_safetensors_entry_t *e = fsdp_safetensors_entry(golden, i);
        if (strncmp(e->name, "init.", 5) != 0)
            continue;
        ck_assert_uint_lt(found, count);
        ck_assert_str_eq(p[found]->name, e->name + 5);
        ck_assert_int_eq(p[found]->ndim, e->ndim);
        for (int d = 0; d < e->ndim; d++)
            ck_assert_uint_eq(p[found]->shape[d], e->shape[d]);
        found++;
    }
    ck_assert_uint_eq(found, count);
    fsdp_safetensors_close(&golden);
    fsdp_module_destroy(&m);
}

/* Order, names and shapes of named_parameters(). */
START_TEST(names_are_pytorchs)
{
    fsdp_gpt2_config_t c = fsdp_gpt2_config_default();
    c.n_layer = 2;
    c.n_head = 2;
    c.n_embd = 8;
    c.vocab_size = 17;
    c.n_positions = 10;
    assert_golden_names("gpt2_sgd", fsdp_gpt2_create(&c));
    c.tie_word_embeddings = false;
    assert_golden_names("gpt2_untied_sgd", fsdp_gpt2_create(&c));
    fsdp_mlp_config_t mlp = {.num_layers = 3, .width = {5, 7, 6, 3}};
    assert_golden_names("mlp_sgd", fsdp_mlp_create(&mlp));
}
END_TEST

/* Units for fully_shard(), and fields left 0. */
START_TEST(parts_and_defaults)
{
    fsdp_module_t *m = fsdp_gpt2_create(&(fsdp_gpt2_config_t){.n_layer = 2});
    const fsdp_gpt2_config_t *c = fsdp_gpt2_get_config(m);
    fsdp_gpt2_config_t d = fsdp_gpt2_config_default();
    ck_assert_str_eq(fsdp_gpt2_block(m, 0)->name, "transformer.h.0");
    ck_assert_str_eq(fsdp_gpt2_block(m, 1)->name, "transformer.h.1");
    ck_assert(c->n_layer == 2 && c->n_embd == d.n_embd);
    ck_assert(c->n_head == d.n_head && c->vocab_size == d.vocab_size);
    ck_assert(c->n_positions == d.n_positions && c->dtype == FSDP_FP32);
    ck_assert(c->layer_norm_epsilon == 1e-5 && c->initializer_range == 0.02);
    fsdp_module_destroy(&m);
    fsdp_mlp_config_t mlp = {.num_layers = 2, .width = {5, 7, 3}};
    m = fsdp_mlp_create(&mlp);
    ck_assert_int_eq(fsdp_mlp_num_layers(m), 2);
    ck_assert_str_eq(fsdp_mlp_layer(m, 1)->name, "layers.1");
    fsdp_module_destroy(&m);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("initial values");
    TCase *tcase = tcase_create("initial values");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, gpt2_distributions);
    tcase_add_test(tcase, layer_distributions);
    tcase_add_test(tcase, independent_of_order);
    tcase_add_test(tcase, seed_and_name_count);
    tcase_add_test(tcase, names_are_pytorchs);
    tcase_add_test(tcase, parts_and_defaults);
    return mck_run(argc, argv, suite);
}
