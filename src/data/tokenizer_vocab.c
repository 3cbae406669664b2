/* Tokens and merges, in hash tables with open addressing. */
#include <string.h>

#include "data/tokenizer.h"
#include "data/utf8.h"
#include "fsdp/memory.h"

/* ---- letters for bytes ---------------------------------------------------- */

/* Printable characters of Latin-1 stand for themselves, the other bytes, in their
 * order, are U+0100 and on. */
static bool
is_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
           (byte >= 174 && byte <= 255);
}

/* -1: it stands for none. */
static int
byte_of(uint32_t point)
{
    if (point < 256)
        return is_itself(point) ? (int)point : -1;
    uint32_t number = 256;
    for (int byte = 0; byte < 256; byte++)
        if (!is_itself((uint32_t)byte) && number++ == point)
            return byte;
    return -1;
}

char *
fsdp_tokenizer_decode_letters(const char *text, size_t *length)
{
    size_t bytes = strlen(text), n = 0;
    char *out = fsdp_alloc(FSDP_MEM_OTHER, bytes + 1);
    for (size_t at = 0; at < bytes;) {
        uint32_t point = 0;
        int step = fsdp_utf8_next((const unsigned char *)text + at, bytes - at,
                                  &point);
        int byte = step > 0 ? byte_of(point) : -1;
        if (byte < 0) {
            memcpy(out, text, bytes);
            n = bytes;
            break;
        }
        out[n++] = (char)byte;
        at += (size_t)step;
    }
    *length = n;
    return out;
}

/* ---- tokens --------------------------------------------------------------- */

/* Twice as many places as entries, at least. */
static size_t
table_size(size_t entries)
{
    size_t size = 16;
    while (size < 2 * entries)
        size *= 2;
    return size;
}

static uint64_t
mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

void
fsdp_tokenizer_make_vocab(fsdp_tokenizer_t *t, size_t size)
{
    t->size = size;
    t->bytes = fsdp_calloc(FSDP_MEM_OTHER, size * sizeof *t->bytes);
    t->length = fsdp_calloc(FSDP_MEM_OTHER, size * sizeof *t->length);
}

bool
fsdp_tokenizer_set(fsdp_tokenizer_t *t, int32_t id, char *bytes, size_t length)
{
    if (t->bytes[id] != NULL)
        return false;
    t->bytes[id] = bytes;
    t->length[id] = length;
    return true;
}

/* The place of a token, or the empty one where it belongs. */
static size_t
place_of(const fsdp_tokenizer_t *t, const char *bytes, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = mix(hash + (unsigned char)bytes[i]);
    for (size_t at = hash;; at++) {
        int32_t id = t->by_bytes[at & (t->by_bytes_size - 1)];
        if (id < 0 || (t->length[id] == length &&
                       memcmp(t->bytes[id], bytes, length) == 0))
            return at & (t->by_bytes_size - 1);
    }
}

void
fsdp_tokenizer_index_vocab(fsdp_tokenizer_t *t)
{
    t->by_bytes_size = table_size(t->size);
    t->by_bytes =
        fsdp_alloc(FSDP_MEM_OTHER, t->by_bytes_size * sizeof *t->by_bytes);
    memset(t->by_bytes, 0xff, t->by_bytes_size * sizeof *t->by_bytes);
    for (size_t id = 0; id < t->size; id++) {
        if (t->bytes[id] == NULL)
            continue;
        size_t place = place_of(t, t->bytes[id], t->length[id]);
        if (t->by_bytes[place] < 0)
            t->by_bytes[place] = (int32_t)id;
    }
    for (int b = 0; b < 256; b++)
        t->byte_token[b] = fsdp_tokenizer_find(t, (char[]){(char)b}, 1);
}

int32_t
fsdp_tokenizer_find(const fsdp_tokenizer_t *t, const char *bytes, size_t length)
{
    return t->by_bytes[place_of(t, bytes, length)];
}

/* ---- merges --------------------------------------------------------------- */

static fsdp_merge_t *
merge_place(const fsdp_tokenizer_t *t, int32_t left, int32_t right)
{
    size_t at = mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    for (;; at++) {
        fsdp_merge_t *m = &t->merge[at & (t->merge_size - 1)];
        if (m->whole < 0 || (m->left == left && m->right == right))
            return m;
    }
}

void
fsdp_tokenizer_make_merges(fsdp_tokenizer_t *t, size_t count)
{
    t->merge_size = table_size(count);
    t->merge = fsdp_alloc(FSDP_MEM_OTHER, t->merge_size * sizeof *t->merge);
    for (size_t i = 0; i < t->merge_size; i++)
        t->merge[i] = (fsdp_merge_t){.whole = -1};
}

bool
fsdp_tokenizer_add_merge(fsdp_tokenizer_t *t, fsdp_merge_t merge)
{
    fsdp_merge_t *place = merge_place(t, merge.left, merge.right);
    if (place->whole >= 0)
        return false;
    *place = merge;
    return true;
}

const fsdp_merge_t *
fsdp_tokenizer_merge(const fsdp_tokenizer_t *t, int32_t left, int32_t right)
{
    const fsdp_merge_t *place = merge_place(t, left, right);
    return place->whole >= 0 ? place : NULL;
}
