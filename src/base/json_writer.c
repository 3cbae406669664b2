#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
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

static void
append(fsdp_json_writer_t *writer, const char *text, size_t length)
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

static void
append_text(fsdp_json_writer_t *writer, const char *text)
{
    append(writer, text, strlen(text));
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
        append(writer, ",", 1);
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
    append(writer, &opening, 1);
}

static void
close_bracket(fsdp_json_writer_t *writer, char closing)
{
    FSDP_CHECK(writer->depth > 0 && !writer->after_key &&
                   writer->closing[writer->depth - 1] == closing,
               "%c closes nothing: %s", closing, writer->text);
    writer->depth--;
    writer->empty = false;
    append(writer, &closing, 1);
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
    append_text(writer, "null");
}

void
fsdp_json_bool(fsdp_json_writer_t *writer, bool value)
{
    begin_value(writer);
    append_text(writer, value ? "true" : "false");
}

void
fsdp_json_integer(fsdp_json_writer_t *writer, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    begin_value(writer);
    append_text(writer, digits);
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
    append_text(writer, digits);
}

static void
write_real(fsdp_json_writer_t *writer, double value, bool is_float)
{
    begin_value(writer);
    if (isfinite(value))
        append_shortest(writer, value, is_float);
    else
        append_text(writer, "null");
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

/* Bytes of the UTF-8 character at `s`, of which `left` > 0 remain; 0 if it is
 * none (RFC 3629: no overlong form, no surrogate, up to U+10FFFF). */
static size_t
utf8_length(const unsigned char *s, size_t left)
{
    static const struct {
        unsigned char first, last, low, high; /* second byte's range */
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2},
        {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
        {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        size_t length = forms[i].length;
        if (s[0] < forms[i].first || s[0] > forms[i].last)
            continue;
        if (length > left)
            return 0;
        if (length > 1 && (s[1] < forms[i].low || s[1] > forms[i].high))
            return 0;
        for (size_t k = 2; k < length; k++)
            if (s[k] < 0x80 || s[k] > 0xbf)
                return 0;
        return length;
    }
    return 0;
}

/* An ASCII character, escaped where JSON asks for it. */
static void
append_ascii(fsdp_json_writer_t *writer, char c)
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char escape[8];
    const char *found = c != '\0' ? strchr(named, c) : NULL;
    if (found != NULL)
        snprintf(escape, sizeof escape, "\\%c", letters[found - named]);
    else if ((unsigned char)c < 0x20)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    else
        snprintf(escape, sizeof escape, "%c", c);
    append_text(writer, escape);
}

static void
append_string(fsdp_json_writer_t *writer, const char *text, size_t length)
{
    append(writer, "\"", 1);
    for (size_t i = 0; i < length;) {
        size_t n = utf8_length((const unsigned char *)text + i, length - i);
        if (n == 1)
            append_ascii(writer, text[i]);
        else if (n > 1)
            append(writer, text + i, n);
        else
            append_text(writer, "\xef\xbf\xbd"); /* U+FFFD */
        i += n > 0 ? n : 1;
    }
    append(writer, "\"", 1);
}

void
fsdp_json_key(fsdp_json_writer_t *writer, const char *key)
{
    FSDP_CHECK(in_object(writer) && !writer->after_key,
               "the key %s is in no object: %s", key, writer->text);
    separate(writer);
    append_string(writer, key, strlen(key));
    append(writer, ":", 1);
    writer->after_key = true;
}

void
fsdp_json_string_n(fsdp_json_writer_t *writer, const char *text, size_t length)
{
    begin_value(writer);
    append_string(writer, text, length);
}

void
fsdp_json_string(fsdp_json_writer_t *writer, const char *text)
{
    if (text == NULL)
        fsdp_json_null(writer);
    else
        fsdp_json_string_n(writer, text, strlen(text));
}

void
fsdp_json_put_string(fsdp_json_writer_t *writer, const char *key,
                     const char *text)
{
    fsdp_json_key(writer, key);
    fsdp_json_string(writer, text);
}

void
fsdp_json_put_integer(fsdp_json_writer_t *writer, const char *key,
                      int64_t value)
{
    fsdp_json_key(writer, key);
    fsdp_json_integer(writer, value);
}

void
fsdp_json_put_double(fsdp_json_writer_t *writer, const char *key, double value)
{
    fsdp_json_key(writer, key);
    fsdp_json_double(writer, value);
}

void
fsdp_json_put_bool(fsdp_json_writer_t *writer, const char *key, bool value)
{
    fsdp_json_key(writer, key);
    fsdp_json_bool(writer, value);
}
