#include "data/utf8.h"

#include <string.h>

#include "fsdp/memory.h"

/* What the second byte of a character may be: this excludes longer forms than
 * needed, surrogates and points above U+10FFFF. */
static void
second_byte(unsigned char first, unsigned *low, unsigned *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
}

int
fsdp_utf8_next(const unsigned char *text, size_t length, uint32_t *point)
{
    unsigned char first = text[0];
    int bytes = first < 0x80                    ? 1
                : first >= 0xc2 && first < 0xe0 ? 2
                : first >= 0xe0 && first < 0xf0 ? 3
                : first >= 0xf0 && first < 0xf5 ? 4
                                                : 0;
    unsigned low, high;
    *point = bytes == 1 ? first : first & (0x7fu >> bytes);
    if (bytes == 0)
        return -1;
    second_byte(first, &low, &high);
    for (int i = 1; i < bytes; i++) {
        if ((size_t)i >= length || text[i] < low || text[i] > high)
            return -i;
        *point = *point << 6 | (text[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    return bytes;
}

char *
fsdp_utf8_repair(const char *text, size_t length, size_t *new_length,
                 size_t *replaced)
{
    const unsigned char *from = (const unsigned char *)text;
    char *out = fsdp_alloc(FSDP_MEM_OTHER, 3 * length + 1);
    size_t n = 0;
    *replaced = 0;
    for (size_t at = 0; at < length;) {
        uint32_t point;
        int bytes = fsdp_utf8_next(from + at, length - at, &point);
        size_t step = (size_t)(bytes < 0 ? -bytes : bytes);
        if (bytes < 0)
            (*replaced)++;
        memcpy(out + n, bytes < 0 ? "\xef\xbf\xbd" : text + at,
               bytes < 0 ? 3 : step);
        n += bytes < 0 ? 3 : step;
        at += step;
    }
    *new_length = n;
    return out;
}
