#include "fsdp/mesh.h"

#include "fsdp/memory.h"

struct fsdp_mesh {
    fsdp_comm_t *shard; /**< owned */
};

fsdp_mesh_t *
fsdp_mesh_create_1d(void)
{
    fsdp_mesh_t *mesh = fsdp_alloc(FSDP_MEM_OTHER, sizeof *mesh);
    mesh->shard = fsdp_comm_dup(fsdp_comm_world(), "shard");
    return mesh;
}

void
fsdp_mesh_destroy(fsdp_mesh_t **mesh)
{
    if (*mesh == NULL)
        return;
    fsdp_comm_destroy(&(*mesh)->shard);
    fsdp_free(*mesh);
    *mesh = NULL;
}

fsdp_comm_t *
fsdp_mesh_shard_comm(const fsdp_mesh_t *mesh)
{
    return mesh->shard;
}
