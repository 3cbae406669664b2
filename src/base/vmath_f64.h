/** \file vmath_f64.h  Floor 0, base: elementary functions, float64.
 *
 *  Include base/vmath.h, which says what is promised.  The methods are those of
 *  vmath_f32.h, with longer polynomials.
 */
#ifndef FSDP_BASE_VMATH_F64_H
#define FSDP_BASE_VMATH_F64_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t
fsdp_bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double
fsdp_f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** x, |x| < 2^51, as a whole number in the last bits of 1.5 2^52.  To find it
 *  there is the only way between double and integer that all vector units
 *  have. */
static inline double
fsdp_f64_shifted(double x)
{
    return x + 0x1.8p52;
}

/** 2^n for -1023 < n < 1024, given fsdp_f64_shifted(n). */
static inline double
fsdp_f64_power_of_2(double shifted)
{
    return fsdp_f64_of_bits((fsdp_bits_of_f64(shifted) + 1023) << 52);
}

/** exp(x) as a factor times 2^n, for |x| < 2^50: returns the factor, in [0.7,
 *  1.42].  log 2's upper part has 42 bits, so that n times it is exact; what is
 *  lost in r = x - n log 2 is added at the end.  P: minimax, error 2^-62. */
static inline double
fsdp_exp_factor(double x, double *n)
{
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    double whole = fsdp_f64_shifted(x * 0x1.71547652b82fep+0) - 0x1.8p52;
    *n = whole;
    double high = x - whole * ln2_high, low = whole * ln2_low;
    double r = high - low, lost = (high - r) - low;

    double p = 0x1.1f8be6920d6d2p-29;
    p = p * r + 0x1.af4ecddb8092ap-26;
    p = p * r + 0x1.27e4cc728b79dp-22;
    p = p * r + 0x1.71de01c397748p-19;
    p = p * r + 0x1.a01a01ad20b46p-16;
    p = p * r + 0x1.a01a01ac0ac37p-13;
    p = p * r + 0x1.6c16c16c15196p-10;
    p = p * r + 0x1.111111111009cp-7;
    p = p * r + 0x1.5555555555558p-5;
    p = p * r + 0x1.5555555555557p-3;
    p = p * r + 0.5;
    return 1.0 + (r + (r * r * p + lost));
}

/** The exponential function. */
static inline double
fsdp_exp(double x)
{
    double n, clamped = x > 720.0 ? 720.0 : x;
    clamped = clamped < -760.0 ? -760.0 : clamped;
    double factor = fsdp_exp_factor(clamped, &n);
    double half = fsdp_f64_shifted(0.5 * n);
    double rest = fsdp_f64_shifted(n - (half - 0x1.8p52));
    double y = factor * fsdp_f64_power_of_2(half) * fsdp_f64_power_of_2(rest);
    return x == x ? y : x;
}

/** The natural logarithm; NaN below zero, -infinity at zero.  P: minimax, error
 *  2^-59.  k log 2 is exact in its upper part, which has 42 bits. */
static inline double
fsdp_log(double x)
{
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd; /* bits of sqrt(1/2) */
    int subnormal = x < 0x1p-1022;
    uint64_t bits = fsdp_bits_of_f64(subnormal ? x * 0x1p54 : x);

    /* The exponent, counted from sqrt(1/2), in the last bits of 2^52. */
    uint64_t moved = bits + (0x3ff0000000000000 - sqrt_half);
    double k = fsdp_f64_of_bits(0x4330000000000000 | moved >> 52) -
               (0x1p52 + 1023.0) - (subnormal ? 54.0 : 0.0);
    double f = fsdp_f64_of_bits((moved & 0x000fffffffffffff) + sqrt_half) - 1.0;

    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double p = 0x1.2b5fc0cc38c0ep-3;
    p = p * z + 0x1.39fdb91646e5fp-3;
    p = p * z + 0x1.7462ba29daec5p-3;
    p = p * z + 0x1.c71c62d035d29p-3;
    p = p * z + 0x1.2492492e03ec7p-2;
    p = p * z + 0x1.9999999995223p-2;
    p = p * z + 0x1.5555555555558p-1;
    double y = f - (half - (s * (half + z * p) + k * ln2_low));
    y = k * ln2_high + y;

    y = x == 0.0 ? -INFINITY : y;
    y = x < 0.0 ? NAN : y;
    return x < INFINITY ? y : x + x; /* infinity and NaN as they are */
}

