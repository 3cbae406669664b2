/** \file numbers.h  Elements of every dtype as doubles, for tests of src/comm.
 *
 *  bf16 and fp16 are read by their definition (sign, exponent, fraction) and
 *  rounded by looking for the two neighbours: slow, and nothing like the code
 *  under test.
 */
#ifndef TESTS_COMM_NUMBERS_H
#define TESTS_COMM_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/dtype.h"

static const fsdp_dtype_t all_dtypes[] = {
    FSDP_FP32,  FSDP_FP64,  FSDP_BF16,  FSDP_FP16,
    FSDP_INT32, FSDP_INT64, FSDP_UINT8,
};
/* Those with a sum come first. */
enum { DTYPES = 7, SUMMED_DTYPES = 6 };

/* What the magnitude bits mean, with as many bits of fraction. */
static inline double
small_float_value(uint16_t bits, int fraction_bits)
{
    int exponent_bits = 15 - fraction_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (bits & 0x7fff) >> fraction_bits;
    int fraction = bits & ((1 << fraction_bits) - 1);
    double value = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                                 : ldexp(fraction + (1 << fraction_bits),
                                         exponent - bias - fraction_bits);
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -value : value;
}

/* The nearest one, of two the even one.  Beyond the largest stands infinity
 * where the next number would be. */
static inline uint16_t
small_float_round(double x, int fraction_bits)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(0x7fff >> fraction_bits << fraction_bits);
    uint16_t low = 0, high = infinity; /* value(low) <= |x| < value(high) */
    double size = fabs(x);
    if (isnan(x))
        return 0x7fff;
    if (isinf(x))
        return sign | infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (small_float_value(middle, fraction_bits) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = small_float_value(low, fraction_bits);
    double step = below - small_float_value((uint16_t)(low - 1), fraction_bits);
    double above = high == infinity ? below + step
                                    : small_float_value(high, fraction_bits);
    double half = below / 2 + above / 2;
    if (size > half || (size == half && low % 2 == 1))
        low = high;
    return sign | low;
}

static inline double
element_get(fsdp_dtype_t dtype, const void *data, size_t i)
{
    switch (dtype) {
    case FSDP_FP32:
        return ((const float *)data)[i];
    case FSDP_FP64:
        return ((const double *)data)[i];
    case FSDP_BF16:
        return small_float_value(((const uint16_t *)data)[i], 7);
    case FSDP_FP16:
        return small_float_value(((const uint16_t *)data)[i], 10);
    case FSDP_INT32:
        return ((const int32_t *)data)[i];
    case FSDP_INT64:
        return (double)((const int64_t *)data)[i];
    case FSDP_UINT8:
        return ((const uint8_t *)data)[i];
    case FSDP_DTYPE_NONE:
        break;
    }
    abort();
}

/* Rounds where the type asks for it. */
static inline void
element_set(fsdp_dtype_t dtype, void *data, size_t i, double x)
{
    switch (dtype) {
    case FSDP_FP32:
        ((float *)data)[i] = (float)x;
        return;
    case FSDP_FP64:
        ((double *)data)[i] = x;
        return;
    case FSDP_BF16:
        ((uint16_t *)data)[i] = small_float_round(x, 7);
        return;
    case FSDP_FP16:
        ((uint16_t *)data)[i] = small_float_round(x, 10);
        return;
    case FSDP_INT32:
        ((int32_t *)data)[i] = (int32_t)x;
        return;
    case FSDP_INT64:
        ((int64_t *)data)[i] = (int64_t)x;
        return;
    case FSDP_UINT8:
        ((uint8_t *)data)[i] = (uint8_t)x;
        return;
    case FSDP_DTYPE_NONE:
        break;
    }
    abort();
}

/* A buffer with a border behind it, which border_untouched() looks at. */
enum { BORDER = 64 };

static inline void *
bordered(size_t bytes)
{
    char *data = malloc(bytes + BORDER);
    if (data == NULL)
        abort();
    memset(data, 0xa5, bytes + BORDER);
    return data;
}

static inline int
border_untouched(const void *data, size_t bytes)
{
    const unsigned char *border = (const unsigned char *)data + bytes;
    for (int i = 0; i < BORDER; i++)
        if (border[i] != 0xa5)
            return 0;
    return 1;
}

#endif
