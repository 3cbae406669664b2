/* exp, log, tanh, erf and 1/sqrt: within 2 ULP everywhere, and the same bits in
 * a vector loop as alone. */
/* Ranks: 1 */
#include "serial.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vmath.h"
#include "cases.h"
#include "fsdp/random.h"

static const double max_ulps = 2.0;

typedef struct float_function {
    const char *name;
    float (*f)(float);
    double (*libm)(double);
} float_function_t;

typedef struct double_function {
    const char *name;
    double (*f)(double);
    long double (*libm)(long double);
    const double (*cases)[2];
    size_t num_cases;
    double low, high; /* where it is neither constant nor NaN */
} double_function_t;

static double
rsqrt_of_double(double x)
{
    return 1.0 / sqrt(x);
}

static long double
rsqrt_of_long_double(long double x)
{
    return 1.0L / sqrtl(x);
}

static const float_function_t float_functions[] = {
    {"exp", fsdp_expf, exp},
    {"log", fsdp_logf, log},
    {"tanh", fsdp_tanhf, tanh},
    {"erf", fsdp_erff, erf},
    {"rsqrt", fsdp_rsqrtf, rsqrt_of_double},
};

#define CASES(name) name##_cases, sizeof name##_cases / sizeof name##_cases[0]

static const double_function_t double_functions[] = {
    {"exp", fsdp_exp, expl, CASES(exp), -746.0, 710.0},
    {"log", fsdp_log, logl, CASES(log), 0.0, 3.0},
    {"tanh", fsdp_tanh, tanhl, CASES(tanh), -20.0, 20.0},
    {"erf", fsdp_erf, erfl, CASES(erf), -6.2, 6.2},
    {"rsqrt", fsdp_rsqrt, rsqrt_of_long_double, CASES(rsqrt), 0.0, 4.0},
};

enum { NUM_FUNCTIONS = 5 };

typedef struct format {
    int digits, least,
        most; /* of the mantissa and the exponent, as <float.h> */
} format_t;

static const format_t float_format = {FLT_MANT_DIG, FLT_MIN_EXP, FLT_MAX_EXP};
static const format_t double_format = {DBL_MANT_DIG, DBL_MIN_EXP, DBL_MAX_EXP};

/* What is too large, as the power of two that infinity begins with. */
static long double
clamp(long double x, const format_t *format)
{
    long double limit = ldexpl(1.0L, format->most);
    return fabsl(x) > limit ? copysignl(limit, x) : x;
}

/* The distance of `got` from `want` in units of the last place of `want`. */
static double
ulps(long double got, long double want, const format_t *format)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0.0 : INFINITY;
    if ((signbit(got) != 0) != (signbit(want) != 0))
        return INFINITY;
    int exponent = format->most;
    want = clamp(want, format);
    if (fabsl(want) < ldexpl(1.0L, format->most))
        frexpl(want, &exponent);
    exponent = exponent > format->least ? exponent : format->least;
    long double unit = ldexpl(1.0L, exponent - format->digits);
    return (double)(fabsl(clamp(got, format) - want) / unit);
}

static double
float_ulps(float got, double want)
{
    return ulps((long double)got, (long double)want, &float_format);
}

static double
double_ulps(double got, long double want)
{
    return ulps((long double)got, want, &double_format);
}

/* One of 997 of all bit patterns, so every exponent 8,000 times, NaNs and
 * infinities too; FSDP_ULP_STRIDE=1 tries all 2^32, in some minutes.  A double
 * of libm is exact enough to stand for the value. */
static uint64_t
stride(void)
{
    const char *text = getenv("FSDP_ULP_STRIDE");
    uint64_t value = text != NULL ? strtoull(text, NULL, 10) : 997;
    ck_assert(value > 0);
    return value;
}

START_TEST(floats_of_all_exponents)
{
    uint64_t step = stride();
    const float_function_t *function = &float_functions[_i];
    double worst = 0.0;
    float at = 0.0f;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += step) {
        float x = fsdp_f32_of_bits((uint32_t)bits);
        double error = float_ulps(function->f(x), function->libm((double)x));
        at = error > worst ? x : at;
        worst = error > worst ? error : worst;
    }
    ck_assert_msg(worst <= max_ulps, "%s(%a): %f ULP", function->name,
                  (double)at, worst);
    ck_assert(worst > 0.0);
}
END_TEST

/* Values of libm's long double, which are off by 2^-10 ULP of a double at most
 * where they have 64 bits. */
