/* Ranks: 1 */
/* Kernels whose elements do not depend on each other: exact where they are one
 * operation, GELU within its twin's bound. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/gelu.h"
#include "twin/numbers.h"

/* Uneven, one vector more or less, one block of 16384 more or less. */
static const size_t sizes[] = {0,  1,   2,    3,     5,     15,    16,
                               17, 257, 1023, 16383, 16384, 16385, 40001};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

/* A value of its own for each of the first elements of an array. */
static const double extremes[] = {
    0.0,     -0.0,     INFINITY,  -INFINITY, NAN,  0x1p127, -0x1p127, 0x1p100,
    -0x1p64, 0x1p-126, -0x1p-140, 0x1p-149,  1e30, -1e5,    100,      -100,
    30.5,    -30.5,    0x1p-30,   -0x1p-12,  9.25, -9.25,   -5.5,     5.5,
};
enum { NUM_EXTREMES = sizeof extremes / sizeof *extremes };

static numbers_t
with_extremes(fsdp_dtype_t dtype, size_t n, uint32_t seed)
{
    numbers_t x = numbers_random(dtype, n, seed, 4);
    for (size_t i = 0; i < n && i < NUM_EXTREMES; i++)
        numbers_set(x, i, extremes[(i + seed) % NUM_EXTREMES]);
    return x;
}

/* -- one operation: the result is the correctly rounded one -- */

typedef struct op {
    const char *name;
    void (*run)(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y);
    double (*exact)(double a, double b);
} op_t;

static const double scalar = 1.7099609375; /* both types have it */

static void
run_fill(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    (void)a, (void)b;
    k->fill(y.data, scalar, y.n);
}

static double
exact_fill(double a, double b)
{
    (void)a, (void)b;
    return scalar;
}

static void
run_add(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    k->add(a.data, b.data, y.data, y.n);
}

static double
exact_add(double a, double b)
{
    return a + b;
}

static void
run_scale(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    (void)b;
    k->scale(a.data, scalar, y.data, y.n);
}

static double
exact_scale(double a, double b)
{
    (void)b;
    return a * scalar;
}

static void
run_divide(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    (void)b;
    k->divide(a.data, scalar, y.data, y.n);
}

static double
exact_divide(double a, double b)
{
    (void)b;
    return a / scalar;
}

static void
run_relu(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    (void)b;
    k->relu(a.data, y.data, y.n);
}

static double
exact_relu(double a, double b)
{
    (void)b;
    return a > 0 || isnan(a) ? a : 0;
}

static void
run_relu_backward(const fsdp_kernels_t *k, numbers_t a, numbers_t b,
                  numbers_t y)
{
    k->relu_backward(a.data, b.data, y.data, y.n);
}

static double
exact_relu_backward(double a, double b)
{
    return a > 0 ? b : 0;
}

static const op_t ops[] = {
    {"fill", run_fill, exact_fill},
    {"add", run_add, exact_add},
    {"scale", run_scale, exact_scale},
    {"divide", run_divide, exact_divide},
    {"relu", run_relu, exact_relu},
    {"relu_backward", run_relu_backward, exact_relu_backward},
};
enum { NUM_OPS = sizeof ops / sizeof *ops };

/* In place of a as well, for `out may be in`. */
static void
check_op(const op_t *op, fsdp_dtype_t dtype, size_t n)
{
    numbers_t a = with_extremes(dtype, n, 1), b = with_extremes(dtype, n, 5);
    numbers_t y = numbers_make(dtype, n);
    double *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] =
            twin_round(dtype, op->exact(numbers_get(a, i), numbers_get(b, i)));
    op->run(fsdp_kernels(dtype), a, b, y);
    bool good = numbers_equal(op->name, y, want);
    op->run(fsdp_kernels(dtype), a, b, a);
    good &= numbers_equal(op->name, a, want);
    ck_assert(good);
    fsdp_free(want);
    numbers_free(a);
    numbers_free(b);
    numbers_free(y);
}

START_TEST(one_operation)
{
    for (size_t s = 0; s < NUM_SIZES; s++)
        for (size_t i = 0; i < NUM_OPS; i++) {
            check_op(&ops[i], FSDP_FP32, sizes[s]);
            check_op(&ops[i], FSDP_FP64, sizes[s]);
        }
}
END_TEST

static void
check_accumulate(fsdp_dtype_t dtype, size_t n)
{
    numbers_t x = with_extremes(dtype, n, 1), y = with_extremes(dtype, n, 5);
    double *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = twin_round(dtype, numbers_get(y, i) + numbers_get(x, i));
    fsdp_kernels(dtype)->accumulate(y.data, x.data, n);
    ck_assert(numbers_equal("accumulate", y, want));
    fsdp_free(want);
    numbers_free(x);
    numbers_free(y);
}

