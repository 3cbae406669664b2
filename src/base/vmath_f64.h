/** \file vmath_f64.h  Floor 0, base: elementary functions, float64.
 *
 *  Include base/vmath.h, which says what is promised.
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

/** The natural logarithm; NaN below zero, -infinity at zero.
 *
 *  x = 2^k m with m in [sqrt(1/2), sqrt(2)); f = m - 1, s = f / (2 + f).  Then
 *  log m = 2 atanh s = 2 s + s z P(z) with z = s^2, and since 2 s = f - s f and
 *  s f = f^2/2 - s f^2/2, it is f - (f^2/2 - s (f^2/2 + z P(z))), in which only
 *  the small terms are rounded.  P: minimax on [0, 0.02944], error 2^-59 of the
 *  logarithm.  k log 2 is exact in its upper part, which has 42 bits. */
static inline double
fsdp_log(double x)
{
    const double two54 = 0x1p54, ln2_high = 0x1.62e42fefa38p-1,
                 ln2_low = 0x1.ef35793c7673p-45;
    int subnormal = x < 0x1p-1022;
    uint64_t bits = fsdp_bits_of_f64(subnormal ? x * two54 : x);

    /* The exponent counted from sqrt(1/2), as a double: a number of 52 bits in
     * the fraction of 2^52. */
    uint64_t moved = bits + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    double k = fsdp_f64_of_bits(0x4330000000000000 | moved >> 52) -
               (0x1p52 + 1023.0) - (subnormal ? 54.0 : 0.0);
    double f =
        fsdp_f64_of_bits((moved & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) -
        1.0;

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

#endif
