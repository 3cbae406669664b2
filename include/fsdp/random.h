/** \file random.h  Floor 0, base: counter-based random numbers.
 *
 *  Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 *  SC11; the test vectors are Random123's).  A number is a function of its
 *  key and counter alone, so any rank can make any element of any tensor.
 */
#ifndef FSDP_RANDOM_H
#define FSDP_RANDOM_H

#include <stdint.h>

/** One block: four 32-bit words from a 128-bit counter and a 64-bit key. */
void fsdp_philox4x32_10(const uint32_t counter[4], const uint32_t key[2],
                        uint32_t out[4]);

/** What a stream of numbers is for; keeps the uses apart. */
typedef enum fsdp_random_domain {
    FSDP_RANDOM_INIT = 1, /**< initial values: (seed, name, element)          */
    FSDP_RANDOM_DROPOUT,  /**< (seed, step, sample, layer, element)           */
    FSDP_RANDOM_DATA,     /**< which sample: (seed, step, sample)             */
    FSDP_RANDOM_SAMPLING, /**< text generation: (seed, token number)          */
    FSDP_RANDOM_TEST      /**< numbers made by tests                          */
} fsdp_random_domain_t;

/** Block `index` of the stream (seed, domain, a, b): elements 4*index .. +3.
 *  Key: (low, high word of seed) with the domain mixed into the high word.
 *  Counter: (low word of index, a, low word of b, high word of b xor high word
 *  of index); so a is 32 bits, b 64 (a hash of a name, or step and sample). */
void fsdp_random_block(uint64_t seed, fsdp_random_domain_t domain, uint32_t a,
                       uint64_t b, uint64_t index, uint32_t out[4]);

/** Word `element` of the stream, i.e. lane element % 4 of block element / 4. */
uint32_t fsdp_random_word(uint64_t seed, fsdp_random_domain_t domain,
                          uint32_t a, uint64_t b, uint64_t element);

/** (word + 1/2) / 2^32: uniform in (0, 1), never 0 or 1. */
double fsdp_random_uniform(uint32_t word);

/** The standard normal quantile of fsdp_random_uniform(word), by Wichura's
 *  algorithm AS 241 (PPND16); the same bits on every machine (it uses the
 *  library's own logarithm).  Lives on floor 0, so it has no vector form. */
double fsdp_random_normal(uint32_t word);

/** FNV-1a of a name, 64 bits. */
uint64_t fsdp_hash_name(const char *name);

#endif
