/** \file vmath_f32.h  Floor 0, base: elementary functions, float32.
 *
 *  Include base/vmath.h, which says what is promised.
 */
#ifndef FSDP_BASE_VMATH_F32_H
#define FSDP_BASE_VMATH_F32_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t
fsdp_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float
fsdp_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** exp(x) as a factor times 2^n, for |x| < 2^21: returns the factor, which is in
 *  [0.7, 1.42].
 *
 *  n is x / log 2, rounded to a whole number by adding and subtracting 1.5 2^23,
 *  whose last bits it is in between.  r = x - n log 2, in [-0.347, 0.347]; log
 *  2's upper part has 15 bits, so that n times it is exact.  exp r = 1 + (r +
 *  r^2 P(r)); P: minimax, error 2^-27. */
static inline float
fsdp_expf_factor(float x, int32_t *n)
{
    const float shift = 0x1.8p23f, ln2_high = 0x1.62e4p-1f,
                ln2_low = 0x1.7f7d1cp-20f;
    float shifted = x * 0x1.715476p+0f + shift, whole = shifted - shift;
    *n = (int32_t)(fsdp_bits_of_f32(shifted) - fsdp_bits_of_f32(shift));
    float r = (x - whole * ln2_high) - whole * ln2_low;

    float p = 0x1.6d76a2p-10f;
    p = p * r + 0x1.120c68p-7f;
    p = p * r + 0x1.5554b8p-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    return 1.0f + (r + r * r * p);
}

/** 2^n for -127 < n < 128. */
static inline float
fsdp_f32_power_of_2(int32_t n)
{
    return fsdp_f32_of_bits((uint32_t)(n + 127) << 23);
}

/** The exponential function.  2^n is applied as two factors, so that neither
 *  overflows and a subnormal result is rounded once. */
static inline float
fsdp_expf(float x)
{
    int32_t n;
    float clamped = x > 100.0f ? 100.0f : x;
    clamped = clamped < -110.0f ? -110.0f : clamped;
    float factor = fsdp_expf_factor(clamped, &n);
    int32_t half = n >> 1;
    float y =
        factor * fsdp_f32_power_of_2(half) * fsdp_f32_power_of_2(n - half);
    return x == x ? y : x;
}

/** The natural logarithm; NaN below zero, -infinity at zero.
 *
 *  x = 2^k m with m in [sqrt(1/2), sqrt(2)); f = m - 1, s = f / (2 + f).  Then
 *  log m = 2 atanh s = 2 s + s z P(z) with z = s^2, and since 2 s = f - s f and
 *  s f = f^2/2 - s f^2/2, it is f - (f^2/2 - s (f^2/2 + z P(z))), in which only
 *  the small terms are rounded.  P: minimax, error 2^-30. */
static inline float
fsdp_logf(float x)
{
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const uint32_t sqrt_half = 0x3f3504f3; /* bits of sqrt(1/2) */
    int subnormal = x < 0x1p-126f;
    uint32_t bits = fsdp_bits_of_f32(subnormal ? x * 0x1p23f : x);
    uint32_t moved = bits + (0x3f800000 - sqrt_half);
    float k = (float)((int32_t)(moved >> 23) - (subnormal ? 127 + 23 : 127));
    float f = fsdp_f32_of_bits((moved & 0x007fffff) + sqrt_half) - 1.0f;

    float s = f / (2.0f + f), z = s * s, half = 0.5f * f * f;
    float p = 0x1.2eebd6p-2f;
    p = p * z + 0x1.997c06p-2f;
    p = p * z + 0x1.55555cp-1f;
    float y = f - (half - (s * (half + z * p) + k * ln2_low));
    y = k * ln2_high + y;

    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x + x; /* infinity and NaN as they are */
}

/** The hyperbolic tangent: x + x z P(z), z = x^2, up to 0.6, where P is
 *  minimax with error 2^-31; beyond, 1 - 2 / (exp(2 |x|) + 1), which is 1 from
 *  9.02 on. */
static inline float
fsdp_tanhf(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 0x1.377650p-9f;
    p = p * z + -0x1.13be66p-7f;
    p = p * z + 0x1.65016ap-6f;
    p = p * z + -0x1.ba0e00p-5f;
    p = p * z + 0x1.1110f6p-3f;
    p = p * z + -0x1.555556p-2f;
    float near = x + x * (z * p);

    int32_t n;
    float factor = fsdp_expf_factor(a > 10.0f ? 20.0f : 2.0f * a, &n);
    float far = 1.0f - 2.0f / (factor * fsdp_f32_power_of_2(n) + 1.0f);
    float y = copysignf(a < 0.6f ? near : far, x);
    return x == x ? y : x;
}

/** The error function: x + x P(z), z = x^2, up to 1, where P is minimax with
 *  error 2^-29.6; beyond, 1 - exp(Q(|x| - 1)), where Q is minimax for log(erfc),
 *  with error 2^-30 in erf; from 3.93 on it is 1. */
static inline float
fsdp_erff(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 0x1.4ae4d0p-14f;
    p = p * z + -0x1.a485ecp-11f;
    p = p * z + 0x1.5419f6p-8f;
    p = p * z + -0x1.b7fbb4p-6f;
    p = p * z + 0x1.ce2d20p-4f;
    p = p * z + -0x1.81273ep-2f;
    p = p * z + 0x1.06eba8p-3f;
    float near = x + x * p;

    float u = (a > 3.93f ? 3.93f : a) - 1.0f;
    float q = 0x1.86dd8ep-13f;
    q = q * u + -0x1.df8fd2p-10f;
    q = q * u + 0x1.444124p-7f;
    q = q * u + -0x1.53ff24p-5f;
    q = q * u + -0x1.afad1cp-1f;
    q = q * u + -0x1.51c9aap+1f;
    q = q * u + -0x1.d97fc0p+0f;
    int32_t n;
    float factor = fsdp_expf_factor(q, &n);
    float far = 1.0f - factor * fsdp_f32_power_of_2(n);
    float y = copysignf(a < 1.0f ? near : far, x);
    return x == x ? y : x;
}

/** 1 / sqrt(x), from two operations that IEEE 754 rounds correctly. */
static inline float
fsdp_rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
