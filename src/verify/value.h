/** \file value.h  Floor 6, verify: one element at a time, in its type.
 *
 *  The baseline's arithmetic is done in double and rounded to the run's type
 *  after each operation.  For float32 that gives the bits of float arithmetic:
 *  53 bits are more than 2 x 24 + 2, so +, -, x, / and the square root, rounded
 *  twice, are as if rounded once (Figueroa, 1995); the 16-bit types have still
 *  fewer bits, whether rounded from double or, as the run does, from float.
 */
#ifndef FSDP_VERIFY_VALUE_H
#define FSDP_VERIFY_VALUE_H

#include "base/half.h"
#include "fsdp/dtype.h"

/** Is it a type that gradients can have? */
static inline int
value_is_floating(fsdp_dtype_t dtype)
{
    return dtype == FSDP_FP32 || dtype == FSDP_FP64 || dtype == FSDP_BF16 ||
           dtype == FSDP_FP16;
}

static inline uint16_t
value_half(fsdp_dtype_t dtype, double x)
{
    float odd = fsdp_double_to_odd_float(x);
    return dtype == FSDP_BF16 ? fsdp_float_to_bf16(odd)
                              : fsdp_float_to_fp16(odd);
}

static inline double
value_of_half(fsdp_dtype_t dtype, uint16_t code)
{
    return (double)(dtype == FSDP_BF16 ? fsdp_bf16_to_float(code)
                                       : fsdp_fp16_to_float(code));
}

static inline double
value_round(fsdp_dtype_t dtype, double x)
{
    if (dtype == FSDP_FP32)
        return (double)(float)x;
    return dtype == FSDP_FP64 ? x : value_of_half(dtype, value_half(dtype, x));
}

static inline double
value_get(fsdp_dtype_t dtype, const void *x, size_t i)
{
    if (dtype == FSDP_FP32)
        return (double)((const float *)x)[i];
    if (dtype == FSDP_FP64)
        return ((const double *)x)[i];
    return value_of_half(dtype, ((const uint16_t *)x)[i]);
}

/** Rounds and stores. */
static inline void
value_put(fsdp_dtype_t dtype, void *x, size_t i, double value)
{
    if (dtype == FSDP_FP32)
        ((float *)x)[i] = (float)value;
    else if (dtype == FSDP_FP64)
        ((double *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = value_half(dtype, value);
}

/** Half a unit in the last place of 1, and the smallest positive number. */
static inline double
value_roundoff(fsdp_dtype_t dtype)
{
    return dtype == FSDP_FP64   ? 0x1p-53
           : dtype == FSDP_FP32 ? 0x1p-24
           : dtype == FSDP_BF16 ? 0x1p-8
                                : 0x1p-11;
}

static inline double
value_smallest(fsdp_dtype_t dtype)
{
    return dtype == FSDP_FP64   ? 0x1p-1074
           : dtype == FSDP_FP32 ? 0x1p-149
           : dtype == FSDP_BF16 ? 0x1p-133
                                : 0x1p-24;
}

#endif
