#include "fsdp/verify.h"

int
fsdp_global_micro_batch(fsdp_gradient_sync_t sync, int replicas, int shards,
                        int micro_batches, int rank, int j)
{
    int replica = rank / shards, shard = rank % shards;
    switch (sync) {
    case FSDP_SYNC_LAST: /* each rank adds up its own first */
        return rank * micro_batches + j;
    case FSDP_SYNC_LAST_ALL_REDUCE: /* then each replica */
        return (replica * micro_batches + j) * shards + shard;
    case FSDP_SYNC_EACH:
        break;
    }
    return j * replicas * shards + rank;
}
