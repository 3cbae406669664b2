/** \file model_file.h  Floor 5, checkpoint: all parameters in one file.
 *
 *  The file is a safetensors file with the parameters' names, the same bytes
 *  whatever the number of ranks.
 */
#ifndef FSDP_MODEL_FILE_H
#define FSDP_MODEL_FILE_H

#include "fsdp/fully_shard.h"
#include "fsdp/safetensors.h"

/** Gathers one parameter at a time on rank 0, which writes it.  `metadata` as in
 *  fsdp_safetensors_create(), needed on rank 0 only.  Any failure (a full
 *  disk, a read-only folder) is returned on all ranks, and nothing is left
 *  under the final name.  Collective over `comm`. */
fsdp_status_t fsdp_model_save(fsdp_module_t *model, fsdp_comm_t *comm,
                              const char *path,
                              const char *const (*metadata)[2],
                              size_t num_metadata);
/** Each rank reads its own rows (all of an unmanaged parameter).  `path` is a
 *  safetensors file, or a folder as Hugging Face's save_pretrained() makes it,
 *  with model.safetensors or several files and their index.  Names may lack or
 *  have the prefix "transformer." or "model.".  Errors name the file, the tensor and both
 *  shapes: missing, superfluous, another shape; other floating types are
 *  converted.  Collective over `comm`; NULL: this process alone. */
fsdp_status_t fsdp_model_load(fsdp_module_t *model, fsdp_comm_t *comm,
                              const char *path);

#endif
