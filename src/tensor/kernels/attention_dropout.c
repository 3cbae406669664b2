#include "tensor/dropout_words.h"
#include "tensor/kernels/attention_tile.h"

void
attention_dropout(const attention_t *a, const attention_place_t *place,
                  real_t *factor)
{
    const fsdp_dropout_key_t *key = a->dropout;
    uint64_t positions = a->positions;
    real_t scale = (real_t)(1 / (1 - key->p));
    for (size_t i = 0; i < TILE && place->query + i < positions; i++) {
        uint64_t head = key->first_head + place->head;
        uint64_t row = head * positions + place->query + i;
        size_t keys = attention_keys(a, place, i / PANEL);
        /* Words come four at a time, the first of them perhaps not ours. */
        uint64_t begin = row * positions + place->key;
        uint32_t room[TILE + 8], *words = room + begin % 4;
        fsdp_dropout_words(key, place->sample, begin / 4,
                           (begin % 4 + keys + 3) / 4, room);
        for (size_t j = 0; j < keys; j++)
            factor[j * TILE + i] = words[j] >= a->first_kept ? scale : 0;
    }
}
