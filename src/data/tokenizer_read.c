/* tokenizer.json, believed in nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/whole_file.h"
#include "data/tokenizer_read.h"
#include "fsdp/memory.h"

/* Llama 3's has 17 million bytes and 128,256 tokens. */
enum { MAX_FILE = 1 << 28, MAX_ADDED = 100000 };

/* ---- added tokens ------------------------------------------------------------ */

static fsdp_status_t
read_added_token(fsdp_tokenizer_t *t, const fsdp_json_t *value)
{
    static const char *const refused[] = {"single_word", "lstrip", "rstrip"};
    const char *content = fsdp_tokenizer_word(value, "content");
    fsdp_added_token_t *a = &t->added[t->num_added];
    bool flag;
    if (content == NULL || content[0] == '\0' ||
        !fsdp_tokenizer_id(fsdp_json_member(value, "id"), t->size, &a->id))
        return fsdp_tokenizer_bad(t, "added_tokens",
                                  "has one without content or number");
    for (int i = 0; i < 3; i++)
        if (!fsdp_tokenizer_flag(value, refused[i], false, &flag) || flag)
            return fsdp_tokenizer_bad_word(t, "added_tokens", refused[i]);
    if (!fsdp_tokenizer_flag(value, "normalized", true, &a->normalized))
        return fsdp_tokenizer_bad(t, "added_tokens",
                                  "has a strange \"normalized\"");
    a->text = fsdp_strdup(content);
    a->length = strlen(content);
    t->num_added++;
    /* Most are in the vocabulary too. */
    if (t->bytes[a->id] == NULL)
        fsdp_tokenizer_set(t, a->id, fsdp_strdup(content), a->length);
    return FSDP_OK;
}

static int
longest_first(const void *x, const void *y)
{
    const fsdp_added_token_t *a = x, *b = y;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static fsdp_status_t
read_added(fsdp_tokenizer_t *t, const fsdp_json_t *added)
{
    size_t count = fsdp_json_size(added);
    fsdp_status_t status = FSDP_OK;
    if ((added != NULL && !fsdp_json_is(added, FSDP_JSON_ARRAY)) ||
        count > MAX_ADDED)
        return fsdp_tokenizer_bad(t, "added_tokens",
                                  "is no array, or too long");
    t->added = fsdp_calloc(FSDP_MEM_OTHER, (count + 1) * sizeof *t->added);
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        status = read_added_token(t, fsdp_json_at(added, i));
    qsort(t->added, t->num_added, sizeof *t->added, longest_first);
    return status;
}

/* ---- all of it ------------------------------------------------------------------ */

static fsdp_status_t
read_document(fsdp_tokenizer_t *t, const fsdp_json_t *document)
{
    const fsdp_json_t *model = fsdp_json_member(document, "model");
    const fsdp_json_t *vocab = fsdp_json_member(model, "vocab");
    const fsdp_json_t *added = fsdp_tokenizer_member(document, "added_tokens");
    const fsdp_json_t *normalizer =
        fsdp_tokenizer_member(document, "normalizer");
    fsdp_status_t status = fsdp_tokenizer_check_model(t, model);
    if (status == FSDP_OK && normalizer != NULL)
        status = fsdp_tokenizer_bad_word(
            t, "normalizer", fsdp_tokenizer_word(normalizer, "type"));
    if (status != FSDP_OK)
        return status;
    fsdp_tokenizer_make_vocab(t, fsdp_tokenizer_count_ids(vocab, added));
    t->before = fsdp_alloc(FSDP_MEM_OTHER,
                           FSDP_TOKENIZER_MAX_SPECIAL * sizeof *t->before);
    t->after = fsdp_alloc(FSDP_MEM_OTHER,
                          FSDP_TOKENIZER_MAX_SPECIAL * sizeof *t->after);
    status = fsdp_tokenizer_read_vocab(t, vocab);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_read_merges(t, vocab,
                                            fsdp_json_member(model, "merges"));
    if (status == FSDP_OK)
        status = read_added(t, added);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_read_pre_tokenizer(
            t, fsdp_tokenizer_member(document, "pre_tokenizer"));
    if (status == FSDP_OK)
        status = fsdp_tokenizer_read_processor(
            t, fsdp_tokenizer_member(document, "post_processor"), false);
    return status;
}

/* "tokenizer.json" in a folder, or the file itself. */
static char *
path_of(const char *path)
{
    struct stat kind;
    size_t length = strlen(path);
    if (stat(path, &kind) != 0 || !S_ISDIR(kind.st_mode))
        return fsdp_strdup(path);
    return fsdp_format("%s%stokenizer.json", path,
                       length > 0 && path[length - 1] == '/' ? "" : "/");
}

fsdp_status_t
fsdp_tokenizer_open(const char *path, fsdp_tokenizer_t **tokenizer)
{
    fsdp_tokenizer_t *t = fsdp_calloc(FSDP_MEM_OTHER, sizeof *t);
    fsdp_json_t *document = NULL;
    char *text = NULL;
    size_t length;
    t->path = path_of(path);
    fsdp_status_t status = fsdp_file_read(t->path, MAX_FILE, &text, &length);
    if (status == FSDP_OK)
        status = fsdp_json_parse(t->path, text, length, &document);
    if (status == FSDP_OK)
        status = read_document(t, document);
    fsdp_json_destroy(&document);
    fsdp_free(text);
    if (status != FSDP_OK)
        fsdp_tokenizer_close(&t);
    *tokenizer = t;
    return status;
}

void
fsdp_tokenizer_close(fsdp_tokenizer_t **tokenizer)
{
    fsdp_tokenizer_t *t = *tokenizer;
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->size; i++)
        fsdp_free(t->bytes[i]);
    for (size_t i = 0; i < t->num_added; i++)
        fsdp_free(t->added[i].text);
    for (int i = 0; i < t->num_patterns; i++)
        fsdp_pattern_destroy(&t->pattern[i]);
    void *const blocks[] = {t->bytes, t->length, t->by_bytes, t->merge,
                            t->added, t->before, t->after,    t->path};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fsdp_free(blocks[i]);
    fsdp_free(t);
    *tokenizer = NULL;
}
