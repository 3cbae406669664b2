/* tokenizer.json, believed in nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/whole_file.h"
#include "data/tokenizer.h"
#include "fsdp/memory.h"

/* Llama 3's has 17 million bytes and 128,256 tokens. */
enum { MAX_FILE = 1 << 28, MAX_ADDED = 100000, MAX_SPECIAL = 100 };

/* What is wrong with a member, by its path: "model.vocab". */
static fsdp_status_t
bad(const fsdp_tokenizer_t *t, const char *member, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: its %s %s; only byte-level BPE as GPT-2 and Llama 3 "
                      "have it can be used here",
                      t->path, member, what);
}

static fsdp_status_t
bad_word(const fsdp_tokenizer_t *t, const char *member, const char *word)
{
    char *what = fsdp_format("is \"%.60s\"", word != NULL ? word : "?");
    fsdp_status_t status = bad(t, member, what);
    fsdp_free(what);
    return status;
}

/* NULL for null, too. */
static const fsdp_json_t *
member(const fsdp_json_t *object, const char *key)
{
    const fsdp_json_t *value = fsdp_json_member(object, key);
    return fsdp_json_is(value, FSDP_JSON_NULL) ? NULL : value;
}

static const char *
word(const fsdp_json_t *object, const char *key)
{
    return fsdp_json_get_string(fsdp_json_member(object, key));
}

/* The value, or `otherwise` if it is missing; false: it is of another kind. */
static bool
get_flag(const fsdp_json_t *object, const char *key, bool otherwise,
         bool *value)
{
    const fsdp_json_t *is = member(object, key);
    *value = otherwise;
    return is == NULL || fsdp_json_get_bool(is, value);
}

static bool
get_id(const fsdp_json_t *value, size_t size, int32_t *id)
{
    int64_t number;
    if (!fsdp_json_get_integer(value, &number) || number < 0 ||
        (uint64_t)number >= size)
        return false;
    *id = (int32_t)number;
    return true;
}

/* ---- the model -------------------------------------------------------------- */

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
    if (get_id(value, most, &id) && (size_t)id + 1 > *size)
        *size = (size_t)id + 1;
}

static size_t
count_ids(const fsdp_json_t *vocab, const fsdp_json_t *added)
{
    size_t most = largest_size(vocab, added), size = 0;
    for (fsdp_json_iter_t at = fsdp_json_first(vocab); at.key != NULL;
         fsdp_json_next(&at))
        see_id(at.value, most, &size);
    for (size_t i = 0; i < fsdp_json_size(added); i++)
        see_id(fsdp_json_member(fsdp_json_at(added, i), "id"), most, &size);
    return size;
}

static fsdp_status_t
read_vocab(fsdp_tokenizer_t *t, const fsdp_json_t *vocab)
{
    for (fsdp_json_iter_t at = fsdp_json_first(vocab); at.key != NULL;
         fsdp_json_next(&at)) {
        int32_t id;
        size_t length;
        if (!get_id(at.value, t->size, &id))
            return bad(t, "model.vocab",
                       "has a number that is none, or too large");
        char *bytes = fsdp_tokenizer_decode_letters(at.key, &length);
        if (!fsdp_tokenizer_set(t, id, bytes, length)) {
            fsdp_free(bytes);
            return bad(t, "model.vocab", "has a number twice");
        }
    }
    fsdp_tokenizer_index_vocab(t);
    for (int b = 0; b < 256; b++)
        if (t->byte_token[b] < 0)
            return bad(t, "model.vocab", "lacks one of the 256 bytes");
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
    bool good =
        get_id(fsdp_json_member(vocab, left), t->size, &merge->left) &&
        get_id(fsdp_json_member(vocab, right), t->size, &merge->right) &&
        get_id(fsdp_json_member(vocab, whole), t->size, &merge->whole);
    fsdp_free(whole);
    return good;
}

static fsdp_status_t
read_merges(fsdp_tokenizer_t *t, const fsdp_json_t *vocab,
            const fsdp_json_t *merges)
{
    size_t count = fsdp_json_size(merges);
    if (!fsdp_json_is(merges, FSDP_JSON_ARRAY) || count > INT32_MAX)
        return bad(t, "model.merges", "is no array");
    fsdp_tokenizer_make_merges(t, count);
    for (size_t i = 0; i < count; i++) {
        fsdp_merge_t merge = {.rank = (int32_t)i};
        char *left = NULL, *right = NULL;
        if (!get_pair(fsdp_json_at(merges, i), &left, &right))
            return bad(t, "model.merges",
                       "has an entry that is neither \"a b\" nor "
                       "[\"a\", \"b\"]");
        bool found = find_merge(t, vocab, left, right, &merge);
        fsdp_free(left);
        fsdp_free(right);
        if (!found)
            return bad(t, "model.merges", "joins what is not in model.vocab");
        if (!fsdp_tokenizer_add_merge(t, merge))
            return bad(t, "model.merges", "has a pair twice");
    }
    return FSDP_OK;
}