/* Scalars are rounded to the type before they meet an element. */
static void
check_scalars(fsdp_dtype_t dtype)
{
    double third = twin_round(dtype, 1.0 / 3), x[] = {3, 7, 0x1p-20};
    double scaled[3], divided[3];
    numbers_t in = numbers_make(dtype, 3), out = numbers_make(dtype, 3);
    for (size_t i = 0; i < 3; i++) {
        numbers_set(in, i, x[i]);
        scaled[i] = twin_round(dtype, x[i] * third);
        divided[i] = twin_round(dtype, x[i] / third);
    }
    fsdp_kernels(dtype)->scale(in.data, 1.0 / 3, out.data, 3);
    ck_assert(numbers_equal("scale", out, scaled));
    fsdp_kernels(dtype)->divide(in.data, 1.0 / 3, out.data, 3);
    ck_assert(numbers_equal("divide", out, divided));
    numbers_free(in);
    numbers_free(out);
}

START_TEST(accumulate_and_scalars)
{
    for (size_t s = 0; s < NUM_SIZES; s++) {
        check_accumulate(FSDP_FP32, sizes[s]);
        check_accumulate(FSDP_FP64, sizes[s]);
    }
    check_scalars(FSDP_FP32);
    check_scalars(FSDP_FP64);
}
END_TEST

/* -- GELU -- */

/* The limits: GELU of -infinity is a NaN by its formula (infinity times 0), in
 * PyTorch too, so it is left out; the slope has the limits 0 and 1. */
static bounded_t
limit(bool backward, double x, double dy)
{
    double slope = x > 0 ? 1 : 0;
    return b_round_tiny(backward ? dy * slope : x * slope, 0, 4);
}

static bounded_t
gelu_twin(bool with_erf, bool backward, double x, double dy)
{
    if (fabs(x) > 50) /* the twin's formula has no bound where x^3 is endless */
        return limit(backward, x, dy);
    if (with_erf)
        return backward ? twin_gelu_erf_backward(x, dy) : twin_gelu_erf(x);
    return backward ? twin_gelu_tanh_backward(x, dy) : twin_gelu_tanh(x);
}

static void
run_gelu(bool with_erf, bool backward, numbers_t x, numbers_t dy, numbers_t y)
{
    const fsdp_kernels_t *k = fsdp_kernels(x.dtype);
    if (backward)
        (with_erf ? k->gelu_erf_backward
                  : k->gelu_tanh_backward)(x.data, dy.data, y.data, x.n);
    else
        (with_erf ? k->gelu_erf : k->gelu_tanh)(x.data, y.data, x.n);
}

static void
check_gelu(bool with_erf, bool backward, numbers_t x)
{
    numbers_t y = numbers_make(x.dtype, x.n);
    numbers_t dy = numbers_random(x.dtype, x.n, 9, 2);
    bounded_t *want = twin_alloc(x.n, sizeof *want);
    twin_begin(x.dtype);
    for (size_t i = 0; i < x.n; i++)
        want[i] = gelu_twin(with_erf, backward, numbers_get(x, i),
                            numbers_get(dy, i));
    run_gelu(with_erf, backward, x, dy, y);
    bool good = numbers_agree(backward ? "gelu backward" : "gelu", y, want);
    ck_assert_msg(good, "with %s", with_erf ? "erf" : "tanh");

    numbers_t in_place = numbers_copy(backward ? dy : x);
    run_gelu(with_erf, backward, backward ? x : in_place, in_place, in_place);
    ck_assert(numbers_same_bits(in_place, y));
    fsdp_free(want);
    numbers_free(in_place);
    numbers_free(y);
    numbers_free(dy);
}

static void
check_gelus(numbers_t x)
{
    for (int i = 0; i < 4; i++)
        check_gelu(i & 1, i & 2, x);
    numbers_free(x);
}

/* A walk over [-12, 12], where the functions are not yet flat. */
static numbers_t
walk(fsdp_dtype_t dtype, size_t n)
{
    numbers_t x = numbers_make(dtype, n);
    for (size_t i = 0; i < n; i++)
        numbers_set(x, i, 24.0 * (double)i / (double)n - 12);
    return x;
}

