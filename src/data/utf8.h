/** \file utf8.h  Floor 4, data: UTF-8 that may be none. */
#ifndef FSDP_DATA_UTF8_H
#define FSDP_DATA_UTF8_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of the character that begins at `text`, of which there are `length` > 0;
 *  *point is its code point.  -n: n bytes that are no character, which are
 *  replaced by one U+FFFD (the longest beginning of one, as Unicode
 *  recommends). */
int fsdp_utf8_next(const unsigned char *text, size_t length, uint32_t *point);

/** A copy with U+FFFD in the place of what is no character, which the caller
 *  frees; *replaced counts them. */
char *fsdp_utf8_repair(const char *text, size_t length, size_t *new_length,
                       size_t *replaced);

#endif