/* What would change the tokens if it were there. */
static fsdp_status_t
check_model(fsdp_tokenizer_t *t, const fsdp_json_t *model)
{
    static const char *const absent[] = {"continuing_subword_prefix",
                                         "end_of_word_suffix"};
    const char *type = word(model, "type");
    double dropout = 0;
    bool fallback;
    if (!fsdp_json_is(model, FSDP_JSON_OBJECT))
        return bad(t, "model", "is missing");
    if (fsdp_json_member(model, "type") != NULL &&
        (type == NULL || strcmp(type, "BPE") != 0))
        return bad_word(t, "model.type", type);
    for (int i = 0; i < 2; i++) {
        const char *text = word(model, absent[i]);
        if (member(model, absent[i]) != NULL &&
            (text == NULL || text[0] != '\0'))
            return bad_word(t, absent[i], text);
    }
    if (member(model, "dropout") != NULL &&
        (!fsdp_json_get_number(member(model, "dropout"), &dropout) ||
         dropout != 0))
        return bad(t, "model.dropout", "is not 0");
    if (!get_flag(model, "byte_fallback", false, &fallback) || fallback)
        return bad(t, "model.byte_fallback", "is not false");
    if (!get_flag(model, "ignore_merges", false, &t->ignore_merges))
        return bad(t, "model.ignore_merges", "is neither true nor false");
    if (!fsdp_json_is(fsdp_json_member(model, "vocab"), FSDP_JSON_OBJECT))
        return bad(t, "model.vocab", "is missing");
    return FSDP_OK;
}

/* ---- added tokens ------------------------------------------------------------ */

static fsdp_status_t
read_added_token(fsdp_tokenizer_t *t, const fsdp_json_t *value)
{
    static const char *const refused[] = {"single_word", "lstrip", "rstrip"};
    const char *content = word(value, "content");
    fsdp_added_token_t *a = &t->added[t->num_added];
    bool flag;
    if (content == NULL || content[0] == '\0' ||
        !get_id(fsdp_json_member(value, "id"), t->size, &a->id))
        return bad(t, "added_tokens", "has one without content or number");
    for (int i = 0; i < 3; i++)
        if (!get_flag(value, refused[i], false, &flag) || flag)
            return bad_word(t, "added_tokens", refused[i]);
    if (!get_flag(value, "normalized", true, &a->normalized))
        return bad(t, "added_tokens", "has a strange \"normalized\"");
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
        return bad(t, "added_tokens", "is no array, or too long");
    t->added = fsdp_calloc(FSDP_MEM_OTHER, (count + 1) * sizeof *t->added);
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        status = read_added_token(t, fsdp_json_at(added, i));
    qsort(t->added, t->num_added, sizeof *t->added, longest_first);
    return status;
}

/* ---- the pre-tokenizer -------------------------------------------------------- */

static fsdp_status_t
add_pattern(fsdp_tokenizer_t *t, const char *text, bool literal)
{
    if (t->num_patterns == FSDP_TOKENIZER_MAX_PATTERNS)
        return bad(t, "pre_tokenizer", "has too many patterns");
    return fsdp_pattern_create(t->path, text, literal,
                               &t->pattern[t->num_patterns++]);
}

static fsdp_status_t
read_split(fsdp_tokenizer_t *t, const fsdp_json_t *split)
{
    const fsdp_json_t *pattern = fsdp_json_member(split, "pattern");
    const char *regex = word(pattern, "Regex");
    const char *text = word(pattern, "String");
    const char *behavior = word(split, "behavior");
    bool invert;
    if (regex == NULL && text == NULL)
        return bad(t, "pre_tokenizer", "has a Split without pattern");
    if (behavior == NULL || strcmp(behavior, "Isolated") != 0)
        return bad_word(t, "pre_tokenizer's \"behavior\"", behavior);
    if (!get_flag(split, "invert", false, &invert) || invert)
        return bad(t, "pre_tokenizer's \"invert\"", "is not false");
    return add_pattern(t, regex != NULL ? regex : text, regex == NULL);
}

static fsdp_status_t
read_byte_level(fsdp_tokenizer_t *t, const fsdp_json_t *level)
{
    bool use_regex;
    if (!get_flag(level, "add_prefix_space", true, &t->add_prefix_space) ||
        !get_flag(level, "use_regex", true, &use_regex))
        return bad(t, "pre_tokenizer", "has a flag that is none");
    if (t->add_prefix_space && t->num_patterns > 0)
        return bad(t, "pre_tokenizer", "adds a space before each piece");
    return use_regex ? add_pattern(t, fsdp_pattern_gpt2, false) : FSDP_OK;
}

