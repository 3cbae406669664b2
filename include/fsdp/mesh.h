/** \file mesh.h  Floor 1, comm: which ranks share what.
 *
 *  PyTorch: torch.distributed.device_mesh.DeviceMesh.
 *
 *  A mesh lays the ranks of the world out in rows: the last dimension runs
 *  fastest.  Each rank has a coordinate and, for each dimension, a communicator
 *  of the ranks that differ from it in that coordinate only.
 */
#ifndef FSDP_MESH_H
#define FSDP_MESH_H

#include "fsdp/comm.h"

typedef struct fsdp_mesh fsdp_mesh_t;

enum { FSDP_MESH_MAX_DIMS = 4 };

/** size[ndim] must multiply up to the world; `name` tells the dimensions apart.
 *  NULL after a usage error.  Collective; the caller owns it and keeps it until
 *  the models sharded over it are gone.  PyTorch: init_device_mesh(). */
fsdp_mesh_t *fsdp_mesh_create(int ndim, const int *size,
                              const char *const *name);
/** All ranks in one dimension "shard". */
fsdp_mesh_t *fsdp_mesh_create_1d(void);
/** Hybrid sharding: "replicate" x "shard".  NULL after a usage error. */
fsdp_mesh_t *fsdp_mesh_create_2d(int replicate, int shard);
/** Those dimensions of the mesh, in the order given, as a mesh of its own that
 *  shares its communicators.  NULL after a usage error.  Not collective; the
 *  caller owns the result and destroys it before `mesh`.
 *  PyTorch: mesh["dp", "tp"]. */
fsdp_mesh_t *fsdp_mesh_slice(const fsdp_mesh_t *mesh, int ndim,
                             const char *const *name);
/** Collective unless it is a slice; nulls; NULL is allowed. */
void fsdp_mesh_destroy(fsdp_mesh_t **mesh);

int fsdp_mesh_ndim(const fsdp_mesh_t *mesh);
int fsdp_mesh_size(const fsdp_mesh_t *mesh, int dim);
const char *fsdp_mesh_dim_name(const fsdp_mesh_t *mesh, int dim);
/** This rank's coordinate. */
int fsdp_mesh_coordinate(const fsdp_mesh_t *mesh, int dim);
/** The ranks along one dimension.  Borrowed. */
fsdp_comm_t *fsdp_mesh_comm(const fsdp_mesh_t *mesh, int dim);

/* What fully_shard() makes of a mesh of one or two dimensions. */

/** The ranks that a parameter is cut over: the last dimension.  Borrowed. */
fsdp_comm_t *fsdp_mesh_shard_comm(const fsdp_mesh_t *mesh);
/** The ranks that keep the same part: the first of two dimensions; NULL for
 *  one.  Borrowed. */
fsdp_comm_t *fsdp_mesh_replicate_comm(const fsdp_mesh_t *mesh);
/** Groups of `k` neighbours along the shard dimension, for
 *  reshard_after_forward = k; k divides its size.  Made once.  Collective over
 *  the shard dimension; borrowed. */
fsdp_comm_t *fsdp_mesh_shard_groups(fsdp_mesh_t *mesh, int k);

/** Calls, bytes and seconds over all communicators of the mesh. */
fsdp_comm_counter_t fsdp_mesh_counter(const fsdp_mesh_t *mesh,
                                      fsdp_collective_t kind);
void fsdp_mesh_reset_counters(fsdp_mesh_t *mesh);

#endif
