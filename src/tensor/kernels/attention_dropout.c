#include "fsdp/random.h"
#include "tensor/kernels/attention_tile.h"

/* Words [begin, begin + count) of a stream, count up to TILE; they start at the
 * place returned, as a stream is made four words at a time. */
static const uint32_t *
random_words(const fsdp_dropout_key_t *key, uint64_t stream, uint64_t begin,
             size_t count, uint32_t words[TILE + 8])
{
    uint64_t first = begin / 4;
    for (size_t w = 0; w < begin % 4 + count; w += 4)
        fsdp_random_block(key->seed, FSDP_RANDOM_DROPOUT, key->layer, stream,
                          first + w / 4, words + w);
    return words + begin % 4;
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
        uint64_t row = place->head * positions + place->query + i;
        size_t keys = attention_keys(a, place, i / PANEL);
        uint32_t room[TILE + 8];
        const uint32_t *words =
            random_words(key, stream, row * positions + place->key, keys, room);
        for (size_t j = 0; j < keys; j++)
            factor[j * TILE + i] = words[j] >= a->first_kept ? scale : 0;
    }
}