static double
worst_of(const double_function_t *function, bool any_bits, int n)
{
    double worst = 0.0;
    for (int i = 0; i < n; i++) {
        uint32_t block[4];
        fsdp_random_block(1, FSDP_RANDOM_TEST, 0, any_bits, (uint64_t)i, block);
        uint64_t bits = (uint64_t)block[0] << 32 | block[1];
        double x = fsdp_f64_of_bits(bits);
        if (!any_bits)
            x = function->low +
                (function->high - function->low) * (double)bits * 0x1p-64;
        double error =
            double_ulps(function->f(x), function->libm((long double)x));
        worst = error > worst ? error : worst;
    }
    return worst;
}

START_TEST(doubles_against_long_doubles)
{
    const double_function_t *function = &double_functions[_i];
    if (LDBL_MANT_DIG < 64)
        return; /* then cases.h is all there is */
    double spread = worst_of(function, true, 100000);
    double inside = worst_of(function, false, 100000);
    ck_assert_msg(spread <= max_ulps && inside <= max_ulps, "%s: %f and %f ULP",
                  function->name, spread, inside);
    ck_assert(inside > 0.0);
}
END_TEST

START_TEST(doubles_against_200_bits)
{
    const double_function_t *function = &double_functions[_i];
    ck_assert_uint_ge(function->num_cases, 60);
    for (size_t i = 0; i < function->num_cases; i++) {
        double x = function->cases[i][0], want = function->cases[i][1];
        double got = function->f(x);
        /* `want` is rounded, which may take half a unit. */
        ck_assert_msg(double_ulps(got, (long double)want) <= max_ulps + 0.5,
                      "%s(%a) = %a, not %a", function->name, x, got, want);
    }
}
END_TEST

