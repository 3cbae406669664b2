/** \file checkpoint.h  Floor 5, checkpoint: a run that can go on later.
 *
 *  PyTorch: torch.distributed.checkpoint (save, load, FileSystemWriter).
 *
 *  A checkpoint is a folder DIR/step-00000010 with one safetensors file for each
 *  rank and an index.json: which rank's file holds which elements of which
 *  parameter and optimizer state.  It is written under another name, flushed to
 *  the disk and then renamed, so a folder with that name is always whole.  It
 *  loads on any other number of ranks, mesh, placement and API, since every
 *  rank takes the elements that it keeps from wherever they are.
 *
 *  The folder must be on a file system that all ranks share.
 */
#ifndef FSDP_CHECKPOINT_H
#define FSDP_CHECKPOINT_H

#include "fsdp/optim.h"

typedef struct fsdp_checkpoint fsdp_checkpoint_t;

/** Writes the parameters and optimizer states (optimizer NULL: none) as DIR's
 *  checkpoint of `step`, in place of one that may be there, and removes all but
 *  the newest `keep` (0: none is removed).  `metadata` has num_metadata pairs
 *  key, value, the same on all ranks: what else the run needs to go on.  On
 *  failure (a full disk, a missing folder) nothing that was there has changed.
 *  Collective over `comm`: all ranks of the world. */
fsdp_status_t fsdp_checkpoint_save(const char *dir, long step,
                                   fsdp_module_t *model,
                                   fsdp_optimizer_t *optimizer,
                                   fsdp_comm_t *comm,
                                   const char *const (*metadata)[2],
                                   size_t num_metadata, int keep);

/** Opens a checkpoint: `path` is its folder, or one that holds several, of which
 *  the newest is taken.  Checks the index and all files, their sizes and
 *  checksums; errors name the file and the fault.  Collective over `comm`. */
fsdp_status_t fsdp_checkpoint_open(const char *path, fsdp_comm_t *comm,
                                   fsdp_checkpoint_t **checkpoint);
void fsdp_checkpoint_close(fsdp_checkpoint_t **checkpoint);
/** Does a folder hold a checkpoint, or is it one?  Not collective. */
bool fsdp_checkpoint_exists(const char *path);

/** Its folder, the step after which it was written, by how many ranks. */
const char *fsdp_checkpoint_path(const fsdp_checkpoint_t *checkpoint);
long fsdp_checkpoint_step(const fsdp_checkpoint_t *checkpoint);
int fsdp_checkpoint_world_size(const fsdp_checkpoint_t *checkpoint);
/** NULL if there is no such key. */
const char *fsdp_checkpoint_metadata(const fsdp_checkpoint_t *checkpoint,
                                     const char *key);

/** Each rank reads the elements that it keeps.  The checkpoint must have the
 *  model's parameters with their shapes and types, and the optimizer's states if
 *  one is given.  Collective over the `comm` it was opened with. */
fsdp_status_t fsdp_checkpoint_load(const fsdp_checkpoint_t *checkpoint,
                                   fsdp_module_t *model,
                                   fsdp_optimizer_t *optimizer);

/** What is kept of a parameter, whole and row-major in its own type: its values
 *  (state NULL), or an optimizer state ("exp_avg").  `numel` is how many elements
 *  of `dtype` `out` has room for; another shape or type is refused, and a name or
 *  state that is not there.  Not collective. */
fsdp_status_t fsdp_checkpoint_read(const fsdp_checkpoint_t *checkpoint,
                                   const char *name, const char *state,
                                   fsdp_dtype_t dtype, size_t numel, void *out);
/** How many updates the parameter has had: without any it has no states.  0 also
 *  if there is no such parameter. */
long fsdp_checkpoint_updates(const fsdp_checkpoint_t *checkpoint,
                             const char *name);

/** All parameters in one safetensors file, as fsdp_model_save() would write
 *  them, a piece at a time: no process ever holds a whole parameter.  Not
 *  collective: one process does it. */
fsdp_status_t fsdp_checkpoint_consolidate(const fsdp_checkpoint_t *checkpoint,
                                          const char *path,
                                          const char *const (*metadata)[2],
                                          size_t num_metadata);

/** Prints what it holds: parameters, shapes, states, files, who has what. */
void fsdp_checkpoint_print(const fsdp_checkpoint_t *checkpoint, FILE *out);

#endif
