#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* An fsdp_json_t is Jansson's json_t under another name, so that no other file
 * need include jansson.h.  Its functions take no const; those called here
 * change nothing. */
static json_t *
jansson(const fsdp_json_t *value)
{
    return (json_t *)(uintptr_t)value;
}

static const fsdp_json_t *
ours(const json_t *value)
{
    return (const fsdp_json_t *)value;
}

fsdp_status_t
fsdp_json_parse(const char *name, const char *text, size_t length,
                fsdp_json_t **document)
{
    json_error_t error;
    json_t *root = json_loadb(text, length,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    *document = (fsdp_json_t *)root;
    if (root != NULL)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT, "%s: line %d, byte %d: not JSON: %s",
                      name, error.line, error.position, error.text);
}

void
fsdp_json_destroy(fsdp_json_t **document)
{
    json_decref((json_t *)*document);
    *document = NULL;
}

static bool
has_type(const fsdp_json_t *value, json_type type)
{
    return value != NULL && json_typeof(jansson(value)) == type;
}

bool
fsdp_json_is(const fsdp_json_t *value, fsdp_json_kind_t kind)
{
    switch (kind) {
    case FSDP_JSON_NULL:
        return has_type(value, JSON_NULL);
    case FSDP_JSON_BOOL:
        return has_type(value, JSON_TRUE) || has_type(value, JSON_FALSE);
    case FSDP_JSON_INTEGER:
        return has_type(value, JSON_INTEGER);
    case FSDP_JSON_REAL:
        return has_type(value, JSON_REAL);
    case FSDP_JSON_STRING:
        return has_type(value, JSON_STRING);
    case FSDP_JSON_ARRAY:
        return has_type(value, JSON_ARRAY);
    case FSDP_JSON_OBJECT:
        return has_type(value, JSON_OBJECT);
    }
    return false;
}

const char *
fsdp_json_kind_name(const fsdp_json_t *value)
{
    static const char *const names[] = {
        [FSDP_JSON_NULL] = "null",          [FSDP_JSON_BOOL] = "a truth value",
        [FSDP_JSON_INTEGER] = "an integer", [FSDP_JSON_REAL] = "a real number",
        [FSDP_JSON_STRING] = "a string",    [FSDP_JSON_ARRAY] = "an array",
        [FSDP_JSON_OBJECT] = "an object",
    };
    for (int kind = FSDP_JSON_NULL; kind <= FSDP_JSON_OBJECT; kind++)
        if (fsdp_json_is(value, (fsdp_json_kind_t)kind))
            return names[kind];
    return "nothing";
}

bool
fsdp_json_get_bool(const fsdp_json_t *value, bool *result)
{
    if (!fsdp_json_is(value, FSDP_JSON_BOOL))
        return false;
    *result = json_is_true(jansson(value));
    return true;
}

bool
fsdp_json_get_integer(const fsdp_json_t *value, int64_t *result)
{
    if (!fsdp_json_is(value, FSDP_JSON_INTEGER))
        return false;
    *result = json_integer_value(jansson(value));
    return true;
}

bool
fsdp_json_get_number(const fsdp_json_t *value, double *result)
{
    if (!fsdp_json_is(value, FSDP_JSON_INTEGER) &&
        !fsdp_json_is(value, FSDP_JSON_REAL))
        return false;
    *result = json_number_value(jansson(value));
    return true;
}

bool
fsdp_json_get_count(const fsdp_json_t *value, int64_t max, uint64_t *result)
{
    int64_t number;
    if (!fsdp_json_get_integer(value, &number) || number < 0 || number > max)
        return false;
    *result = (uint64_t)number;
    return true;
}

const char *
fsdp_json_get_string(const fsdp_json_t *value)
{
    return value != NULL ? json_string_value(jansson(value)) : NULL;
}

bool
fsdp_json_get_hash(const fsdp_json_t *value, uint64_t *hash)
{
    const char *text = fsdp_json_get_string(value);
    if (text == NULL || strlen(text) != 16 ||
        strspn(text, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text, NULL, 16);
    return true;
}

size_t
fsdp_json_size(const fsdp_json_t *value)
{
    if (fsdp_json_is(value, FSDP_JSON_OBJECT))
        return json_object_size(jansson(value));
    return value != NULL ? json_array_size(jansson(value)) : 0;
}

const fsdp_json_t *
fsdp_json_at(const fsdp_json_t *array, size_t i)
{
    return array != NULL ? ours(json_array_get(jansson(array), i)) : NULL;
}

const fsdp_json_t *
fsdp_json_member(const fsdp_json_t *object, const char *key)
{
    if (object == NULL)
        return NULL;
    return ours(json_object_get(jansson(object), key));
}

static fsdp_json_iter_t
iter_at(const fsdp_json_t *object, void *place)
{
    fsdp_json_iter_t iter = {NULL, NULL, object, place};
    if (place != NULL) {
        iter.key = json_object_iter_key(place);
        iter.value = ours(json_object_iter_value(place));
    }
    return iter;
}

fsdp_json_iter_t
fsdp_json_first(const fsdp_json_t *object)
{
    if (object == NULL)
        return iter_at(NULL, NULL);
    return iter_at(object, json_object_iter(jansson(object)));
}

void
fsdp_json_next(fsdp_json_iter_t *iter)
{
    void *next = json_object_iter_next(jansson(iter->object), iter->place);
    *iter = iter_at(iter->object, next);
}
