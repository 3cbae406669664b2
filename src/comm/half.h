/** \file half.h  bfloat16 and float16 to float and back, in bits.
 *
 *  src/tensor has its own conversions of whole tensors; the two rooms stand on
 *  one floor and share nothing.
 */
#ifndef FSDP_COMM_HALF_H
#define FSDP_COMM_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t
bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float
float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float
float_of_bf16(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

/* Nearest, ties to even; NaN stays NaN, the sign with it. */
static inline uint16_t
bf16_of_float(float x)
{
    uint32_t bits = bits_of_float(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float
float_of_fp16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) /* infinity, NaN */
        return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400) { /* zero and subnormals: a multiple of 2^-24 */
        float x = (float)magnitude * 0x1p-24f;
        return sign ? -x : x;
    }
    return float_of_bits(sign | (magnitude + (112 << 10)) << 13);
}

/* Nearest, ties to even; too large becomes infinity, NaN stays NaN. */
static inline uint16_t
fp16_of_float(float x)
{
    uint32_t bits = bits_of_float(x), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x47800000) /* 2^16; what rounds to it comes below */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: let the FPU round to 2^-24 */
        float sum = float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_of_float(sum) - bits_of_float(0.5f)));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude >> 13) - (112 << 10)));
}

#endif