/* ByteLevel, alone or as the last of a sequence. */
static fsdp_status_t
read_pre_tokenizer(fsdp_tokenizer_t *t, const fsdp_json_t *pre)
{
    const char *type = word(pre, "type");
    const fsdp_json_t *parts = fsdp_json_member(pre, "pretokenizers");
    bool sequence = type != NULL && strcmp(type, "Sequence") == 0;
    size_t count = sequence ? fsdp_json_size(parts) : 1;
    fsdp_status_t status = FSDP_OK;
    if (type == NULL || count == 0)
        return bad(t, "pre_tokenizer", "is missing");
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const fsdp_json_t *part = sequence ? fsdp_json_at(parts, i) : pre;
        const char *is = word(part, "type");
        bool last = i + 1 == count;
        if (is != NULL && !last && strcmp(is, "Split") == 0)
            status = read_split(t, part);
        else if (is != NULL && last && strcmp(is, "ByteLevel") == 0)
            status = read_byte_level(t, part);
        else
            status = bad_word(t, "pre_tokenizer", is);
    }
    return status;
}

/* ---- the post-processor -------------------------------------------------------- */

/* The numbers of a special token of a template. */
static fsdp_status_t
add_special(fsdp_tokenizer_t *t, const fsdp_json_t *processor, const char *name,
            bool after)
{
    const fsdp_json_t *about =
        fsdp_json_member(fsdp_json_member(processor, "special_tokens"), name);
    const fsdp_json_t *ids = fsdp_json_member(about, "ids");
    int32_t *added = after ? t->after : t->before;
    size_t *count = after ? &t->num_after : &t->num_before;
    if (fsdp_json_size(ids) == 0)
        return bad(t, "post_processor", "has a special token without number");
    for (size_t i = 0; i < fsdp_json_size(ids); i++) {
        if (*count == MAX_SPECIAL)
            return bad(t, "post_processor", "adds too many tokens");
        /* A vocabulary may have holes. */
        if (!get_id(fsdp_json_at(ids, i), t->size, &added[*count]) ||
            t->bytes[added[*count]] == NULL)
            return bad(t, "post_processor", "adds a token that there is not");
        ++*count;
    }
    return FSDP_OK;
}

static fsdp_status_t
read_template(fsdp_tokenizer_t *t, const fsdp_json_t *processor)
{
    const fsdp_json_t *single = fsdp_json_member(processor, "single");
    bool after = false;
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < fsdp_json_size(single) && status == FSDP_OK; i++) {
        const fsdp_json_t *piece = fsdp_json_at(single, i);
        const char *name = word(fsdp_json_member(piece, "SpecialToken"), "id");
        if (name != NULL)
            status = add_special(t, processor, name, after);
        else if (fsdp_json_member(piece, "Sequence") != NULL && !after)
            after = true;
        else
            status = bad(t, "post_processor", "has a strange template");
    }
    if (status == FSDP_OK && !after)
        return bad(t, "post_processor", "has a template without the text");
    return status;
}

/* ByteLevel only moves offsets. */
static fsdp_status_t
read_processor(fsdp_tokenizer_t *t, const fsdp_json_t *processor, bool nested)
{
    const char *type = word(processor, "type");
    const fsdp_json_t *parts = fsdp_json_member(processor, "processors");
    fsdp_status_t status = FSDP_OK;
    if (processor == NULL)
        return FSDP_OK;
    if (type != NULL && strcmp(type, "ByteLevel") == 0)
        return FSDP_OK;
    if (type != NULL && strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, processor);
    if (nested || type == NULL || strcmp(type, "Sequence") != 0)
        return bad_word(t, "post_processor", type);
    for (size_t i = 0; i < fsdp_json_size(parts) && status == FSDP_OK; i++)
        status = read_processor(t, fsdp_json_at(parts, i), true);
    return status;
}

/* ---- all of it ------------------------------------------------------------------ */

static fsdp_status_t
read_document(fsdp_tokenizer_t *t, const fsdp_json_t *document)
{
    const fsdp_json_t *model = fsdp_json_member(document, "model");
    const fsdp_json_t *vocab = fsdp_json_member(model, "vocab");
    const fsdp_json_t *added = member(document, "added_tokens");
    const fsdp_json_t *normalizer = member(document, "normalizer");
    fsdp_status_t status = check_model(t, model);
    if (status == FSDP_OK && normalizer != NULL)
        status = bad_word(t, "normalizer", word(normalizer, "type"));
    if (status != FSDP_OK)
        return status;
    fsdp_tokenizer_make_vocab(t, count_ids(vocab, added));
    t->before = fsdp_alloc(FSDP_MEM_OTHER, MAX_SPECIAL * sizeof *t->before);
    t->after = fsdp_alloc(FSDP_MEM_OTHER, MAX_SPECIAL * sizeof *t->after);
    status = read_vocab(t, vocab);
    if (status == FSDP_OK)
        status = read_merges(t, vocab, fsdp_json_member(model, "merges"));
    if (status == FSDP_OK)
        status = read_added(t, added);
    if (status == FSDP_OK)
        status = read_pre_tokenizer(t, member(document, "pre_tokenizer"));
    if (status == FSDP_OK)
        status = read_processor(t, member(document, "post_processor"), false);
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
