/** \file checkpoint.h  Floor 5, checkpoint: an open checkpoint's insides. */
#ifndef FSDP_CHECKPOINT_CHECKPOINT_H
#define FSDP_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/index.h"
#include "fsdp/checkpoint.h"
#include "fsdp/safetensors.h"

struct fsdp_checkpoint {
    char *path;        /**< owned */
    fsdp_comm_t *comm; /**< borrowed */
    fsdp_index_t index;
    fsdp_safetensors_t **file; /**< [index.num_files], owned */
};

/** The k-th thing kept of a parameter: "model.NAME", then its states; NULL past
 *  the last.  The caller frees. */
char *checkpoint_tensor_name(const fsdp_checkpoint_t *checkpoint,
                             const fsdp_index_parameter_t *parameter, int k);

/** Where each element of a parameter is: its runs one by one, in order. */
typedef struct checkpoint_map {
    const fsdp_checkpoint_t *checkpoint;
    const fsdp_index_parameter_t *parameter;
    struct checkpoint_range *range; /**< owned */
    size_t count;
} checkpoint_map_t;

checkpoint_map_t checkpoint_map_of(const fsdp_checkpoint_t *checkpoint,
                                   const fsdp_index_parameter_t *parameter);
void checkpoint_map_free(checkpoint_map_t *map);
/** Elements [begin, begin + count) of the whole, of the tensor called `name`. */
fsdp_status_t checkpoint_read(const checkpoint_map_t *map, const char *name,
                              uint64_t begin, uint64_t count, void *out);

#endif
