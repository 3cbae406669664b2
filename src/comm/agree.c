/* What one rank knows, all must know before any of them may leave. */
#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

bool
fsdp_comm_all_true(fsdp_comm_t *comm, bool mine)
{
    int32_t all = mine ? 1 : 0;
    fsdp_all_reduce(comm, "all_true", FSDP_INT32, FSDP_MIN, FSDP_ORDER_TREE,
                    &all, 1);
    return all != 0;
}

/* A status and enough of its message to see whether two are the same. */
typedef struct verdict {
    int64_t status;
    uint64_t length; /* of the message, with its end; 0 if all is well */
    uint64_t hash;
} verdict_t;

/* FNV-1a. */
static uint64_t
hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* Everybody's message becomes that of `rank`. */
static void
take_message(fsdp_comm_t *comm, const verdict_t *verdict, int rank)
{
    char *text = fsdp_calloc(FSDP_MEM_OTHER, verdict->length);
    if (comm->rank == rank)
        memcpy(text, fsdp_error_message(), verdict->length);
    fsdp_broadcast(comm, "agree", FSDP_UINT8, text, verdict->length, rank);
    fsdp_error((fsdp_status_t)verdict->status, "rank %d: %s",
               fsdp_comm_world_rank(comm, rank), text);
    fsdp_free(text);
}

fsdp_status_t
fsdp_comm_agree(fsdp_comm_t *comm, fsdp_status_t mine)
{
    verdict_t *all =
        fsdp_calloc(FSDP_MEM_OTHER, (size_t)comm->size * sizeof *all);
    verdict_t *own = &all[comm->rank];
    int bad = 0;
    bool alike = true;
    own->status = mine;
    if (mine != FSDP_OK) {
        own->length = strlen(fsdp_error_message()) + 1;
        own->hash = hash_of(fsdp_error_message());
    }
    fsdp_all_gather(comm, "agree", FSDP_UINT8, own, all, sizeof *all);

    while (bad < comm->size && all[bad].status == FSDP_OK)
        bad++;
    for (int r = 1; r < comm->size; r++)
        alike = alike && memcmp(&all[r], &all[0], sizeof *all) == 0;
    fsdp_status_t status =
        bad < comm->size ? (fsdp_status_t)all[bad].status : FSDP_OK;
    if (!alike)
        take_message(comm, &all[bad], bad);
    fsdp_free(all);
    return status;
}
