/** \file value.h  Floor 6, verify: one element at a time, in its type.
 *
 *  The baseline's arithmetic is done in double and rounded to the run's type
 *  after each operation.  For float32 that gives the bits of float arithmetic:
 *  53 bits are more than 2 x 24 + 2, so +, -, x, / and the square root, rounded
 *  twice, are as if rounded once (Figueroa, 1995).
 */
#ifndef FSDP_VERIFY_VALUE_H
#define FSDP_VERIFY_VALUE_H

#include "fsdp/dtype.h"

static inline double
value_round(fsdp_dtype_t dtype, double x)
{
    return dtype == FSDP_FP32 ? (double)(float)x : x;
}

static inline double
value_get(fsdp_dtype_t dtype, const void *x, size_t i)
{
    return dtype == FSDP_FP32 ? (double)((const float *)x)[i]
                              : ((const double *)x)[i];
}

/** Rounds and stores. */
static inline void
value_put(fsdp_dtype_t dtype, void *x, size_t i, double value)
{
    if (dtype == FSDP_FP32)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

#endif
