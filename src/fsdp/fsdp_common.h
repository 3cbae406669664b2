/** \file fsdp_common.h  Floor 3, fsdp: how a parameter is cut, and who watches.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_common.py
 *
 *  Letters of this room:
 *      W    ranks in the shard mesh
 *      R    replicas, 1 without them
 *      c    rows of a chunk, ceil(n / W) for a parameter of n rows
 *      S_p  elements of a padded shard of parameter p
 *      S    the sum of S_p over the parameters of a group
 */
#ifndef FSDP_FSDP_COMMON_H
#define FSDP_FSDP_COMMON_H

#include "fsdp/fully_shard.h"

/** A cut along one dim of a parameter, seen as [outer, n, inner] with n cut, as
 *  torch.chunk() makes it: every rank gets c rows, but the last ones with rows
 *  may get fewer, and those after them none.  Only dim 0 may be uneven, where
 *  outer is 1. */
typedef struct fsdp_shard {
    int dim;
    size_t outer, num_rows, inner;
    int world_size;
    size_t chunk_rows; /**< c */
} fsdp_shard_t;

fsdp_shard_t fsdp_shard_make(const fsdp_parameter_t *parameter, int dim,
                             int world_size);
/** First row of `rank`'s chunk, at most num_rows. */
size_t fsdp_shard_begin(const fsdp_shard_t *shard, int rank);
/** Its rows, 0 to c. */
size_t fsdp_shard_rows(const fsdp_shard_t *shard, int rank);
/** S_p */
size_t fsdp_shard_padded_numel(const fsdp_shard_t *shard);

/** PyTorch: ShardedState. */
typedef enum fsdp_sharded_state {
    FSDP_SHARDED,
    FSDP_SHARDED_POST_FORWARD, /**< over K ranks                            */
    FSDP_UNSHARDED
} fsdp_sharded_state_t;

/** Tells the event hook and the observers, if there are any. */
void fsdp_emit_event(fsdp_event_kind_t kind, const char *unit,
                     fsdp_training_state_t state);
void fsdp_emit_gathered(fsdp_parameter_t *parameter, const void *data);
/** Of parameter->grad, if there is one. */
void fsdp_emit_unreduced(fsdp_parameter_t *parameter);
void fsdp_emit_reduced(fsdp_parameter_t *parameter, const void *grad);

#endif
