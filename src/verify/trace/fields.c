#include "verify/trace/fields.h"

#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"

void
trace_field_bad(trace_fields_t *r, const char *key, const char *must)
{
    if (r->status == FSDP_OK)
        r->status = fsdp_error(FSDP_ERR_INPUT,
                               "%s: \"%s\" must be %s; see "
                               "python/trace_format.md",
                               r->name, key, must);
}

const fsdp_json_t *
trace_field(const trace_fields_t *r, const fsdp_json_t *object, const char *key)
{
    const fsdp_json_t *value = fsdp_json_member(object, key);
    bool none = r->status != FSDP_OK || fsdp_json_is(value, FSDP_JSON_NULL);
    return none ? NULL : value;
}

static const fsdp_json_t *
get_kind(trace_fields_t *r, const fsdp_json_t *object, const char *key,
         fsdp_json_kind_t kind, const char *must)
{
    const fsdp_json_t *value = trace_field(r, object, key);
    if (value == NULL || fsdp_json_is(value, kind))
        return value;
    trace_field_bad(r, key, must);
    return NULL;
}

const fsdp_json_t *
trace_field_object(trace_fields_t *r, const fsdp_json_t *object,
                   const char *key)
{
    return get_kind(r, object, key, FSDP_JSON_OBJECT, "an object");
}

const fsdp_json_t *
trace_field_array(trace_fields_t *r, const fsdp_json_t *object, const char *key)
{
    return get_kind(r, object, key, FSDP_JSON_ARRAY, "an array");
}

const char *
trace_field_text(trace_fields_t *r, const fsdp_json_t *object, const char *key)
{
    return fsdp_json_get_string(
        get_kind(r, object, key, FSDP_JSON_STRING, "a string"));
}

bool
trace_field_bool(trace_fields_t *r, const fsdp_json_t *object, const char *key,
                 bool other)
{
    fsdp_json_get_bool(
        get_kind(r, object, key, FSDP_JSON_BOOL, "true or false"), &other);
    return other;
}

long
trace_field_count(trace_fields_t *r, const fsdp_json_t *object, const char *key,
                  long min, long max, long other)
{
    int64_t number = other;
    const fsdp_json_t *value =
        get_kind(r, object, key, FSDP_JSON_INTEGER, "a whole number");
    if (value == NULL)
        return other;
    fsdp_json_get_integer(value, &number);
    if (number < min || number > max) {
        char must[80];
        snprintf(must, sizeof must, "a whole number from %ld to %ld", min, max);
        trace_field_bad(r, key, must);
        return other;
    }
    return (long)number;
}

double
trace_field_number(trace_fields_t *r, const fsdp_json_t *object,
                   const char *key, double min, double max, double other)
{
    double number = other;
    const fsdp_json_t *value = trace_field(r, object, key);
    if (value == NULL)
        return other;
    if (!fsdp_json_get_number(value, &number) ||
        !(number >= min && number <= max)) {
        char must[80];
        snprintf(must, sizeof must, "a number from %g to %g", min, max);
        trace_field_bad(r, key, must);
        return other;
    }
    return number;
}

/* Which of the words; -1 if it is not said. */
int
trace_field_word(trace_fields_t *r, const fsdp_json_t *object, const char *key,
                 const char *const *words, const char *must)
{
    const char *text = trace_field_text(r, object, key);
    for (int i = 0; text != NULL && words[i] != NULL; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    if (text != NULL)
        trace_field_bad(r, key, must);
    return -1;
}

fsdp_dtype_t
trace_field_dtype(trace_fields_t *r, const fsdp_json_t *object, const char *key)
{
    const char *text = trace_field_text(r, object, key);
    fsdp_dtype_t dtype = FSDP_DTYPE_NONE;
    if (text != NULL)
        dtype = fsdp_dtype_from_name(text);
    if (text != NULL && !fsdp_dtype_is_floating(dtype))
        trace_field_bad(r, key, "float64, float32, bfloat16 or float16");
    return dtype;
}

/* A list for the elements of an array. */
void *
trace_field_room(const fsdp_json_t *array, size_t size, int *count)
{
    *count = (int)fsdp_json_size(array); /* TRACE_MAX_JSON bounds it */
    return fsdp_calloc(FSDP_MEM_OTHER, (size_t)*count * size);
}
