/* Members of tokenizer.json, and what is wrong with one. */

#include "data/tokenizer_read.h"
#include "fsdp/memory.h"

/* What is wrong with a fsdp_tokenizer_member, by its path: "model.vocab". */
fsdp_status_t
fsdp_tokenizer_bad(const fsdp_tokenizer_t *t, const char *fsdp_tokenizer_member,
                   const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: its %s %s; only byte-level BPE as GPT-2 and Llama 3 "
                      "have it can be used here",
                      t->path, fsdp_tokenizer_member, what);
}

fsdp_status_t
fsdp_tokenizer_bad_word(const fsdp_tokenizer_t *t,
                        const char *fsdp_tokenizer_member,
                        const char *fsdp_tokenizer_word)
{
    char *what =
        fsdp_format("is \"%.60s\"",
                    fsdp_tokenizer_word != NULL ? fsdp_tokenizer_word : "?");
    fsdp_status_t status = fsdp_tokenizer_bad(t, fsdp_tokenizer_member, what);
    fsdp_free(what);
    return status;
}

/* NULL for null, too. */
const fsdp_json_t *
fsdp_tokenizer_member(const fsdp_json_t *object, const char *key)
{
    const fsdp_json_t *value = fsdp_json_member(object, key);
    return fsdp_json_is(value, FSDP_JSON_NULL) ? NULL : value;
}

const char *
fsdp_tokenizer_word(const fsdp_json_t *object, const char *key)
{
    return fsdp_json_get_string(fsdp_json_member(object, key));
}

/* The value, or `otherwise` if it is missing; false: it is of another kind. */
bool
fsdp_tokenizer_flag(const fsdp_json_t *object, const char *key, bool otherwise,
                    bool *value)
{
    const fsdp_json_t *is = fsdp_tokenizer_member(object, key);
    *value = otherwise;
    return is == NULL || fsdp_json_get_bool(is, value);
}

bool
fsdp_tokenizer_id(const fsdp_json_t *value, size_t size, int32_t *id)
{
    int64_t number;
    if (!fsdp_json_get_integer(value, &number) || number < 0 ||
        (uint64_t)number >= size)
        return false;
    *id = (int32_t)number;
    return true;
}
