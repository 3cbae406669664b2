/** \file index.h  Floor 5, checkpoint: what the index of a checkpoint says.
 *
 *      { "format": "libfsdp-checkpoint", "version": 1, "step": 10,
 *        "world_size": 3, "optimizer_states": ["exp_avg", "exp_avg_sq"],
 *        "metadata": {"seed": "1", ...},
 *        "files": [{"name": "rank-00000.safetensors", "bytes": 1224,
 *                   "xxh3_64": "0123456789abcdef"}, ...],
 *        "parameters": [{"name": "wte.weight", "dtype": "float32",
 *                        "shape": [256, 64], "optimizer_step": 10,
 *                        "pieces": [{"file": 0, "runs": [[0, 5504, 0, 1]]},
 *                                   ...]}, ...] }
 *
 *  A piece is one tensor "model.NAME" (and "optimizer.STATE.NAME") of one file,
 *  whose elements belong, one after another, to runs of the whole: [begin, count,
 *  stride, repeat] means `repeat` runs of `count` elements, `stride` apart.
 */
#ifndef FSDP_CHECKPOINT_INDEX_H
#define FSDP_CHECKPOINT_INDEX_H

#include "base/json.h"
#include "fsdp/layout.h"
#include "fsdp/status.h"

enum { FSDP_INDEX_MAX_STATES = 4, FSDP_INDEX_VERSION = 1 };

typedef struct fsdp_index_run {
    uint64_t begin, count, stride, repeat;
} fsdp_index_run_t;

typedef struct fsdp_index_piece {
    int file;
    fsdp_index_run_t *run; /**< owned */
    size_t num_runs;
    uint64_t numel;
} fsdp_index_piece_t;

typedef struct fsdp_index_parameter {
    char *name; /**< owned */
    fsdp_dtype_t dtype;
    int ndim;
    uint64_t shape[FSDP_MAX_DIMS];
    uint64_t numel;
    long optimizer_step;       /**< steps that it has had; 0: no states yet */
    fsdp_index_piece_t *piece; /**< owned */
    size_t num_pieces;
} fsdp_index_parameter_t;

typedef struct fsdp_index_file {
    char *name; /**< owned; no folder in it */
    uint64_t bytes, checksum;
} fsdp_index_file_t;

typedef struct fsdp_index {
    long step;
    int world_size;
    char *state[FSDP_INDEX_MAX_STATES]; /**< owned names, NULL after the last */
    fsdp_index_file_t *file;            /**< [num_files], owned */
    size_t num_files;
    fsdp_index_parameter_t *parameter; /**< owned */
    size_t num_parameters;
    fsdp_json_t *document; /**< of a read one: keeps the metadata's strings */
} fsdp_index_t;

/** Reads [begin, count, stride, repeat] of a whole of `numel` elements.  Returns
 *  what is wrong with it, to stand behind a name; NULL: nothing. */
const char *fsdp_index_run_read(const fsdp_json_t *value, uint64_t numel,
                                fsdp_index_run_t *run);
/** Writes the member "runs". */
void fsdp_index_runs_write(const fsdp_index_piece_t *piece,
                           fsdp_json_writer_t *writer);

/** The runs of a layout, put together where they are evenly spaced; owned. */
fsdp_index_piece_t fsdp_index_piece_of(const fsdp_layout_t *layout, int file);
void fsdp_index_free(fsdp_index_t *index);

/** The text; the caller destroys the writer. */
fsdp_json_writer_t *fsdp_index_write(const fsdp_index_t *index,
                                     const char *const (*metadata)[2],
                                     size_t num_metadata);
/** Believes nothing: kinds, ranges, names without folders.  `name` is for
 *  messages.  To be freed, also after an error. */
fsdp_status_t fsdp_index_read(const char *name, const char *text, size_t length,
                              fsdp_index_t *index);
/** The pieces of each parameter cover each of its elements once.  Only after the
 *  sizes of the files have been found to be true: that bounds the work. */
fsdp_status_t fsdp_index_check_cover(const char *name,
                                     const fsdp_index_t *index);

#endif
