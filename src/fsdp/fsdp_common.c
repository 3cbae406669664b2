#include "fsdp/fsdp_common.h"

fsdp_shard_t
fsdp_shard_make(const fsdp_parameter_t *parameter, int dim, int world_size)
{
    size_t w = (size_t)world_size;
    fsdp_shard_t shard = {
        .dim = dim,
        .outer = 1,
        .num_rows = parameter->shape[dim],
        .inner = 1,
        .world_size = world_size,
        .chunk_rows = (parameter->shape[dim] + w - 1) / w,
    };
    for (int d = 0; d < dim; d++)
        shard.outer *= parameter->shape[d];
    for (int d = dim + 1; d < parameter->ndim; d++)
        shard.inner *= parameter->shape[d];
    return shard;
}

size_t
fsdp_shard_begin(const fsdp_shard_t *shard, int rank)
{
    size_t begin = (size_t)rank * shard->chunk_rows;
    return begin < shard->num_rows ? begin : shard->num_rows;
}

size_t
fsdp_shard_rows(const fsdp_shard_t *shard, int rank)
{
    return fsdp_shard_begin(shard, rank + 1) - fsdp_shard_begin(shard, rank);
}

size_t
fsdp_shard_padded_numel(const fsdp_shard_t *shard)
{
    return shard->outer * shard->chunk_rows * shard->inner;
}
