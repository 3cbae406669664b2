/** \file safetensors.h  Floor 5, checkpoint: named tensors in one file.
 *
 *  The format of huggingface/safetensors: u64 little-endian length N of the
 *  header, N bytes of JSON, then the data.  Reading is strict: offsets sorted,
 *  without holes or overlap, ending at the end of the file; sizes equal shape
 *  times dtype with overflow checked; no duplicate keys; N at most 100,000,000.
 *  Not collective: one process reads or writes; ranks agree outside.
 */
#ifndef FSDP_SAFETENSORS_H
#define FSDP_SAFETENSORS_H

#include <stdint.h>

#include "fsdp/dtype.h"
#include "fsdp/status.h"

enum { FSDP_SAFETENSORS_MAX_DIMS = 8 };

typedef struct fsdp_safetensors_entry {
    char *name;
    fsdp_dtype_t dtype;
    int ndim;
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS];
    uint64_t numel;
    uint64_t begin, end; /**< bytes, from the start of the data section */
} fsdp_safetensors_entry_t;

typedef struct fsdp_safetensors fsdp_safetensors_t;

/** Opens and checks the whole header; on failure *file is NULL and the message
 *  names the file and the fault (FSDP_ERR_INPUT, or FSDP_ERR_IO). */
fsdp_status_t fsdp_safetensors_open(const char *path,
                                    fsdp_safetensors_t **file);
void fsdp_safetensors_close(fsdp_safetensors_t **file);

/** Entries in the order of the data. */
size_t fsdp_safetensors_count(const fsdp_safetensors_t *file);
const fsdp_safetensors_entry_t *
fsdp_safetensors_entry(const fsdp_safetensors_t *file, size_t i);
/** NULL if there is none of that name. */
const fsdp_safetensors_entry_t *
fsdp_safetensors_find(const fsdp_safetensors_t *file, const char *name);
/** The value of a key of "__metadata__"; NULL if there is none. */
const char *fsdp_safetensors_metadata(const fsdp_safetensors_t *file,
                                      const char *key);
/** Pair i of "__metadata__", in the order of the text; false past the last. */
bool fsdp_safetensors_metadata_pair(const fsdp_safetensors_t *file, size_t i,
                                    const char **key, const char **value);
/** Elements [begin, begin + count) of a tensor, in the file's dtype. */
fsdp_status_t fsdp_safetensors_read(const fsdp_safetensors_t *file,
                                    const fsdp_safetensors_entry_t *entry,
                                    uint64_t begin, uint64_t count, void *out);

/** A file being written, under a temporary name beside its final one. */
typedef struct fsdp_safetensors_writer fsdp_safetensors_writer_t;

/** What the file will hold, in this order; `begin`, `end` and `numel` are
 *  worked out here.  `metadata` has num_metadata pairs key, value; may be NULL.
 *  Creates the temporary file and writes the header (padded to 8 bytes). */
fsdp_status_t fsdp_safetensors_create(const char *path,
                                      const fsdp_safetensors_entry_t *entries,
                                      size_t count,
                                      const char *const (*metadata)[2],
                                      size_t num_metadata,
                                      fsdp_safetensors_writer_t **writer);
/** Appends the next bytes of the data section. */
fsdp_status_t fsdp_safetensors_append(fsdp_safetensors_writer_t *writer,
                                      const void *data, uint64_t bytes);
/** All bytes were appended: flushes to the disk, renames to the final name,
 *  frees, nulls.  On failure the temporary file is removed. */
fsdp_status_t fsdp_safetensors_commit(fsdp_safetensors_writer_t **writer);
/** Gives up: removes the temporary file, frees, nulls. */
void fsdp_safetensors_abandon(fsdp_safetensors_writer_t **writer);

#endif
