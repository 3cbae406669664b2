/** \file half.h  The 16-bit types by arithmetic on doubles.
 *
 *  A number of a type with p significant bits is a whole multiple of its last
 *  place, 2^(exponent - p), which does not go below the type's smallest number.
 */
#ifndef TWIN_HALF_H
#define TWIN_HALF_H

#include <math.h>

#include "twin/bounded.h"

/** The last place of numbers as large as x. */
static inline double
half_last_place(fsdp_dtype_t dtype, double x)
{
    int exponent;
    frexp(x, &exponent);
    int p = dtype == FSDP_BF16 ? 8 : 11,
        least = dtype == FSDP_BF16 ? -133 : -24;
    if (x == 0 || exponent - p < least)
        return ldexp(1, least);
    return ldexp(1, exponent - p);
}

/** The nearest number, the even one of two; other types are left alone. */
static inline double
half_round(fsdp_dtype_t dtype, double x)
{
    if ((dtype != FSDP_BF16 && dtype != FSDP_FP16) || !isfinite(x))
        return x;
    double place = half_last_place(dtype, x);
    double rounded = nearbyint(x / place) * place;
    double most = dtype == FSDP_BF16 ? 0x1.fep127 : 65504;
    return fabs(rounded) > most ? copysign(INFINITY, x) : rounded;
}

/** What a tensor of the type holds of x, for what is computed from it next. */
static inline bounded_t
b_store(fsdp_dtype_t dtype, bounded_t x)
{
    if (dtype == FSDP_BF16 || dtype == FSDP_FP16)
        x.e += half_last_place(dtype, fabs(x.v) + x.e) / 2;
    return x;
}

/** Is `got` a number within x's bound, rounded once?  Rounding is monotonic, so
 *  it lies between the rounded ends; most often these are one number. */
static inline bool
half_is(fsdp_dtype_t dtype, double got, bounded_t x)
{
    if (isnan(x.v))
        return isnan(got);
    double e = x.e * (1 + 0x1p-53 / twin_u);
    return half_round(dtype, x.v - e) <= got &&
           got <= half_round(dtype, x.v + e);
}

#endif
