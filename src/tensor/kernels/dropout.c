#include <string.h>

#include "fsdp/status.h"
#include "tensor/dropout_words.h"
#include "tensor/kernels/entries.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct dropout {
    const fsdp_dropout_key_t *key;
    const real_t *x;
    real_t *y, scale;
    uint64_t first_kept;
    size_t per_sample, blocks_per_sample;
} dropout_t;

enum { PART = 512 }; /* elements whose words are made at a time */

/* n elements, one for each word. */
FSDP_CLONES static void
drop(const dropout_t *dropout, const uint32_t *words, const real_t *x,
     real_t *y, size_t n)
{
    uint64_t first_kept = dropout->first_kept;
    real_t scale = dropout->scale;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = words[i] >= first_kept ? x[i] * scale : 0;
}

/* Elements [begin, end) of a sample; begin is a multiple of PART. */
static void
drop_elements(const dropout_t *d, size_t sample, size_t begin, size_t end)
{
    size_t at = sample * d->per_sample;
    uint32_t words[PART];
    for (size_t e = begin; e < end; e += PART) {
        size_t n = end - e < PART ? end - e : PART;
        fsdp_dropout_words(d->key, sample, e / 4, (n + 3) / 4, words);
        drop(d, words, d->x + at + e, d->y + at + e, n);
    }
}

static void
drop_blocks(const void *context, size_t begin, size_t end)
{
    const dropout_t *d = context;
    for (size_t block = begin; block < end; block++) {
        size_t first = block % d->blocks_per_sample * FSDP_BLOCK_NUMEL;
        size_t left = d->per_sample - first;
        drop_elements(d, block / d->blocks_per_sample, first,
                      first +
                          (left < FSDP_BLOCK_NUMEL ? left : FSDP_BLOCK_NUMEL));
    }
}

void
K(dropout)(const fsdp_dropout_key_t *key, const void *x, void *y,
           size_t samples, size_t per_sample)
{
    FSDP_CHECK(key->p >= 0 && key->p <= 1, "dropout with probability %g",
               key->p);
    if (key->p == 0) {
        if (x != y)
            memcpy(y, x, samples * per_sample * sizeof(real_t));
        return;
    }
    dropout_t d = {
        .key = key,
        .x = x,
        .y = y,
        .scale = (real_t)(1 / (1 - key->p)),
        .first_kept = fsdp_dropout_first_kept(key->p),
        .per_sample = per_sample,
        .blocks_per_sample =
            (per_sample + FSDP_BLOCK_NUMEL - 1) / FSDP_BLOCK_NUMEL,
    };
    fsdp_parallel_for(samples * d.blocks_per_sample, 1, drop_blocks, &d);
}
