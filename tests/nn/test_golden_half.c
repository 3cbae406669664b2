/* Ranks: 1 */
/* bfloat16 against PyTorch's values in data/golden/half.safetensors.
 *
 * Ours must be a number within the bound of float32 arithmetic, rounded once.
 * PyTorch's, which shows that the twin computes the same function, must be
 * within the bound of what it is known to round: products once; layer norm's
 * mean and 1 / deviation are kept as bfloat16 for the backward; each addition to
 * a gradient of its parameters, and to a row of an embedding's. */
#include "mck.h"

#include "nn/golden_half.h"
#include "twin/layer_norm.h"

static void
set_up(void)
{
    half_bounds_begin(FSDP_BF16);
    twin_begin(FSDP_BF16);
    golden = golden_open("half");
}

static void
tear_down(void)
{
    fsdp_safetensors_close(&golden);
}

/* ---- operators ---------------------------------------------------------- */

static void
load_shape(const char *of, const char *part, int *ndim, size_t *shape)
{
    char *name = fsdp_format("%s.%s", of, part);
    const fsdp_safetensors_entry_t *entry = golden_entry(golden, name);
    fsdp_free(name);
    *ndim = entry->ndim;
    for (int d = 0; d < entry->ndim; d++)
        shape[d] = entry->shape[d];
}

static nn_case_t
load_case(const char *name)
{
    const nn_case_t *o = nn_operators;
    while (strcmp(o->name, name) != 0)
        o++;
    nn_case_t c = *o;
    for (int k = 0; k < nn_case_arrays(&c); k++) {
        nn_array_t *a = &c.array[k];
        load_shape(name, a->name, &a->ndim, a->shape);
        a->value = read(name, a->name);
        a->grad = twin_alloc(nn_array_numel(a), sizeof *a->grad);
    }
    if (c.integers_name != NULL)
        load_shape(name, c.integers_name, &c.integers_ndim, c.integers_shape);
    c.upstream = read(name, "grad_out");
    return c;
}

typedef struct results {
    bounded_t *out, *grad[NN_MAX_ARRAYS];
} results_t;

static results_t
new_results(const nn_case_t *c)
{
    results_t r = {.out = twin_alloc(c->out_numel, sizeof(bounded_t))};
    for (int k = 0; k < nn_case_arrays(c); k++)
        r.grad[k] = twin_alloc(nn_array_numel(&c->array[k]), sizeof(bounded_t));
    return r;
}

static void
free_results(results_t *r)
{
    fsdp_free(r->out);
    for (int k = 0; k < NN_MAX_ARRAYS; k++)
        fsdp_free(r->grad[k]);
}

/* What PyTorch rounds besides. */
typedef void (*widen_t)(const nn_case_t *c, results_t *theirs);

static bool
check_case(const char *name, widen_t widen)
{
    nn_case_t c = load_case(name);
    nn_case_run(&c, FSDP_BF16);
    results_t ours = new_results(&c), theirs = new_results(&c);
    operator_bounds(name)(&c, ours.out, ours.grad);
    operator_bounds(name)(&c, theirs.out, theirs.grad);
    if (widen != NULL)
        widen(&c, &theirs);
    bool good = both(name, "out", c.out, ours.out, theirs.out);
    for (int k = 0; k < nn_case_arrays(&c); k++) {
        char *part = fsdp_format("grad.%s", c.array[k].name);
        good &= both(name, part, c.array[k].grad, ours.grad[k], theirs.grad[k]);
        fsdp_free(part);
    }
    free_results(&ours);
    free_results(&theirs);
    nn_case_free(&c);
    return good;
}

START_TEST(linear)
{
    ck_assert(check_case("linear", NULL));
}
END_TEST

/* A sum over rows kept in bfloat16: each addition rounds a number that is not
 * above the sum of the magnitudes, which the roundings may have made larger. */
static bounded_t
rounded_sum(const bounded_t *terms, size_t n)
{
    bounded_t sum = b_sum(terms, n);
    double magnitude = 0;
    for (size_t i = 0; i < n; i++)
        magnitude += fabs(terms[i].v) + terms[i].e;
    magnitude *= pow(1 + 0x1p-8, (double)n);
    sum.e += (double)n * half_last_place(FSDP_BF16, magnitude) / 2;
    return sum;
}

