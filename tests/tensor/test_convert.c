/* Ranks: 1 */
/* Conversions between floating types, against arithmetic on whole numbers: a
 * 16-bit code's value is sign x fraction x 2^exponent, and rounding chooses the
 * nearest of the sorted values, an even code when two are as near.  All 65,536
 * codes, both ways, and all borders between neighbours. */
#include "mck.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fsdp/tensor.h"
#include "twin/numbers.h"

/* ck_assert() tells a file where it stands each time, too slow for millions. */
#define must(cond)                                                             \
    do {                                                                       \
        if (!(cond))                                                           \
            ck_abort_msg("false: %s", #cond);                                  \
    } while (0)

/* A 16-bit format: bits of the fraction, and the exponent's bias. */
typedef struct format {
    fsdp_dtype_t dtype;
    int fraction_bits, bias;
    uint16_t infinity;
} format_t;

static const format_t formats[] = {
    {FSDP_BF16, 7, 127, 0x7f80},
    {FSDP_FP16, 10, 15, 0x7c00},
};

/* The value of a code; that of infinity is where its number would be, which is
 * what rounding compares with. */
static double
value_of(const format_t *f, uint16_t code)
{
    int exponent = (code & 0x7fff) >> f->fraction_bits;
    int fraction = code & ((1 << f->fraction_bits) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        fraction += 1 << f->fraction_bits;
    double v = ldexp(fraction, exponent - f->bias - f->fraction_bits);
    return code & 0x8000 ? -v : v;
}

static bool
is_nan(const format_t *f, uint16_t code)
{
    return (code & 0x7fff) > f->infinity;
}

static uint16_t
narrow(const format_t *f, fsdp_dtype_t from, const void *x)
{
    uint16_t code;
    fsdp_convert(from, x, f->dtype, &code, 1);
    return code;
}

/* Every code becomes its value in float32 and float64, and comes back. */
static void
check_codes(const format_t *f, fsdp_dtype_t wide)
{
    enum { N = 65536 };
    uint16_t *code = twin_alloc(N, sizeof *code);
    uint16_t *back = twin_alloc(N, sizeof *back);
    numbers_t x = numbers_make(wide, N);
    for (int i = 0; i < N; i++)
        code[i] = (uint16_t)i;
    fsdp_convert(f->dtype, code, wide, x.data, N);
    fsdp_convert(wide, x.data, f->dtype, back, N);
    for (size_t i = 0; i < N; i++) {
        double v = numbers_get(x, i);
        must((signbit(v) != 0) == ((i & 0x8000) != 0));
        if (is_nan(f, code[i])) {
            must(isnan(v) && is_nan(f, back[i]));
            continue;
        }
        bool infinite = (i & 0x7fff) == f->infinity;
        must(infinite ? isinf(v) != 0 : v == value_of(f, code[i]));
        must(back[i] == code[i]);
    }
    fsdp_free(code);
    fsdp_free(back);
    numbers_free(x);
}

START_TEST(all_codes)
{
    for (int i = 0; i < 2; i++) {
        check_codes(&formats[i], FSDP_FP32);
        check_codes(&formats[i], FSDP_FP64);
    }
}
END_TEST

/* Half way between code and code + 1 (both of the same sign) the even one of
 * the two wins; the next number on either side goes to its own. */
static void
check_border(const format_t *f, uint16_t code)
{
    double low = value_of(f, code), high = value_of(f, code + 1);
    double half = low + (high - low) / 2;
    uint16_t even = code & 1 ? code + 1 : code;
    double toward = nextafter(half, low), past = nextafter(half, high);
    must(narrow(f, FSDP_FP64, &half) == even);
    must(narrow(f, FSDP_FP64, &toward) == code);
    must(narrow(f, FSDP_FP64, &past) == code + 1);
    float tie = (float)half, below, above;
    must((double)tie == half);
    below = nextafterf(tie, (float)low);
    above = nextafterf(tie, (float)high);
    must(narrow(f, FSDP_FP32, &tie) == even);
    must(narrow(f, FSDP_FP32, &below) == code);
    must(narrow(f, FSDP_FP32, &above) == code + 1);
}

START_TEST(all_borders)
{
    for (int i = 0; i < 2; i++)
        for (uint16_t code = 0; code < formats[i].infinity; code++) {
            check_border(&formats[i], code);
            check_border(&formats[i], code | 0x8000);
        }
}
END_TEST

/* Numbers all over the range of float64 and float32, by search: of the codes
 * around it none may be nearer. */
static void
check_nearest(const format_t *f, double x)
{
    uint16_t code = narrow(f, FSDP_FP64, &x);
    uint16_t low = 0, high = f->infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value_of(f, middle) <= fabs(x))
            low = middle;
        else
            high = middle;
    }
    /* Exact where it matters, in the middle between the two. */
    double below = fabs(x) - value_of(f, low),
           above = value_of(f, high) - fabs(x);
    uint16_t want = below < above   ? low
                    : above < below ? high
                    : low & 1       ? high
                                    : low;
    want |= signbit(x) ? 0x8000 : 0;
    if (code != want)
        ck_abort_msg("%a to %s: %04x, not %04x", x, fsdp_dtype_name(f->dtype),
                     code, want);
    float single = (float)x;
    if ((double)single == x)
        must(narrow(f, FSDP_FP32, &single) == want);
}

