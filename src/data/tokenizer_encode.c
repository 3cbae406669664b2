/* From a text to tokens. */
#include <string.h>

#include "data/dataset.h"
#include "data/tokenizer.h"
#include "data/utf8.h"
#include "fsdp/memory.h"

/* What is being encoded. */
typedef struct encoder {
    const fsdp_tokenizer_t *t;
    fsdp_token_list_t list;
    fsdp_status_t status;
} encoder_t;

/* Cut by the patterns from number i on; matches and what is between them are
 * pieces alike. */
static void
cut(encoder_t *e, int i, const char *text, size_t length)
{
    if (i == e->t->num_patterns) {
        fsdp_tokenizer_bpe(e->t, text, length, &e->list);
        return;
    }
    for (size_t at = 0; at < length && e->status == FSDP_OK;) {
        size_t begin, end;
        e->status =
            fsdp_pattern_next(e->t->pattern[i], text, length, at, &begin, &end);
        if (e->status == FSDP_OK && begin > at)
            cut(e, i + 1, text + at, begin - at);
        if (e->status == FSDP_OK && end > begin)
            cut(e, i + 1, text + begin, end - begin);
        at = end;
    }
}

static void
encode_plain(encoder_t *e, const char *text, size_t length)
{
    if (length == 0)
        return;
    if (!e->t->add_prefix_space || text[0] == ' ') {
        cut(e, 0, text, length);
        return;
    }
    char *spaced = fsdp_alloc(FSDP_MEM_OTHER, length + 1);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, length);
    cut(e, 0, spaced, length + 1);
    fsdp_free(spaced);
}

/* The added token that stands at the beginning of a text; NULL: none does. */
static const fsdp_added_token_t *
added_at(const fsdp_tokenizer_t *t, bool normalized, const char *text,
         size_t length)
{
    for (size_t i = 0; i < t->num_added; i++) {
        const fsdp_added_token_t *a = &t->added[i];
        if (a->normalized == normalized && a->length <= length &&
            memcmp(a->text, text, a->length) == 0)
            return a;
    }
    return NULL;
}

/* First the added tokens that are looked for in the text as it is, then, between
 * them, the others. */
static void
encode_added(encoder_t *e, bool normalized, const char *text, size_t length)
{
    bool begins[256] = {false};
    size_t plain = 0;
    for (size_t i = 0; i < e->t->num_added; i++)
        begins[(unsigned char)e->t->added[i].text[0]] = true;
    for (size_t at = 0; at <= length && e->status == FSDP_OK;) {
        const fsdp_added_token_t *found =
            at < length && begins[(unsigned char)text[at]]
                ? added_at(e->t, normalized, text + at, length - at)
                : NULL;
        if (found == NULL && at < length) {
            at++;
            continue;
        }
        if (normalized)
            encode_plain(e, text + plain, at - plain);
        else
            encode_added(e, true, text + plain, at - plain);
        if (found != NULL)
            fsdp_token_list_add(&e->list, found->id);
        at += found != NULL ? found->length : 1;
        plain = at;
    }
}

fsdp_status_t
fsdp_tokenizer_encode(const fsdp_tokenizer_t *t, const char *text,
                      size_t length, bool special, int32_t **tokens,
                      size_t *count, size_t *replaced)
{
    encoder_t e = {.t = t};
    size_t sound, bad;
    char *repaired = fsdp_utf8_repair(text, length, &sound, &bad);
    for (size_t i = 0; special && i < t->num_before; i++)
        fsdp_token_list_add(&e.list, t->before[i]);
    encode_added(&e, false, repaired, sound);
    for (size_t i = 0; special && i < t->num_after; i++)
        fsdp_token_list_add(&e.list, t->after[i]);
    fsdp_free(repaired);
    fsdp_token_list_end(&e.list);
    if (e.status != FSDP_OK) {
        fsdp_free(e.list.token);
        e.list.token = NULL;
    }
    *tokens = e.list.token;
    *count = e.status == FSDP_OK ? e.list.count : 0;
    if (replaced != NULL)
        *replaced = bad;
    return e.status;
}

fsdp_status_t
fsdp_tokenizer_encode_file(const fsdp_tokenizer_t *t, const char *path,
                           int32_t **tokens, size_t *count, size_t *bytes,
                           size_t *replaced)
{
    char *text;
    *tokens = NULL;
    *count = *replaced = 0;
    fsdp_status_t status = fsdp_data_read_file(path, &text, bytes);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_encode(t, text, *bytes, false, tokens, count,
                                       replaced);
    fsdp_free(text);
    return status;
}

size_t
fsdp_tokenizer_size(const fsdp_tokenizer_t *t)
{
    return t->size;
}

const char *
fsdp_tokenizer_bytes(const fsdp_tokenizer_t *t, int32_t token, size_t *length)
{
    bool known = token >= 0 && (size_t)token < t->size;
    *length = known ? t->length[token] : 0;
    return known ? t->bytes[token] : NULL;
}
