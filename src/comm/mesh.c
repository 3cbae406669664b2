#include "fsdp/mesh.h"

#include <string.h>

#include "fsdp/memory.h"

/* Groups of K neighbours along the last dimension, made when first asked for. */
typedef struct groups {
    int k;
    fsdp_comm_t *comm; /* owned */
} groups_t;

enum { MAX_GROUPS = 16 };

struct fsdp_mesh {
    int ndim;
    int size[FSDP_MESH_MAX_DIMS], coordinate[FSDP_MESH_MAX_DIMS];
    char name[FSDP_MESH_MAX_DIMS][16];
    fsdp_comm_t *comm[FSDP_MESH_MAX_DIMS];
    bool slice; /* the communicators belong to another mesh */
    groups_t groups[MAX_GROUPS];
    int num_groups;
};

/* ---- making one --------------------------------------------------------- */

/* Dimensions are asked for by name, so each needs one of its own. */
static fsdp_status_t
check_names(int ndim, const char *const *name)
{
    for (int d = 0; d < ndim; d++) {
        if (name == NULL || name[d] == NULL || name[d][0] == '\0')
            return fsdp_error(FSDP_ERR_USAGE,
                              "dimension %d of the mesh has no name; name all "
                              "%d",
                              d, ndim);
        for (int e = 0; e < d; e++)
            if (strcmp(name[d], name[e]) == 0)
                return fsdp_error(FSDP_ERR_USAGE,
                                  "two dimensions of the mesh are called "
                                  "\"%s\"",
                                  name[d]);
    }
    return FSDP_OK;
}

static fsdp_status_t
check_shape(int ndim, const int *size, const char *const *name)
{
    long product = 1;
    if (ndim < 1 || ndim > FSDP_MESH_MAX_DIMS)
        return fsdp_error(FSDP_ERR_USAGE,
                          "a mesh of %d dimensions; 1 to %d are possible", ndim,
                          FSDP_MESH_MAX_DIMS);
    fsdp_status_t status = check_names(ndim, name);
    if (status != FSDP_OK)
        return status;
    for (int d = 0; d < ndim; d++) {
        if (size[d] < 1)
            return fsdp_error(FSDP_ERR_USAGE,
                              "dimension %s of the mesh has size %d; give 1 or "
                              "more",
                              name[d], size[d]);
        product *= size[d];
    }
    int world = fsdp_comm_size(fsdp_comm_world());
    if (product != world)
        return fsdp_error(FSDP_ERR_USAGE,
                          "a mesh of %ld ranks does not fit the %d ranks that "
                          "run; start as many, or change its sizes",
                          product, world);
    return FSDP_OK;
}

/* The ranks that differ from this one in the d-th coordinate only. */
static fsdp_comm_t *
comm_along(const fsdp_mesh_t *mesh, int d)
{
    int color = 0;
    for (int e = 0; e < mesh->ndim; e++)
        if (e != d)
            color = color * mesh->size[e] + mesh->coordinate[e];
    if (mesh->ndim == 1)
        return fsdp_comm_dup(fsdp_comm_world(), mesh->name[d]);
    return fsdp_comm_split(fsdp_comm_world(), color, mesh->coordinate[d],
                           mesh->name[d]);
}

fsdp_mesh_t *
fsdp_mesh_create(int ndim, const int *size, const char *const *name)
{
    if (check_shape(ndim, size, name) != FSDP_OK)
        return NULL;
    fsdp_mesh_t *mesh = fsdp_calloc(FSDP_MEM_OTHER, sizeof *mesh);
    mesh->ndim = ndim;
    int rest = fsdp_comm_rank(fsdp_comm_world());
    for (int d = ndim - 1; d >= 0; d--) {
        mesh->size[d] = size[d];
        mesh->coordinate[d] = rest % size[d];
        rest /= size[d];
        snprintf(mesh->name[d], sizeof mesh->name[d], "%s", name[d]);
    }
    for (int d = 0; d < ndim; d++)
        mesh->comm[d] = comm_along(mesh, d);
    return mesh;
}

fsdp_mesh_t *
fsdp_mesh_create_1d(void)
{
    int size = fsdp_comm_size(fsdp_comm_world());
    return fsdp_mesh_create(1, &size, (const char *const[]){"shard"});
}

fsdp_mesh_t *
fsdp_mesh_create_2d(int replicate, int shard)
{
    return fsdp_mesh_create(2, (int[]){replicate, shard},
                            (const char *const[]){"replicate", "shard"});
}

