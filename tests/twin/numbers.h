/** \file numbers.h  Arrays of either type for the tests of kernels.
 *
 *  A value is kept as a double that the type represents, so the kernel and its
 *  twin see the same number.  Behind each array stands a guard that a kernel
 *  must not touch.
 */
#ifndef TWIN_NUMBERS_H
#define TWIN_NUMBERS_H

#include <stdint.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/random.h"
#include "twin/bounded.h"

enum { TWIN_GUARD = 64, TWIN_GUARD_BYTE = 0x5a };

typedef struct numbers {
    fsdp_dtype_t dtype;
    size_t n;
    void *data; /**< [n] of the type, then the guard */
} numbers_t;

/** x rounded to the type: the exact result of one operation of it, if x is that
 *  operation's on two of its numbers in double (+ - * / and sqrt; rounding
 *  twice is harmless since 53 >= 2 * 24 + 2). */
static inline double
twin_round(fsdp_dtype_t dtype, double x)
{
    volatile float narrow = (float)x;
    return dtype == FSDP_FP64 ? x : narrow;
}

static inline numbers_t
numbers_make(fsdp_dtype_t dtype, size_t n)
{
    size_t bytes = n * fsdp_dtype_size(dtype);
    numbers_t x = {dtype, n, fsdp_alloc(FSDP_MEM_OTHER, bytes + TWIN_GUARD)};
    memset(x.data, 0xff, bytes); /* NaN */
    memset((char *)x.data + bytes, TWIN_GUARD_BYTE, TWIN_GUARD);
    return x;
}

static inline double
numbers_get(numbers_t x, size_t i)
{
    return x.dtype == FSDP_FP64 ? ((const double *)x.data)[i]
                                : ((const float *)x.data)[i];
}

static inline void
numbers_set(numbers_t x, size_t i, double value)
{
    if (x.dtype == FSDP_FP64)
        ((double *)x.data)[i] = value;
    else
        ((float *)x.data)[i] = (float)value;
}

/** Element i of the stream of test numbers `seed`, in (-1, 1), a multiple of
 *  2^-23: both types have it. */
static inline double
twin_random(uint32_t seed, size_t i)
{
    uint32_t word = fsdp_random_word(seed, FSDP_RANDOM_TEST, 0, 0, i);
    return ((double)(word >> 8) - 0x1p23 + 0.5) * 0x1p-23;
}

/** Uniform in (-scale, scale). */
static inline numbers_t
numbers_random(fsdp_dtype_t dtype, size_t n, uint32_t seed, double scale)
{
    numbers_t x = numbers_make(dtype, n);
    for (size_t i = 0; i < n; i++)
        numbers_set(x, i, scale * twin_random(seed, i));
    return x;
}

static inline numbers_t
numbers_copy(numbers_t x)
{
    numbers_t y = numbers_make(x.dtype, x.n);
    memcpy(y.data, x.data, x.n * fsdp_dtype_size(x.dtype));
    return y;
}

static inline bool
numbers_same_bits(numbers_t a, numbers_t b)
{
    return a.dtype == b.dtype && a.n == b.n &&
           memcmp(a.data, b.data, a.n * fsdp_dtype_size(a.dtype)) == 0;
}

/** Nothing was written behind the end. */
static inline bool
numbers_guarded(numbers_t x)
{
    const unsigned char *guard =
        (const unsigned char *)x.data + x.n * fsdp_dtype_size(x.dtype);
    for (int i = 0; i < TWIN_GUARD; i++)
        if (guard[i] != TWIN_GUARD_BYTE)
            return false;
    return true;
}

static inline void
numbers_free(numbers_t x)
{
    fsdp_free(x.data);
}

/** All of x against the twin's values; says where they first differ. */
static inline bool
numbers_agree(const char *what, numbers_t x, const bounded_t *want)
{
    for (size_t i = 0; i < x.n; i++) {
        if (twin_is(numbers_get(x, i), want[i]))
            continue;
        fprintf(stderr,
                "%s, %s: element %zu of %zu is %.17g, not %.17g +- %g\n", what,
                fsdp_dtype_name(x.dtype), i, x.n, numbers_get(x, i), want[i].v,
                want[i].e);
        return false;
    }
    if (!numbers_guarded(x))
        fprintf(stderr, "%s, %s: wrote behind the end\n", what,
                fsdp_dtype_name(x.dtype));
    return numbers_guarded(x);
}

/** The same for results that must be exact: `want` holds doubles. */
static inline bool
numbers_equal(const char *what, numbers_t x, const double *want)
{
    for (size_t i = 0; i < x.n; i++) {
        double got = numbers_get(x, i);
        if (isnan(want[i]) ? isnan(got)
                           : got == want[i] && signbit(got) == signbit(want[i]))
            continue;
        fprintf(stderr, "%s, %s: element %zu of %zu is %a, not %a\n", what,
                fsdp_dtype_name(x.dtype), i, x.n, got, want[i]);
        return false;
    }
    return numbers_guarded(x);
}

/** Room for n results of a twin. */
static inline void *
twin_alloc(size_t n, size_t size)
{
    return fsdp_alloc(FSDP_MEM_OTHER, n * size);
}

#endif
