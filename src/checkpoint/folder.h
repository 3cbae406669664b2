/** \file folder.h  Floor 5, checkpoint: checkpoints in a folder.
 *
 *      DIR/step-00000010            a whole one
 *      DIR/.partial-step-00000020   being written
 *      DIR/.old-step-00000000       being removed
 *
 *  None of this is collective.
 */
#ifndef FSDP_CHECKPOINT_FOLDER_H
#define FSDP_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "fsdp/status.h"

/** DIR/step-00000010; the caller frees. */
char *fsdp_folder_of_step(const char *dir, long step);
/** The step of the newest checkpoint below DIR; -1: none. */
long fsdp_folder_newest(const char *dir);

/** Removes what earlier runs have left half-written or half-removed. */
void fsdp_folder_sweep(const char *dir);
/** Makes an empty folder to write into; *path is the caller's. */
fsdp_status_t fsdp_folder_begin(const char *dir, long step, char **path);
/** It is whole: flushes it and gives it its name, in place of an older one of
 *  that step. */
fsdp_status_t fsdp_folder_commit(const char *dir, long step);
/** Removes all but the newest `keep`; 0: none. */
void fsdp_folder_keep(const char *dir, int keep);
/** Removes the one being written. */
void fsdp_folder_abandon(const char *dir, long step);

#endif
