/* Ranks: 1 */
/* Kernels whose elements do not depend on each other: exact where they are one
 * operation, GELU within its twin's bound. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/gelu.h"
#include "twin/numbers.h"
#include "twin/silu.h"

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
run_multiply(const fsdp_kernels_t *k, numbers_t a, numbers_t b, numbers_t y)
{
    k->multiply(a.data, b.data, y.data, y.n);
}

static double
exact_multiply(double a, double b)
{
    return a * b;
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
    {"multiply", run_multiply, exact_multiply},
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

typedef enum activation { GELU_TANH, GELU_ERF, SILU, ACTIVATIONS } activation_t;
static const char *const activation_name[] = {"gelu with tanh", "gelu with erf",
                                              "silu"};

static bounded_t
gelu_twin(bool with_erf, bool backward, double x, double dy)
{
    if (fabs(x) > 50) /* the twin's formula has no bound where x^3 is endless */
        return limit(backward, x, dy);
    if (with_erf)
        return backward ? twin_gelu_erf_backward(x, dy) : twin_gelu_erf(x);
    return backward ? twin_gelu_tanh_backward(x, dy) : twin_gelu_tanh(x);
}

static bounded_t
activation_twin(activation_t which, bool backward, double x, double dy)
{
    if (which != SILU)
        return gelu_twin(which == GELU_ERF, backward, x, dy);
    if (isinf(x))
        return limit(backward, x, dy);
    return backward ? twin_silu_backward(x, dy) : twin_silu(x);
}

static void
run_activation(activation_t which, bool backward, numbers_t x, numbers_t dy,
               numbers_t y)
{
    const fsdp_kernels_t *k = fsdp_kernels(x.dtype);
    bool with_erf = which == GELU_ERF;
    if (which == SILU && backward)
        k->silu_backward(x.data, dy.data, y.data, x.n);
    else if (which == SILU)
        k->silu(x.data, y.data, x.n);
    else if (backward)
        (with_erf ? k->gelu_erf_backward
                  : k->gelu_tanh_backward)(x.data, dy.data, y.data, x.n);
    else
        (with_erf ? k->gelu_erf : k->gelu_tanh)(x.data, y.data, x.n);
}

static void
check_activation(activation_t which, bool backward, numbers_t x)
{
    numbers_t y = numbers_make(x.dtype, x.n);
    numbers_t dy = numbers_random(x.dtype, x.n, 9, 2);
    bounded_t *want = twin_alloc(x.n, sizeof *want);
    twin_begin(x.dtype);
    for (size_t i = 0; i < x.n; i++)
        want[i] = activation_twin(which, backward, numbers_get(x, i),
                                  numbers_get(dy, i));
    run_activation(which, backward, x, dy, y);
    bool good = numbers_agree(backward ? "backward" : "forward", y, want);
    ck_assert_msg(good, "%s", activation_name[which]);

    numbers_t in_place = numbers_copy(backward ? dy : x);
    run_activation(which, backward, backward ? x : in_place, in_place,
                   in_place);
    ck_assert(numbers_same_bits(in_place, y));
    fsdp_free(want);
    numbers_free(in_place);
    numbers_free(y);
    numbers_free(dy);
}

static void
check_gelus(numbers_t x)
{
    for (int i = 0; i < 2 * ACTIVATIONS; i++)
        check_activation((activation_t)(i / 2), i % 2, x);
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

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("elementwise");
    TCase *tcase = tcase_create("elementwise");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, one_operation);
    tcase_add_test(tcase, accumulate_and_scalars);
    tcase_add_test(tcase, gelu);
    return mck_run(argc, argv, suite);
}
