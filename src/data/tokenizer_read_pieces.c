/* "pre_tokenizer": where a text is cut; "post_processor": what is added. */

#include <string.h>

#include "data/tokenizer_read.h"

static fsdp_status_t
add_pattern(fsdp_tokenizer_t *t, const char *text, bool literal)
{
    if (t->num_patterns == FSDP_TOKENIZER_MAX_PATTERNS)
        return fsdp_tokenizer_bad(t, "pre_tokenizer", "has too many patterns");
    return fsdp_pattern_create(t->path, text, literal,
                               &t->pattern[t->num_patterns++]);
}

static fsdp_status_t
read_split(fsdp_tokenizer_t *t, const fsdp_json_t *split)
{
    const fsdp_json_t *pattern = fsdp_json_member(split, "pattern");
    const char *regex = fsdp_tokenizer_word(pattern, "Regex");
    const char *text = fsdp_tokenizer_word(pattern, "String");
    const char *behavior = fsdp_tokenizer_word(split, "behavior");
    bool invert;
    if (regex == NULL && text == NULL)
        return fsdp_tokenizer_bad(t, "pre_tokenizer",
                                  "has a Split without pattern");
    if (behavior == NULL || strcmp(behavior, "Isolated") != 0)
        return fsdp_tokenizer_bad_word(t, "pre_tokenizer's \"behavior\"",
                                       behavior);
    if (!fsdp_tokenizer_flag(split, "invert", false, &invert) || invert)
        return fsdp_tokenizer_bad(t, "pre_tokenizer's \"invert\"",
                                  "is not false");
    return add_pattern(t, regex != NULL ? regex : text, regex == NULL);
}

static fsdp_status_t
read_byte_level(fsdp_tokenizer_t *t, const fsdp_json_t *level)
{
    bool use_regex;
    if (!fsdp_tokenizer_flag(level, "add_prefix_space", true,
                             &t->add_prefix_space) ||
        !fsdp_tokenizer_flag(level, "use_regex", true, &use_regex))
        return fsdp_tokenizer_bad(t, "pre_tokenizer",
                                  "has a flag that is none");
    if (t->add_prefix_space && t->num_patterns > 0)
        return fsdp_tokenizer_bad(t, "pre_tokenizer",
                                  "adds a space before each piece");
    return use_regex ? add_pattern(t, fsdp_pattern_gpt2, false) : FSDP_OK;
}

/* ByteLevel, alone or as the last of a sequence. */
fsdp_status_t
fsdp_tokenizer_read_pre_tokenizer(fsdp_tokenizer_t *t, const fsdp_json_t *pre)
{
    const char *type = fsdp_tokenizer_word(pre, "type");
    const fsdp_json_t *parts = fsdp_json_member(pre, "pretokenizers");
    bool sequence = type != NULL && strcmp(type, "Sequence") == 0;
    size_t count = sequence ? fsdp_json_size(parts) : 1;
    fsdp_status_t status = FSDP_OK;
    if (type == NULL || count == 0)
        return fsdp_tokenizer_bad(t, "pre_tokenizer", "is missing");
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const fsdp_json_t *part = sequence ? fsdp_json_at(parts, i) : pre;
        const char *is = fsdp_tokenizer_word(part, "type");
        bool last = i + 1 == count;
        if (is != NULL && !last && strcmp(is, "Split") == 0)
            status = read_split(t, part);
        else if (is != NULL && last && strcmp(is, "ByteLevel") == 0)
            status = read_byte_level(t, part);
        else
            status = fsdp_tokenizer_bad_word(t, "pre_tokenizer", is);
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
        return fsdp_tokenizer_bad(t, "post_processor",
                                  "has a special token without number");
    for (size_t i = 0; i < fsdp_json_size(ids); i++) {
        if (*count == FSDP_TOKENIZER_MAX_SPECIAL)
            return fsdp_tokenizer_bad(t, "post_processor",
                                      "adds too many tokens");
        /* A vocabulary may have holes. */
        if (!fsdp_tokenizer_id(fsdp_json_at(ids, i), t->size, &added[*count]) ||
            t->bytes[added[*count]] == NULL)
            return fsdp_tokenizer_bad(t, "post_processor",
                                      "adds a token that there is not");
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
        const char *name =
            fsdp_tokenizer_word(fsdp_json_member(piece, "SpecialToken"), "id");
        if (name != NULL)
            status = add_special(t, processor, name, after);
        else if (fsdp_json_member(piece, "Sequence") != NULL && !after)
            after = true;
        else
            status = fsdp_tokenizer_bad(t, "post_processor",
                                        "has a strange template");
    }
    if (status == FSDP_OK && !after)
        return fsdp_tokenizer_bad(t, "post_processor",
                                  "has a template without the text");
    return status;
}

/* ByteLevel only moves offsets. */
fsdp_status_t
fsdp_tokenizer_read_processor(fsdp_tokenizer_t *t, const fsdp_json_t *processor,
                              bool nested)
{
    const char *type = fsdp_tokenizer_word(processor, "type");
    const fsdp_json_t *parts = fsdp_json_member(processor, "processors");
    fsdp_status_t status = FSDP_OK;
    if (processor == NULL)
        return FSDP_OK;
    if (type != NULL && strcmp(type, "ByteLevel") == 0)
        return FSDP_OK;
    if (type != NULL && strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, processor);
    if (nested || type == NULL || strcmp(type, "Sequence") != 0)
        return fsdp_tokenizer_bad_word(t, "post_processor", type);
    for (size_t i = 0; i < fsdp_json_size(parts) && status == FSDP_OK; i++)
        status = fsdp_tokenizer_read_processor(t, fsdp_json_at(parts, i), true);
    return status;
}