/** The hyperbolic tangent: P, minimax with error 2^-59, up to 0.625; 1 from
 *  19.1 on. */
static inline double
fsdp_tanh(double x)
{
    double a = fabs(x), z = x * x;
    double p = 0x1.b4636719a80d3p-18;
    p = p * z + -0x1.060ccbb8bee07p-15;
    p = p * z + 0x1.846b1ba66fa30p-14;
    p = p * z + -0x1.f24d5eadccf86p-13;
    p = p * z + 0x1.3527b79aa3092p-11;
    p = p * z + -0x1.7d9f84abf9372p-10;
    p = p * z + 0x1.d6d39c562fb3ep-9;
    p = p * z + -0x1.226e347ba1c32p-7;
    p = p * z + 0x1.664f487e3b1bap-6;
    p = p * z + -0x1.ba1ba1ba0faebp-5;
    p = p * z + 0x1.11111111110aep-3;
    p = p * z + -0x1.5555555555555p-2;
    double near = x + x * (z * p);

    double n, factor = fsdp_exp_factor(a > 20.0 ? 40.0 : 2.0 * a, &n);
    double power = fsdp_f64_power_of_2(fsdp_f64_shifted(n));
    double far = 1.0 - 2.0 / (factor * power + 1.0);
    double y = copysign(a < 0.625 ? near : far, x);
    return x == x ? y : x;
}

/** log(erfc(1 + u)) for 0 <= u <= 4.93, as exact as erf needs it. */
static inline double
fsdp_log_erfc(double u)
{
    double q = -0x1.5ada19c4a5308p-38;
    q = q * u + 0x1.0976d241c6f0ap-33;
    q = q * u + -0x1.6e54ae19899d6p-30;
    q = q * u + 0x1.27696640d7d65p-27;
    q = q * u + -0x1.216dc5d4cd93dp-25;
    q = q * u + 0x1.f94c457fe63f7p-25;
    q = q * u + 0x1.b47467e33c238p-23;
    q = q * u + -0x1.1dd8981623541p-19;
    q = q * u + 0x1.4470baf40f029p-17;
    q = q * u + -0x1.c84b38d202bd2p-16;
    q = q * u + 0x1.b929c9d9da255p-16;
    q = q * u + 0x1.f1b07c877f133p-13;
    q = q * u + -0x1.033f5ae4267a8p-9;
    q = q * u + 0x1.48c9d388946bap-7;
    q = q * u + -0x1.5477f099ef3f8p-5;
    q = q * u + -0x1.afabc11a2acf3p-1;
    q = q * u + -0x1.51c9b0006c21ep+1;
    return q * u + -0x1.d97fbf27aa2a1p+0;
}

/** The error function: x + x P(x^2), P minimax with error 2^-62, up to 1; then
 *  1 - exp(Q(|x| - 1)), with error 2^-57 in erf; from 5.93 on it is 1. */
static inline double
fsdp_erf(double x)
{
    double a = fabs(x), z = x * x;
    double p = 0x1.06275afdc9bb6p-34;
    p = p * z + -0x1.38ac21b65b23fp-30;
    p = p * z + 0x1.f7b99cbc1fb87p-27;
    p = p * z + -0x1.5f1f40dc443eap-23;
    p = p * z + 0x1.b9df30575a8cbp-20;
    p = p * z + -0x1.f4d1e4342b26cp-17;
    p = p * z + 0x1.f9a321e4ae7afp-14;
    p = p * z + -0x1.c02db3db4908ep-11;
    p = p * z + 0x1.565bcd0dbd8f2p-8;
    p = p * z + -0x1.b82ce31284f37p-6;
    p = p * z + 0x1.ce2f21a042b34p-4;
    p = p * z + -0x1.812746b0379e6p-2;
    p = p * z + 0x1.06eba8214db69p-3;
    double near = x + x * p;

    double n, u = (a > 5.93 ? 5.93 : a) - 1.0;
    double factor = fsdp_exp_factor(fsdp_log_erfc(u), &n);
    double power = fsdp_f64_power_of_2(fsdp_f64_shifted(n));
    double far = 1.0 - factor * power;
    double y = copysign(a < 1.0 ? near : far, x);
    return x == x ? y : x;
}

/** 1 / sqrt(x), from two operations that IEEE 754 rounds correctly. */
static inline double
fsdp_rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

#endif
