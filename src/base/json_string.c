/* A string as JSON has it: UTF-8, escaped where it must be. */

#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"

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
    fsdp_json_append_text(writer, escape);
}

void
fsdp_json_append_string(fsdp_json_writer_t *writer, const char *text,
                        size_t length)
{
    fsdp_json_append(writer, "\"", 1);
    for (size_t i = 0; i < length;) {
        size_t n = utf8_length((const unsigned char *)text + i, length - i);
        if (n == 1)
            append_ascii(writer, text[i]);
        else if (n > 1)
            fsdp_json_append(writer, text + i, n);
        else
            fsdp_json_append_text(writer, "\xef\xbf\xbd"); /* U+FFFD */
        i += n > 0 ? n : 1;
    }
    fsdp_json_append(writer, "\"", 1);
}
