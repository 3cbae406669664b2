/** \file mesh.h  Floor 1, comm: which ranks share what.
 *
 *  PyTorch: torch.distributed.device_mesh.DeviceMesh.
 */
#ifndef FSDP_MESH_H
#define FSDP_MESH_H

#include "fsdp/comm.h"

typedef struct fsdp_mesh fsdp_mesh_t;

/** All ranks in one shard dimension.  Collective; the caller owns it and keeps
 *  it until the models sharded over it are gone. */
fsdp_mesh_t *fsdp_mesh_create_1d(void);
/** Collective; nulls. */
void fsdp_mesh_destroy(fsdp_mesh_t **mesh);

/** The ranks that a parameter is cut over.  Borrowed. */
fsdp_comm_t *fsdp_mesh_shard_comm(const fsdp_mesh_t *mesh);

#endif
