/* Which sample is drawn: a function of seed, step and place in the step. */

#include "data/dataset.h"
#include "fsdp/random.h"

/* One round's scramble of half a number. */
static uint64_t
scramble(uint64_t half, uint64_t seed, uint64_t epoch, uint32_t round)
{
    return fsdp_random_word(seed, FSDP_RANDOM_DATA, 1 + round, epoch, half);
}

/* A permutation of [0, 4^bits): a Feistel network of six rounds. */
static uint64_t
feistel(uint64_t x, int bits, uint64_t seed, uint64_t epoch)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = x >> bits, right = x & mask;
    for (uint32_t round = 0; round < 6; round++) {
        uint64_t next = left ^ (scramble(right, seed, epoch, round) & mask);
        left = right;
        right = next;
    }
    return left << bits | right;
}

/* With fewer elements six rounds do not mix: some pairs come up far more often
 * than others. */
enum { FEWEST_BITS = 4 };

/* A permutation of [0, n): walks on along the cycle until it is inside. */
static uint64_t
permuted(uint64_t x, uint64_t n, uint64_t seed, uint64_t epoch)
{
    int bits = FEWEST_BITS;
    while (((uint64_t)1 << (2 * bits)) < n)
        bits++;
    do
        x = feistel(x, bits, seed, epoch);
    while (x >= n);
    return x;
}

/* Uniform in [0, n): the high half of a 64-bit random number times n. */
static size_t
uniform(uint64_t seed, uint64_t step, size_t index, uint64_t n)
{
    uint64_t stream = step << 32 | (uint32_t)index;
    uint64_t high = fsdp_random_word(seed, FSDP_RANDOM_DATA, 0, stream, 0);
    uint64_t low = fsdp_random_word(seed, FSDP_RANDOM_DATA, 0, stream, 1);
    return (size_t)((unsigned __int128)(high << 32 | low) * n >> 64);
}

size_t
fsdp_dataset_draw(const fsdp_dataset_t *dataset, uint64_t seed, uint64_t step,
                  size_t index, size_t batch)
{
    uint64_t n = dataset->count[FSDP_TRAIN];
    if (dataset->text != NULL)
        return uniform(seed, step, index, n);
    uint64_t drawn = (step - 1) * batch + index; /* steps count from 1 */
    return (size_t)permuted(drawn % n, n, seed, drawn / n);
}
