/** \file whole_file.h  Floor 0, base: whole files, their checksums, their text.
 */
#ifndef FSDP_BASE_WHOLE_FILE_H
#define FSDP_BASE_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "fsdp/status.h"

/** Size and XXH3 (64 bits) of a file's bytes. */
fsdp_status_t fsdp_file_checksum(const char *path, uint64_t *bytes,
                                 uint64_t *checksum);
/** All of a file of at most `max` bytes; the caller frees. */
fsdp_status_t fsdp_file_read(const char *path, size_t max, char **text,
                             size_t *length);
/** Writes and flushes a new file. */
fsdp_status_t fsdp_file_write(const char *path, const char *text,
                              size_t length);
/** The same under another name first, which then replaces `path`, so that a whole
 *  one stands there or none. */
fsdp_status_t fsdp_file_replace(const char *path, const char *text,
                                size_t length);

#endif
