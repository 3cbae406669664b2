#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

enum { MAX_DEPTH = 64, FIRST_CAPACITY = 1000 };

struct fsdp_json_writer {
    char *text;
    size_t length, capacity; /* the 0 behind the text is within capacity */
    int depth;
    char closing[MAX_DEPTH]; /* of each open bracket, ']' or '}' */
    bool empty;              /* nothing stands yet in the innermost bracket */
    bool after_key;
    locale_t c_locale;
};

fsdp_json_writer_t *
fsdp_json_writer_create(void)
{
    fsdp_json_writer_t *writer = fsdp_calloc(FSDP_MEM_OTHER, sizeof *writer);
    writer->capacity = FIRST_CAPACITY;
    writer->text = fsdp_alloc(FSDP_MEM_OTHER, writer->capacity);
    writer->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    FSDP_CHECK(writer->c_locale != (locale_t)0,
               "the C library has no locale C");
    fsdp_json_writer_reset(writer);
    return writer;
}

void
fsdp_json_writer_destroy(fsdp_json_writer_t **writer)
{
    if (*writer == NULL)
        return;
    freelocale((*writer)->c_locale);
    fsdp_free((*writer)->text);
    fsdp_free(*writer);
    *writer = NULL;
}

void
fsdp_json_writer_reset(fsdp_json_writer_t *writer)
{
    writer->length = 0;
    writer->text[0] = '\0';
    writer->depth = 0;
    writer->empty = true;
    writer->after_key = false;
}

const char *
fsdp_json_writer_text(const fsdp_json_writer_t *writer)
{
    return writer->text;
}

size_t
fsdp_json_writer_length(const fsdp_json_writer_t *writer)
{
    return writer->length;
}

void
fsdp_json_append(fsdp_json_writer_t *writer, const char *text, size_t length)
{
    size_t needed = writer->length + length + 1;
    if (needed > writer->capacity) {
        char *larger = fsdp_alloc(FSDP_MEM_OTHER, 2 * needed);
        memcpy(larger, writer->text, writer->length);
        fsdp_free(writer->text);
        writer->text = larger;
        writer->capacity = 2 * needed;
    }
    memcpy(writer->text + writer->length, text, length);
    writer->length += length;
    writer->text[writer->length] = '\0';
}

void
fsdp_json_append_text(fsdp_json_writer_t *writer, const char *text)
{
    fsdp_json_append(writer, text, strlen(text));
}

static bool
in_object(const fsdp_json_writer_t *writer)
{
    return writer->depth > 0 && writer->closing[writer->depth - 1] == '}';
}

static void
separate(fsdp_json_writer_t *writer)
{
    if (!writer->empty)
        fsdp_json_append(writer, ",", 1);
    writer->empty = false;
}

/* What comes before any value: a comma in an array, nothing after a key. */
static void
begin_value(fsdp_json_writer_t *writer)
{
    if (writer->after_key) {
        writer->after_key = false;
        return;
    }
    FSDP_CHECK(!in_object(writer), "a member needs a key: %s", writer->text);
    FSDP_CHECK(writer->depth > 0 || writer->empty,
               "a second value at the top: %s", writer->text);
    separate(writer);
}

static void
open_bracket(fsdp_json_writer_t *writer, char opening, char closing)
{
    begin_value(writer);
    FSDP_CHECK(writer->depth < MAX_DEPTH, "more than %d levels", MAX_DEPTH);
    writer->closing[writer->depth++] = closing;
    writer->empty = true;
    fsdp_json_append(writer, &opening, 1);
}

static void
close_bracket(fsdp_json_writer_t *writer, char closing)
{
    FSDP_CHECK(writer->depth > 0 && !writer->after_key &&
                   writer->closing[writer->depth - 1] == closing,
               "%c closes nothing: %s", closing, writer->text);
    writer->depth--;
    writer->empty = false;
    fsdp_json_append(writer, &closing, 1);
}

void
fsdp_json_open_object(fsdp_json_writer_t *writer)
{
    open_bracket(writer, '{', '}');
}

void
fsdp_json_close_object(fsdp_json_writer_t *writer)
{
    close_bracket(writer, '}');
}

void
fsdp_json_open_array(fsdp_json_writer_t *writer)
{
    open_bracket(writer, '[', ']');
}

void
fsdp_json_close_array(fsdp_json_writer_t *writer)
{
    close_bracket(writer, ']');
}

void
fsdp_json_null(fsdp_json_writer_t *writer)
{
    begin_value(writer);
    fsdp_json_append_text(writer, "null");
}

void
fsdp_json_bool(fsdp_json_writer_t *writer, bool value)
{
    begin_value(writer);
    fsdp_json_append_text(writer, value ? "true" : "false");
}

void
fsdp_json_integer(fsdp_json_writer_t *writer, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    begin_value(writer);
    fsdp_json_append_text(writer, digits);
}

/* The fewest digits that read back the same, as a double or, if it is one, a
 * float.  A decimal of up to FLT_DIG or DBL_DIG digits survives being read, so
 * if there is a shorter one than these, printf finds it (by leaving out zeros).
 * snprintf() and strtod() know no other locale than the thread's. */
static void
append_shortest(fsdp_json_writer_t *writer, double value, bool is_float)
{
    char digits[48];
    int least = is_float ? FLT_DIG : DBL_DIG, most = is_float ? 9 : 17;
    if (fabs(value) < (is_float ? (double)FLT_MIN : DBL_MIN))
        least = 1; /* subnormals have fewer digits */
    locale_t former = uselocale(writer->c_locale);
    for (int n = least; n <= most; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, value);
        if (is_float ? strtof(digits, NULL) == (float)value
                     : strtod(digits, NULL) == value)
            break;
    }
    uselocale(former);
    fsdp_json_append_text(writer, digits);
}

static void
write_real(fsdp_json_writer_t *writer, double value, bool is_float)
{
    begin_value(writer);
    if (isfinite(value))
        append_shortest(writer, value, is_float);
    else
        fsdp_json_append_text(writer, "null");
}

void
fsdp_json_double(fsdp_json_writer_t *writer, double value)
{
    write_real(writer, value, false);
}

void
fsdp_json_float(fsdp_json_writer_t *writer, float value)
{
    write_real(writer, (double)value, true);
}

void
fsdp_json_key(fsdp_json_writer_t *writer, const char *key)
{
    FSDP_CHECK(in_object(writer) && !writer->after_key,
               "the key %s is in no object: %s", key, writer->text);
    separate(writer);
    fsdp_json_append_string(writer, key, strlen(key));
    fsdp_json_append(writer, ":", 1);
    writer->after_key = true;
}

void
fsdp_json_string_n(fsdp_json_writer_t *writer, const char *text, size_t length)
{
    begin_value(writer);
    fsdp_json_append_string(writer, text, length);
}

void
fsdp_json_string(fsdp_json_writer_t *writer, const char *text)
{
    if (text == NULL)
        fsdp_json_null(writer);
    else
        fsdp_json_string_n(writer, text, strlen(text));
}
