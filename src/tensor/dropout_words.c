#include "tensor/dropout_words.h"

#include "base/philox.h"
#include "tensor/clones.h"

FSDP_CLONES static void
make_words(const fsdp_dropout_key_t *key, uint64_t stream, uint64_t first_block,
           size_t blocks, uint32_t *words)
{
    uint64_t seed = key->seed;
    uint32_t layer = key->layer;
#pragma omp simd
    for (size_t i = 0; i < blocks; i++)
        philox_block(seed, FSDP_RANDOM_DROPOUT, layer, stream, first_block + i,
                     words + 4 * i);
}

void
fsdp_dropout_words(const fsdp_dropout_key_t *key, size_t sample,
                   uint64_t first_block, size_t blocks, uint32_t *words)
{
    uint32_t number = key->first_sample + (uint32_t)sample;
    make_words(key, (uint64_t)key->step << 32 | number, first_block, blocks,
               words);
}

uint64_t
fsdp_dropout_first_kept(double p)
{
    uint64_t low = 0, high = (uint64_t)1 << 32;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (fsdp_random_uniform((uint32_t)middle) >= p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
