/* "model": tokens and merges. */

#include <string.h>

#include "data/tokenizer_read.h"
#include "fsdp/memory.h"

/* Numbers must be about as many as tokens, lest one of them ask for the memory of
 * millions. */
static size_t
largest_size(const fsdp_json_t *vocab, const fsdp_json_t *added)
{
    return 4 * (fsdp_json_size(vocab) + fsdp_json_size(added)) + 1024;
}

static void
see_id(const fsdp_json_t *value, size_t most, size_t *size)
{
    int32_t id;
    if (fsdp_tokenizer_id(value, most, &id) && (size_t)id + 1 > *size)
        *size = (size_t)id + 1;
}

size_t
fsdp_tokenizer_count_ids(const fsdp_json_t *vocab, const fsdp_json_t *added)
{
    size_t most = largest_size(vocab, added), size = 0;
    for (fsdp_json_iter_t at = fsdp_json_first(vocab); at.key != NULL;
         fsdp_json_next(&at))
        see_id(at.value, most, &size);
    for (size_t i = 0; i < fsdp_json_size(added); i++)
        see_id(fsdp_json_member(fsdp_json_at(added, i), "id"), most, &size);
    return size;
}

fsdp_status_t
fsdp_tokenizer_read_vocab(fsdp_tokenizer_t *t, const fsdp_json_t *vocab)
{
    for (fsdp_json_iter_t at = fsdp_json_first(vocab); at.key != NULL;
         fsdp_json_next(&at)) {
        int32_t id;
        size_t length;
        if (!fsdp_tokenizer_id(at.value, t->size, &id))
            return fsdp_tokenizer_bad(
                t, "model.vocab", "has a number that is none, or too large");
        char *bytes = fsdp_tokenizer_decode_letters(at.key, &length);
        if (!fsdp_tokenizer_set(t, id, bytes, length)) {
            fsdp_free(bytes);
            return fsdp_tokenizer_bad(t, "model.vocab", "has a number twice");
        }
    }
    fsdp_tokenizer_index_vocab(t);
    for (int b = 0; b < 256; b++)
        if (t->byte_token[b] < 0)
            return fsdp_tokenizer_bad(t, "model.vocab",
                                      "lacks one of the 256 bytes");
    return FSDP_OK;
}

/* The two halves of "a b" or ["a", "b"] as tokens. */
static bool
get_pair(const fsdp_json_t *value, char **left, char **right)
{
    const char *text = fsdp_json_get_string(value);
    const char *a = fsdp_json_get_string(fsdp_json_at(value, 0));
    const char *b = fsdp_json_get_string(fsdp_json_at(value, 1));
    const char *blank = text != NULL ? strchr(text, ' ') : NULL;
    if (blank != NULL && strchr(blank + 1, ' ') == NULL) {
        *left = fsdp_format("%.*s", (int)(blank - text), text);
        *right = fsdp_strdup(blank + 1);
        return true;
    }
    if (a == NULL || b == NULL || fsdp_json_size(value) != 2)
        return false;
    *left = fsdp_strdup(a);
    *right = fsdp_strdup(b);
    return true;
}

/* Both halves and the whole must be tokens. */
static bool
find_merge(const fsdp_tokenizer_t *t, const fsdp_json_t *vocab,
           const char *left, const char *right, fsdp_merge_t *merge)
{
    char *whole = fsdp_format("%s%s", left, right);
    bool good = fsdp_tokenizer_id(fsdp_json_member(vocab, left), t->size,
                                  &merge->left) &&
                fsdp_tokenizer_id(fsdp_json_member(vocab, right), t->size,
                                  &merge->right) &&
                fsdp_tokenizer_id(fsdp_json_member(vocab, whole), t->size,
                                  &merge->whole);
    fsdp_free(whole);
    return good;
}

fsdp_status_t
fsdp_tokenizer_read_merges(fsdp_tokenizer_t *t, const fsdp_json_t *vocab,
                           const fsdp_json_t *merges)
{
    size_t count = fsdp_json_size(merges);
    if (!fsdp_json_is(merges, FSDP_JSON_ARRAY) || count > INT32_MAX)
        return fsdp_tokenizer_bad(t, "model.merges", "is no array");
    fsdp_tokenizer_make_merges(t, count);
    for (size_t i = 0; i < count; i++) {
        fsdp_merge_t merge = {.rank = (int32_t)i};
        char *left = NULL, *right = NULL;
        if (!get_pair(fsdp_json_at(merges, i), &left, &right))
            return fsdp_tokenizer_bad(
                t, "model.merges",
                "has an entry that is neither \"a b\" nor "
                "[\"a\", \"b\"]");
        bool found = find_merge(t, vocab, left, right, &merge);
        fsdp_free(left);
        fsdp_free(right);
        if (!found)
            return fsdp_tokenizer_bad(t, "model.merges",
                                      "joins what is not in model.vocab");
        if (!fsdp_tokenizer_add_merge(t, merge))
            return fsdp_tokenizer_bad(t, "model.merges", "has a pair twice");
    }
    return FSDP_OK;
}

/* What would change the tokens if it were there. */
fsdp_status_t
fsdp_tokenizer_check_model(fsdp_tokenizer_t *t, const fsdp_json_t *model)
{
    static const char *const absent[] = {"continuing_subword_prefix",
                                         "end_of_word_suffix"};
    const char *type = fsdp_tokenizer_word(model, "type");
    double dropout = 0;
    bool fallback;
    if (!fsdp_json_is(model, FSDP_JSON_OBJECT))
        return fsdp_tokenizer_bad(t, "model", "is missing");
    if (fsdp_json_member(model, "type") != NULL &&
        (type == NULL || strcmp(type, "BPE") != 0))
        return fsdp_tokenizer_bad_word(t, "model.type", type);
    for (int i = 0; i < 2; i++) {
        const char *text = fsdp_tokenizer_word(model, absent[i]);
        if (fsdp_tokenizer_member(model, absent[i]) != NULL &&
            (text == NULL || text[0] != '\0'))
            return fsdp_tokenizer_bad_word(t, absent[i], text);
    }
    if (fsdp_tokenizer_member(model, "dropout") != NULL &&
        (!fsdp_json_get_number(fsdp_tokenizer_member(model, "dropout"),
                               &dropout) ||
         dropout != 0))
        return fsdp_tokenizer_bad(t, "model.dropout", "is not 0");
    if (!fsdp_tokenizer_flag(model, "byte_fallback", false, &fallback) ||
        fallback)
        return fsdp_tokenizer_bad(t, "model.byte_fallback", "is not false");
    if (!fsdp_tokenizer_flag(model, "ignore_merges", false, &t->ignore_merges))
        return fsdp_tokenizer_bad(t, "model.ignore_merges",
                                  "is neither true nor false");
    if (!fsdp_json_is(fsdp_json_member(model, "vocab"), FSDP_JSON_OBJECT))
        return fsdp_tokenizer_bad(t, "model.vocab", "is missing");
    return FSDP_OK;
}