static int
find_dim(const fsdp_mesh_t *mesh, const char *name)
{
    for (int d = 0; d < mesh->ndim; d++)
        if (strcmp(mesh->name[d], name) == 0)
            return d;
    return -1;
}

fsdp_mesh_t *
fsdp_mesh_slice(const fsdp_mesh_t *mesh, int ndim, const char *const *name)
{
    fsdp_mesh_t *slice = fsdp_calloc(FSDP_MEM_OTHER, sizeof *slice);
    slice->slice = true;
    for (int i = 0; i < ndim; i++) {
        int d = find_dim(mesh, name[i]);
        if (d < 0) {
            fsdp_error(FSDP_ERR_USAGE, "the mesh has no dimension \"%s\"",
                       name[i]);
            fsdp_free(slice);
            return NULL;
        }
        slice->size[i] = mesh->size[d];
        slice->coordinate[i] = mesh->coordinate[d];
        slice->comm[i] = mesh->comm[d];
        memcpy(slice->name[i], mesh->name[d], sizeof slice->name[i]);
        slice->ndim++;
    }
    return slice;
}

void
fsdp_mesh_destroy(fsdp_mesh_t **mesh)
{
    fsdp_mesh_t *m = *mesh;
    if (m == NULL)
        return;
    for (int i = 0; i < m->num_groups; i++)
        fsdp_comm_destroy(&m->groups[i].comm);
    for (int d = 0; d < m->ndim && !m->slice; d++)
        fsdp_comm_destroy(&m->comm[d]);
    fsdp_free(m);
    *mesh = NULL;
}

/* ---- what it is --------------------------------------------------------- */

int
fsdp_mesh_ndim(const fsdp_mesh_t *mesh)
{
    return mesh->ndim;
}

int
fsdp_mesh_size(const fsdp_mesh_t *mesh, int dim)
{
    return mesh->size[dim];
}

const char *
fsdp_mesh_dim_name(const fsdp_mesh_t *mesh, int dim)
{
    return mesh->name[dim];
}

int
fsdp_mesh_coordinate(const fsdp_mesh_t *mesh, int dim)
{
    return mesh->coordinate[dim];
}

fsdp_comm_t *
fsdp_mesh_comm(const fsdp_mesh_t *mesh, int dim)
{
    return mesh->comm[dim];
}

fsdp_comm_t *
fsdp_mesh_shard_comm(const fsdp_mesh_t *mesh)
{
    return mesh->comm[mesh->ndim - 1];
}

fsdp_comm_t *
fsdp_mesh_replicate_comm(const fsdp_mesh_t *mesh)
{
    return mesh->ndim == 2 ? mesh->comm[0] : NULL;
}

fsdp_comm_t *
fsdp_mesh_shard_groups(fsdp_mesh_t *mesh, int k)
{
    for (int i = 0; i < mesh->num_groups; i++)
        if (mesh->groups[i].k == k)
            return mesh->groups[i].comm;
    fsdp_comm_t *shard = fsdp_mesh_shard_comm(mesh);
    FSDP_CHECK(mesh->num_groups < MAX_GROUPS && fsdp_comm_size(shard) % k == 0,
               "groups of %d of %d ranks", k, fsdp_comm_size(shard));
    char name[16];
    snprintf(name, sizeof name, "groups of %d", k);
    int rank = fsdp_comm_rank(shard);
    groups_t groups = {k, fsdp_comm_split(shard, rank / k, rank % k, name)};
    mesh->groups[mesh->num_groups++] = groups;
    return groups.comm;
}

/* ---- counters ----------------------------------------------------------- */

static void
add_counter(fsdp_comm_counter_t *sum, fsdp_comm_counter_t one)
{
    sum->calls += one.calls;
    sum->bytes_sent += one.bytes_sent;
    sum->seconds += one.seconds;
}

fsdp_comm_counter_t
fsdp_mesh_counter(const fsdp_mesh_t *mesh, fsdp_collective_t kind)
{
    fsdp_comm_counter_t sum = {0};
    for (int d = 0; d < mesh->ndim; d++)
        add_counter(&sum, fsdp_comm_counter(mesh->comm[d], kind));
    for (int i = 0; i < mesh->num_groups; i++)
        add_counter(&sum, fsdp_comm_counter(mesh->groups[i].comm, kind));
    return sum;
}

void
fsdp_mesh_reset_counters(fsdp_mesh_t *mesh)
{
    for (int d = 0; d < mesh->ndim; d++)
        fsdp_comm_reset_counters(mesh->comm[d]);
    for (int i = 0; i < mesh->num_groups; i++)
        fsdp_comm_reset_counters(mesh->groups[i].comm);
}
