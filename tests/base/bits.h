/** \file bits.h  Random bits, and doubles that are to be the same to the last. */
#ifndef BITS_H
#define BITS_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fsdp/random.h"

static inline uint64_t
random_bits(uint64_t i)
{
    uint32_t block[4];
    fsdp_random_block(42, FSDP_RANDOM_TEST, 3, 0, i, block);
    return (uint64_t)block[0] << 32 | block[1];
}

static inline bool
same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

#define ck_assert_bits(got, want)                                              \
    do {                                                                       \
        double got_ = (got), want_ = (want);                                   \
        ck_assert_msg(same_bits(got_, want_), "%a, not %a", got_, want_);      \
    } while (0)

#endif
