/** \file half.h  Floor 0, base: the 16-bit types, one element at a time.
 *
 *      float32   1 sign, 8 exponent (bias 127), 23 fraction bits
 *      bfloat16  1 sign, 8 exponent (bias 127),  7 fraction bits
 *      float16   1 sign, 5 exponent (bias 15),  10 fraction bits
 *
 *  Round to nearest even, without branches so that loops become vectors.
 */
#ifndef FSDP_BASE_HALF_H
#define FSDP_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t
fsdp_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float
fsdp_float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float
fsdp_bf16_to_float(uint16_t code)
{
    return fsdp_float_from_bits((uint32_t)code << 16);
}

/* Adding just under half of the last place kept, and one more if that place is
 * odd, carries into it when rounding up.  A NaN is made quiet instead, for the
 * carry could turn it into infinity. */
static inline uint16_t
fsdp_float_to_bf16(float x)
{
    uint32_t bits = fsdp_float_bits(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* The fraction and exponent move to float's places and the exponent's bias is
 * corrected; a subnormal is a whole multiple of 2^-24. */
static inline float
fsdp_fp16_to_float(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000) << 16;
    uint32_t rest = code & 0x7fff;
    uint32_t normal = (rest << 13) + ((127 - 15) << 23);
    uint32_t special = rest << 13 | 0x7f800000; /* infinity or NaN */
    uint32_t tiny = fsdp_float_bits((float)(int32_t)rest * 0x1p-24f);
    uint32_t bits = rest >= 0x7c00 ? special : rest < 0x0400 ? tiny : normal;
    return fsdp_float_from_bits(sign | bits);
}

/* Normal numbers as for bfloat16 above, with the bias corrected; overflow
 * carries into infinity by itself up to 2^16, beyond it is set.  Below 2^-14
 * the processor's own addition of 1/2, whose last place is 2^-24, rounds. */
static inline uint16_t
fsdp_float_to_fp16(float x)
{
    uint32_t bits = fsdp_float_bits(x);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t normal =
        (rest - ((127 - 15) << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    uint32_t special =
        rest > 0x7f800000 ? 0x7e00 | (rest >> 13 & 0x3ff) : 0x7c00;
    uint32_t tiny = fsdp_float_bits(fsdp_float_from_bits(rest) + 0.5f) -
                    fsdp_float_bits(0.5f);
    uint32_t code = rest >= 0x47800000  ? special
                    : rest < 0x38800000 ? tiny
                                        : normal;
    return (uint16_t)(sign | code);
}

/* The float next to x on either side whose last bit is 1, or x itself if it is
 * a float: a later rounding to fewer bits then acts as on x. */
static inline float
fsdp_double_to_odd_float(double x)
{
    float nearest = (float)x;
    uint32_t bits = fsdp_float_bits(nearest);
    double error = x - (double)nearest;
    /* Further from zero than x, or nearer; an infinity made by rounding is
     * further. */
    uint32_t away = (nearest > 0 && error < 0) || (nearest < 0 && error > 0);
    uint32_t inexact = error < 0 || error > 0; /* no for infinity and NaN */
    return fsdp_float_from_bits((bits - away) | inexact);
}

#endif