/* What C's Annex F says, for both precisions. */
#define check_special(name, x, want)                                           \
    do {                                                                       \
        double got_ = fsdp_##name(x), want_ = (want);                          \
        float gotf_ = fsdp_##name##f((float)(x));                              \
        ck_assert_msg(double_ulps(got_, (long double)want_) == 0.0, "%s(%g)",  \
                      #name, (double)(x));                                     \
        ck_assert_msg(float_ulps(gotf_, want_) == 0.0, "%sf(%g)", #name,       \
                      (double)(x));                                            \
    } while (0)

START_TEST(special_values)
{
    check_special(exp, 0.0, 1.0);
    check_special(exp, -0.0, 1.0);
    check_special(exp, INFINITY, INFINITY);
    check_special(exp, -INFINITY, 0.0);
    check_special(exp, 1e4, INFINITY);
    check_special(exp, -1e4, 0.0);
    check_special(exp, NAN, NAN);
    check_special(log, 1.0, 0.0);
    check_special(log, 0.0, -INFINITY);
    check_special(log, -0.0, -INFINITY);
    check_special(log, INFINITY, INFINITY);
    check_special(log, -1.0, NAN);
    check_special(log, -INFINITY, NAN);
    check_special(log, NAN, NAN);
    check_special(rsqrt, 4.0, 0.5);
    check_special(rsqrt, 0.0, INFINITY);
    check_special(rsqrt, -0.0, -INFINITY);
    check_special(rsqrt, INFINITY, 0.0);
    check_special(rsqrt, -1.0, NAN);
    check_special(rsqrt, NAN, NAN);
}
END_TEST

START_TEST(special_values_of_odd_functions)
{
    check_special(tanh, 0.0, 0.0);
    check_special(tanh, -0.0, -0.0);
    check_special(tanh, INFINITY, 1.0);
    check_special(tanh, -INFINITY, -1.0);
    check_special(tanh, 50.0, 1.0);
    check_special(tanh, NAN, NAN);
    check_special(erf, 0.0, 0.0);
    check_special(erf, -0.0, -0.0);
    check_special(erf, INFINITY, 1.0);
    check_special(erf, -INFINITY, -1.0);
    check_special(erf, -50.0, -1.0);
    check_special(erf, NAN, NAN);
}
END_TEST

/* Loops for the compiler to vectorise, for each generation of processors, and
 * what they are called by.  Nothing is fused, so all give the same bits. */
enum { LOOP = 4099 }; /* odd: some elements are left to a scalar rest */

#define DEFINE_LOOPS(suffix, attribute)                                        \
    DEFINE_LOOP(suffix, attribute, float, expf)                                \
    DEFINE_LOOP(suffix, attribute, float, logf)                                \
    DEFINE_LOOP(suffix, attribute, float, tanhf)                               \
    DEFINE_LOOP(suffix, attribute, float, erff)                                \
    DEFINE_LOOP(suffix, attribute, float, rsqrtf)                              \
    DEFINE_LOOP(suffix, attribute, double, exp)                                \
    DEFINE_LOOP(suffix, attribute, double, log)                                \
    DEFINE_LOOP(suffix, attribute, double, tanh)                               \
    DEFINE_LOOP(suffix, attribute, double, erf)                                \
    DEFINE_LOOP(suffix, attribute, double, rsqrt)                              \
    static void (*const float_loops_##suffix[])(const float *, float *) = {    \
        loop_expf_##suffix, loop_logf_##suffix, loop_tanhf_##suffix,           \
        loop_erff_##suffix, loop_rsqrtf_##suffix};                             \
    static void (*const double_loops_##suffix[])(const double *, double *) = { \
        loop_exp_##suffix, loop_log_##suffix, loop_tanh_##suffix,              \
        loop_erf_##suffix, loop_rsqrt_##suffix};

#define DEFINE_LOOP(suffix, attribute, type, name)                             \
    attribute static void loop_##name##_##suffix(const type *restrict x,       \
                                                 type *restrict y)             \
    {                                                                          \
        for (int i = 0; i < LOOP; i++)                                         \
            y[i] = fsdp_##name(x[i]);                                          \
    }

DEFINE_LOOPS(plain, )
#ifdef HAVE_TARGET_CLONES
DEFINE_LOOPS(v3, __attribute__((target("arch=x86-64-v3"))))
DEFINE_LOOPS(v4, __attribute__((target("arch=x86-64-v4"))))
#endif

/* Inputs around 1, of all sizes, and special ones. */
static double
loop_input(int i, double least, double most)
{
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, 1.0};
    uint32_t block[4];
    fsdp_random_block(5, FSDP_RANDOM_TEST, 0, 0, (uint64_t)i, block);
    double x = fsdp_random_normal(block[0]);
    if (i % 16 == 0)
        return special[i / 16 % 5];
    if (i % 16 == 1)
        return i / 16 % 2 == 0 ? most : least;
    if (i % 16 == 2)
        return least * (double)(block[1] >> 16);
    return i % 4 == 3 ? 100.0 * x : x;
}

static void
check_float_loop(void (*loop)(const float *, float *), float (*f)(float))
{
    static float x[LOOP], y[LOOP];
    for (int i = 0; i < LOOP; i++)
        x[i] = (float)loop_input(i, 0x1p-149, (double)FLT_MAX);
    loop(x, y);
    float (*volatile alone)(float) = f;
    for (int i = 0; i < LOOP; i++) {
        float z = alone(x[i]);
        ck_assert_msg(isnan(z) ? isnan(y[i]) : memcmp(&z, &y[i], 4) == 0,
                      "%a gives %a alone, %a in a loop", (double)x[i],
                      (double)z, (double)y[i]);
    }
}

static void
check_double_loop(void (*loop)(const double *, double *), double (*f)(double))
{
    static double x[LOOP], y[LOOP];
    for (int i = 0; i < LOOP; i++)
        x[i] = loop_input(i, 0x1p-1074, DBL_MAX);
    loop(x, y);
    double (*volatile alone)(double) = f;
    for (int i = 0; i < LOOP; i++) {
        double z = alone(x[i]);
        ck_assert_msg(isnan(z) ? isnan(y[i]) : memcmp(&z, &y[i], 8) == 0,
                      "%a gives %a alone, %a in a loop", x[i], z, y[i]);
    }
}

START_TEST(loops_give_the_same_bits)
{
    float (*f32)(float) = float_functions[_i].f;
    double (*f64)(double) = double_functions[_i].f;
    check_float_loop(float_loops_plain[_i], f32);
    check_double_loop(double_loops_plain[_i], f64);
#ifdef HAVE_TARGET_CLONES
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) {
        check_float_loop(float_loops_v3[_i], f32);
        check_double_loop(double_loops_v3[_i], f64);
    }
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw")) {
        check_float_loop(float_loops_v4[_i], f32);
        check_double_loop(double_loops_v4[_i], f64);
    }
#endif
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("vmath");
    TCase *tcase = tcase_create("vmath");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, floats_of_all_exponents, 0, NUM_FUNCTIONS);
    tcase_add_loop_test(tcase, doubles_against_long_doubles, 0, NUM_FUNCTIONS);
    tcase_add_loop_test(tcase, doubles_against_200_bits, 0, NUM_FUNCTIONS);
    tcase_add_test(tcase, special_values);
    tcase_add_test(tcase, special_values_of_odd_functions);
    tcase_add_loop_test(tcase, loops_give_the_same_bits, 0, NUM_FUNCTIONS);
    return serial_run(suite);
}
