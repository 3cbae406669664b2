/** \file philox.h  Floor 0, base: Philox4x32-10 as a straight line of code.
 *
 *  For loops over many blocks, which the compiler turns into vectors;
 *  fsdp/random.h says what the numbers are.
 */
#ifndef FSDP_BASE_PHILOX_H
#define FSDP_BASE_PHILOX_H

#include "fsdp/random.h"

/* One round: two 32 x 32 -> 64 bit products, whose words change places, xor'ed
 * with the two other words and the round's key. */
static inline void
philox_round(uint32_t x[4], const uint32_t key[2])
{
    uint64_t even = (uint64_t)0xD2511F53u * x[0];
    uint64_t odd = (uint64_t)0xCD9E8D57u * x[2];
    uint32_t x1 = x[1], x3 = x[3];
    x[0] = (uint32_t)(odd >> 32) ^ x1 ^ key[0];
    x[1] = (uint32_t)odd;
    x[2] = (uint32_t)(even >> 32) ^ x3 ^ key[1];
    x[3] = (uint32_t)even;
}

/** fsdp_philox4x32_10() */
static inline __attribute__((always_inline)) void
philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};

    for (int round = 0; round < 10; round++) {
        philox_round(x, k);
        k[0] += 0x9E3779B9u; /* the golden ratio  */
        k[1] += 0xBB67AE85u; /* sqrt(3) - 1       */
    }
    for (int i = 0; i < 4; i++)
        out[i] = x[i];
}

/** fsdp_random_block() */
static inline __attribute__((always_inline)) void
philox_block(uint64_t seed, fsdp_random_domain_t domain, uint32_t a, uint64_t b,
             uint64_t index, uint32_t out[4])
{
    uint32_t high = (uint32_t)(seed >> 32);
    uint32_t key[2] = {(uint32_t)seed, high ^ ((uint32_t)domain << 24)};
    uint32_t counter[4] = {
        (uint32_t)index,
        a,
        (uint32_t)b,
        (uint32_t)(b >> 32) ^ (uint32_t)(index >> 32),
    };
    philox4x32_10(counter, key, out);
}

#endif
