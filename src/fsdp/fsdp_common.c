#include "fsdp/fsdp_common.h"

fsdp_shard_t
fsdp_shard_make(size_t num_rows, size_t row_numel, int world_size)
{
    size_t w = (size_t)world_size;
    return (fsdp_shard_t){
        .num_rows = num_rows,
        .row_numel = row_numel,
        .world_size = world_size,
        .chunk_rows = (num_rows + w - 1) / w,
    };
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
    return shard->chunk_rows * shard->row_numel;
}
