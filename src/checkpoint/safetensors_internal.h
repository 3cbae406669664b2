/** \file safetensors_internal.h  Floor 5, checkpoint: an open file's insides. */
#ifndef FSDP_CHECKPOINT_SAFETENSORS_INTERNAL_H
#define FSDP_CHECKPOINT_SAFETENSORS_INTERNAL_H

#include <stdbool.h>

#include "base/json.h"
#include "fsdp/safetensors.h"

enum { FSDP_SAFETENSORS_MAX_HEADER = 100000000 };

struct fsdp_safetensors {
    int fd;
    char *path;
    uint64_t data_begin, data_bytes; /**< of the data section, in the file   */
    fsdp_safetensors_entry_t *entry; /**< [count], in the order of the data  */
    size_t count;
    fsdp_json_t *header; /**< keeps the metadata's strings                   */
};

/** Fills entry, count and header from the text of a header and checks all of
 *  it against data_bytes; names the file in messages. */
fsdp_status_t fsdp_safetensors_parse_header(fsdp_safetensors_t *file,
                                            const char *text, size_t length);

/** Product of the shape, then times the size of an element; false when either
 *  does not fit into 64 bits. */
bool fsdp_safetensors_sizes(fsdp_dtype_t dtype, int ndim, const uint64_t *shape,
                            uint64_t *numel, uint64_t *bytes);

#endif
