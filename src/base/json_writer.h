/** \file json_writer.h  Floor 0, base: the insides of json.h's writer. */
#ifndef FSDP_BASE_JSON_WRITER_H
#define FSDP_BASE_JSON_WRITER_H

#include <stddef.h>

#include "base/json.h"

/** Puts bytes behind the text, as they are. */
void fsdp_json_append(fsdp_json_writer_t *writer, const char *text,
                      size_t length);
void fsdp_json_append_text(fsdp_json_writer_t *writer, const char *text);
/** json_string.c: the same in quotes, and escaped; bytes that are no UTF-8 become
 *  U+FFFD. */
void fsdp_json_append_string(fsdp_json_writer_t *writer, const char *text,
                             size_t length);

#endif
