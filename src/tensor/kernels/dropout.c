#include <string.h>

#include "fsdp/random.h"
#include "fsdp/status.h"
#include "tensor/kernels/entries.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct dropout {
    const fsdp_dropout_key_t *key;
    const real_t *x;
    real_t *y, scale;
    size_t per_sample, blocks_per_sample;
} dropout_t;

/* Elements [begin, end) of sample b; begin is a multiple of 4. */
static void
drop(const dropout_t *d, size_t b, size_t begin, size_t end)
{
    const fsdp_dropout_key_t *key = d->key;
    const real_t *x = d->x + b * d->per_sample;
    real_t *y = d->y + b * d->per_sample;
    uint64_t stream =
        (uint64_t)key->step << 32 | (uint32_t)(key->first_sample + b);
    for (size_t e = begin; e < end; e += 4) {
        uint32_t word[4];
        fsdp_random_block(key->seed, FSDP_RANDOM_DROPOUT, key->layer, stream,
                          e / 4, word);
        for (size_t i = e; i < e + 4 && i < end; i++)
            y[i] = fsdp_random_uniform(word[i - e]) >= key->p ? x[i] * d->scale
                                                              : 0;
    }
}

static void
drop_blocks(const void *context, size_t begin, size_t end)
{
    const dropout_t *d = context;
    for (size_t block = begin; block < end; block++) {
        size_t first = block % d->blocks_per_sample * FSDP_BLOCK_NUMEL;
        size_t left = d->per_sample - first;
        drop(d, block / d->blocks_per_sample, first,
             first + (left < FSDP_BLOCK_NUMEL ? left : FSDP_BLOCK_NUMEL));
    }
}

void
K(dropout)(const fsdp_dropout_key_t *key, const void *x, void *y,
           size_t samples, size_t per_sample)
{
    FSDP_CHECK(key->p >= 0 && key->p <= 1, "dropout with probability %g",
               key->p);
    if (key->p == 0) {
        memmove(y, x, samples * per_sample * sizeof(real_t));
        return;
    }
    dropout_t d = {
        key,        x,
        y,          (real_t)(1 / (1 - key->p)),
        per_sample, (per_sample + FSDP_BLOCK_NUMEL - 1) / FSDP_BLOCK_NUMEL};
    fsdp_parallel_for(samples * d.blocks_per_sample, 1, drop_blocks, &d);
}