static void
embedding_rounds(const nn_case_t *c, results_t *theirs)
{
    size_t channels = c->array[0].shape[1], n = c->out_numel / channels;
    bounded_t terms[16];
    for (size_t i = 0; i < nn_array_numel(&c->array[0]); i++) {
        size_t count = 0;
        for (size_t r = 0; r < n; r++)
            if ((size_t)c->integers[r] == i / channels)
                terms[count++] =
                    b_exact(c->upstream[r * channels + i % channels]);
        theirs->grad[0][i] = rounded_sum(terms, count);
    }
}

START_TEST(embedding)
{
    ck_assert(check_case("embedding", embedding_rounds));
}
END_TEST

static numbers_t
numbers_of(const double *value, size_t n)
{
    numbers_t x = numbers_make(FSDP_FP64, n);
    memcpy(x.data, value, n * sizeof *value);
    return x;
}

/* dweight, from the kept statistics, and dbias. */
static void
parameter_grads(const twin_layer_norm_t *t, bounded_t *dweight,
                bounded_t *dbias)
{
    bounded_t *w = twin_alloc(t->rows, sizeof *w);
    bounded_t *b = twin_alloc(t->rows, sizeof *b);
    for (size_t i = 0; i < t->channels; i++) {
        for (size_t r = 0; r < t->rows; r++) {
            size_t at = r * t->channels + i;
            b[r] = b_exact(numbers_get(t->dy, at));
            w[r] = b_mul(b[r], twin_xhat(t, at, t->mean[r], t->rstd[r]));
        }
        dweight[i] = rounded_sum(w, t->rows);
        dbias[i] = rounded_sum(b, t->rows);
    }
    fsdp_free(w);
    fsdp_free(b);
}

/* The output is (x rstd - mean rstd) weight + bias there: the two products and
 * their difference are rounded, so three more units of each. */
static void
layer_norm_rounds(const nn_case_t *c, results_t *theirs)
{
    size_t channels = nn_array_numel(&c->array[1]), n = c->out_numel;
    size_t rows = n / channels;
    twin_layer_norm_t t = {.rows = rows,
                           .channels = channels,
                           .eps = 1e-5,
                           .x = numbers_of(c->array[0].value, n),
                           .weight = numbers_of(c->array[1].value, channels),
                           .bias = numbers_of(c->array[2].value, channels),
                           .dy = numbers_of(c->upstream, n),
                           .y = theirs->out,
                           .dx = theirs->grad[0],
                           .mean = twin_alloc(rows, sizeof(bounded_t)),
                           .rstd = twin_alloc(rows, sizeof(bounded_t))};
    twin_layer_norm_forward(&t);
    for (size_t i = 0; i < n; i++) {
        bounded_t mean = t.mean[i / channels], rstd = t.rstd[i / channels];
        double size = (fabs(c->array[0].value[i]) + fabs(mean.v) + mean.e) *
                      (rstd.v + rstd.e) * fabs(c->array[1].value[i % channels]);
        theirs->out[i].e += twin_gamma(3) * size;
    }
    for (size_t r = 0; r < rows; r++) {
        t.mean[r] = b_store(FSDP_BF16, t.mean[r]);
        t.rstd[r] = b_store(FSDP_BF16, t.rstd[r]);
        twin_layer_norm_dx(&t, r, t.mean[r], t.rstd[r]);
    }
    parameter_grads(&t, theirs->grad[1], theirs->grad[2]);
    fsdp_free(t.mean);
    fsdp_free(t.rstd);
    numbers_free(t.x);
    numbers_free(t.weight);
    numbers_free(t.bias);
    numbers_free(t.dy);
}

START_TEST(layer_norm)
{
    ck_assert(check_case("layer_norm", layer_norm_rounds));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden half");
    TCase *tcase = tcase_create("golden half");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, linear);
    tcase_add_test(tcase, embedding);
    tcase_add_test(tcase, layer_norm);
    return mck_run(argc, argv, suite);
}
