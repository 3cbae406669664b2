/** \file weights.h  Floor 5, checkpoint: a model's tensors in files.
 *
 *  One safetensors file, or a folder as Hugging Face has it: in it
 *  model.safetensors, or model.safetensors.index.json and the files that it
 *  names.  Not collective.
 */
#ifndef FSDP_CHECKPOINT_WEIGHTS_H
#define FSDP_CHECKPOINT_WEIGHTS_H

#include "fsdp/safetensors.h"

#define FSDP_WEIGHTS_FILE "model.safetensors"
#define FSDP_WEIGHTS_INDEX "model.safetensors.index.json"

/** Open files, no tensor in two of them. */
typedef struct fsdp_weights {
    fsdp_safetensors_t **file; /**< [count] */
    char **path;               /**< [count] */
    size_t count;
} fsdp_weights_t;

/** A tensor and where it is; `entry` is NULL if there is none. */
typedef struct fsdp_stored {
    const char *path;
    const fsdp_safetensors_t *file;
    const fsdp_safetensors_entry_t *entry;
} fsdp_stored_t;

/** `path` is a file or a folder.  Believes nothing: an index must name files of
 *  the folder itself, and each of their tensors once, with its file. */
fsdp_status_t fsdp_weights_open(const char *path, fsdp_weights_t **weights);
void fsdp_weights_close(fsdp_weights_t **weights);

/** By its exact name. */
fsdp_stored_t fsdp_weights_find(const fsdp_weights_t *weights,
                                const char *name);
/** By its name with or without the prefix "transformer." or "model.", which
 *  `name` may have or lack; *twice is set if there are several. */
fsdp_stored_t fsdp_weights_find_bare(const fsdp_weights_t *weights,
                                     const char *name, bool *twice);
/** The name without such a prefix. */
const char *fsdp_weights_bare_name(const char *name);

/** "FOLDER/name"; the caller frees. */
char *fsdp_weights_path(const char *folder, const char *name);
/** Is it a folder? */
bool fsdp_weights_is_folder(const char *path);

/* ---- weights_index.c ----------------------------------------------------- */

/** The files that an index names, each once; the caller frees all. */
fsdp_status_t fsdp_weights_read_index(const char *folder, char ***path,
                                      size_t *count);
/** Has each of the tensors its place in the index, and the index none besides? */
fsdp_status_t fsdp_weights_check_index(const char *folder,
                                       const fsdp_weights_t *weights);

#endif
