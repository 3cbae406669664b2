#include "fsdp/random.h"
#include "tensor/kernels/attention_tile.h"

/* The words of elements [begin, begin + count) to factors, a column of the
 * tile. */
static void
drop_column(const fsdp_dropout_key_t *key, uint64_t stream, uint64_t begin,
            size_t count, real_t scale, real_t *factor)
{
    size_t skip = begin % 4; /* words of the first block that are not ours */
    for (size_t j = 0; j < count;) {
        uint32_t word[4];
        fsdp_random_block(key->seed, FSDP_RANDOM_DROPOUT, key->layer, stream,
                          (begin + j) / 4, word);
        for (size_t w = skip; w < 4 && j < count; w++, j++)
            factor[j * TILE] =
                fsdp_random_uniform(word[w]) >= key->p ? scale : 0;
        skip = 0;
    }
}

void
attention_dropout(const attention_t *a, const attention_place_t *place,
                  real_t *factor)
{
    const fsdp_dropout_key_t *key = a->dropout;
    uint64_t positions = a->positions;
    uint64_t stream = (uint64_t)key->step << 32 |
                      (uint32_t)(key->first_sample + place->sample);
    real_t scale = (real_t)(1 / (1 - key->p));
    for (size_t i = 0; i < TILE && place->query + i < positions; i++) {
        size_t keys = attention_keys(a, place, i / PANEL);
        uint64_t row = place->head * positions + place->query + i;
        drop_column(key, stream, row * positions + place->key, keys, scale,
                    factor + i);
    }
}