START_TEST(nearest)
{
    for (int i = 0; i < 2; i++)
        for (size_t n = 0; n < 100000; n++) {
            int exponent = (int)(n % 300) - 150;
            double x = twin_random(1, n) * ldexp(1, exponent);
            check_nearest(&formats[i], x);
            check_nearest(&formats[i], (double)(float)x);
            check_nearest(&formats[i], x + x * twin_random(2, n) * 0x1p-30);
        }
}
END_TEST

/* What lies outside: infinities, overflow, NaN with its fraction in the bits
 * that are cut off, numbers below half of the smallest. */
START_TEST(outside)
{
    for (int i = 0; i < 2; i++) {
        const format_t *f = &formats[i];
        double huge = 0x1p200, tiny = 0x1p-200, inf = INFINITY;
        float max = 0x1.fffffep127f, least = 0x1p-149f, nan;
        uint32_t bits = 0xff800001;
        memcpy(&nan, &bits, 4);
        ck_assert_int_eq(narrow(f, FSDP_FP64, &huge), f->infinity);
        ck_assert_int_eq(narrow(f, FSDP_FP64, &inf), f->infinity);
        ck_assert_int_eq(narrow(f, FSDP_FP32, &max), f->infinity);
        ck_assert_int_eq(narrow(f, FSDP_FP64, &tiny), 0);
        ck_assert_int_eq(narrow(f, FSDP_FP32, &least), 0);
        ck_assert(is_nan(f, narrow(f, FSDP_FP32, &nan)));
        huge = -huge, inf = -inf, tiny = -tiny;
        ck_assert_int_eq(narrow(f, FSDP_FP64, &huge), f->infinity | 0x8000);
        ck_assert_int_eq(narrow(f, FSDP_FP64, &inf), f->infinity | 0x8000);
        ck_assert_int_eq(narrow(f, FSDP_FP64, &tiny), 0x8000);
        inf = NAN;
        ck_assert(is_nan(f, narrow(f, FSDP_FP64, &inf)));
    }
}
END_TEST

/* Between the two 16-bit types: as by way of the exact value. */
START_TEST(half_to_half)
{
    for (uint32_t i = 0; i < 65536; i++)
        for (int d = 0; d < 2; d++) {
            const format_t *from = &formats[d], *to = &formats[1 - d];
            uint16_t code = (uint16_t)i, got;
            fsdp_convert(from->dtype, &code, to->dtype, &got, 1);
            double x = value_of(from, code);
            if (is_nan(from, code)) {
                must(is_nan(to, got));
                continue;
            }
            if ((code & 0x7fff) == from->infinity)
                x = code & 0x8000 ? -INFINITY : INFINITY;
            must(got == narrow(to, FSDP_FP64, &x));
        }
}
END_TEST

/* float64 to float32 is the processor's; long arrays, any length, on several
 * threads, and nothing behind the end. */
START_TEST(arrays)
{
    static const size_t sizes[] = {0, 1, 3, 511, 513, 16385, 50000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        numbers_t x = numbers_random(FSDP_FP64, n, 1, 0.1);
        numbers_t y = numbers_make(FSDP_FP32, n);
        uint16_t *half = twin_alloc(n + 1, sizeof *half);
        half[n] = 0xabcd;
        fsdp_set_num_threads(3);
        fsdp_convert(FSDP_FP64, x.data, FSDP_FP32, y.data, n);
        fsdp_convert(FSDP_FP64, x.data, FSDP_BF16, half, n);
        fsdp_set_num_threads(1);
        for (size_t i = 0; i < n; i++) {
            double v = numbers_get(x, i);
            must(numbers_get(y, i) == (double)(float)v);
            must(half[i] == narrow(&formats[0], FSDP_FP64, &v));
        }
        ck_assert(numbers_guarded(y) && half[n] == 0xabcd);
        fsdp_free(half);
        numbers_free(x);
        numbers_free(y);
    }
}
END_TEST

/* Equal types are copied, whatever they are. */
START_TEST(copies)
{
    int32_t in[5] = {1, -2, 3, 1 << 30, 5}, out[5] = {0};
    fsdp_convert(FSDP_INT32, in, FSDP_INT32, out, 5);
    ck_assert(memcmp(in, out, sizeof in) == 0);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("convert");
    TCase *tcase = tcase_create("convert");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, all_codes);
    tcase_add_test(tcase, all_borders);
    tcase_add_test(tcase, nearest);
    tcase_add_test(tcase, outside);
    tcase_add_test(tcase, half_to_half);
    tcase_add_test(tcase, arrays);
    tcase_add_test(tcase, copies);
    return mck_run(argc, argv, suite);
}