START_TEST(gelu)
{
    static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
    for (int t = 0; t < 2; t++) {
        for (size_t s = 0; s < NUM_SIZES; s++) {
            numbers_t x = with_extremes(dtypes[t], sizes[s], 0);
            if (x.n > 3)
                numbers_set(x, 3, -11.5); /* for -infinity */
            check_gelus(x);
        }
        check_gelus(walk(dtypes[t], 100000));
    }
}
END_TEST

/* -- dropout -- */

/* Word e of stream (seed, dropout, layer, step << 32 | sample) decides. */
static double
dropped(const fsdp_dropout_key_t *key, size_t sample, size_t e, double x,
        fsdp_dtype_t dtype)
{
    uint32_t word = fsdp_random_word(
        key->seed, FSDP_RANDOM_DROPOUT, key->layer,
        (uint64_t)key->step << 32 | (key->first_sample + (uint32_t)sample), e);
    double scale = twin_round(dtype, 1 / (1 - key->p));
    return fsdp_random_uniform(word) >= key->p ? twin_round(dtype, x * scale)
                                               : 0;
}

static void
check_dropout(fsdp_dtype_t dtype, double p, size_t samples, size_t per_sample)
{
    fsdp_dropout_key_t key = {.p = p,
                              .seed = 0x123456789abcdefu,
                              .step = 0xfffffffeu,
                              .first_sample = 70000,
                              .layer = 5};
    size_t n = samples * per_sample;
    numbers_t x = numbers_random(dtype, n, 4, 1), y = numbers_make(dtype, n);
    double *want = twin_alloc(n, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = p == 0 ? numbers_get(x, i)
                         : dropped(&key, i / per_sample, i % per_sample,
                                   numbers_get(x, i), dtype);
    fsdp_kernels(dtype)->dropout(&key, x.data, y.data, samples, per_sample);
    bool good = numbers_equal("dropout", y, want);
    fsdp_kernels(dtype)->dropout(&key, x.data, x.data, samples, per_sample);
    ck_assert(good && numbers_equal("dropout in place", x, want));
    fsdp_free(want);
    numbers_free(x);
    numbers_free(y);
}

START_TEST(dropout)
{
    static const double ps[] = {0, 0.1, 0.5, 1};
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++)
        for (int d = 0; d < 2; d++) {
            fsdp_dtype_t dtype = d ? FSDP_FP64 : FSDP_FP32;
            check_dropout(dtype, ps[i], 1, 1);
            check_dropout(dtype, ps[i], 3, 5);
            check_dropout(dtype, ps[i], 5, 257);
            check_dropout(dtype, ps[i], 2, 16387);
            check_dropout(dtype, ps[i], 0, 7);
        }
}
END_TEST

/* The border: p is just a word's number, and just above it. */
START_TEST(dropout_at_the_border)
{
    fsdp_dropout_key_t key = {.seed = 1, .layer = 2};
    uint32_t word = fsdp_random_word(1, FSDP_RANDOM_DROPOUT, 2, 0, 0);
    float x = 1, y = -1;
    key.p = fsdp_random_uniform(word);
    fsdp_kernels(FSDP_FP32)->dropout(&key, &x, &y, 1, 1);
    ck_assert(y == (float)(1 / (1 - key.p)));
    key.p = nextafter(key.p, 1);
    fsdp_kernels(FSDP_FP32)->dropout(&key, &x, &y, 1, 1);
    ck_assert(y == 0);
}
END_TEST

/* Sample b is the same whether it comes first or third in a batch. */
START_TEST(dropout_of_a_part_of_the_batch)
{
    fsdp_dropout_key_t key = {.p = 0.3, .seed = 8, .step = 3, .layer = 1};
    numbers_t x = numbers_random(FSDP_FP32, 400, 1, 1);
    numbers_t all = numbers_make(FSDP_FP32, 400);
    numbers_t part = numbers_make(FSDP_FP32, 100);
    fsdp_kernels(FSDP_FP32)->dropout(&key, x.data, all.data, 4, 100);
    key.first_sample = 2;
    fsdp_kernels(FSDP_FP32)->dropout(&key, (float *)x.data + 200, part.data, 1,
                                     100);
    ck_assert(memcmp(part.data, (float *)all.data + 200, 400) == 0);
    numbers_free(x);
    numbers_free(all);
    numbers_free(part);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("elementwise");
    TCase *tcase = tcase_create("elementwise");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, one_operation);
    tcase_add_test(tcase, accumulate_and_scalars);
    tcase_add_test(tcase, gelu);
    tcase_add_test(tcase, dropout);
    tcase_add_test(tcase, dropout_at_the_border);
    tcase_add_test(tcase, dropout_of_a_part_of_the_batch);
    return mck_run(argc, argv, suite);
}
