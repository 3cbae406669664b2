/* Sums in the order that was asked for.  The terms are worked on in blocks
 * that stay in the cache while they go through the whole order. */
#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

enum { BLOCK_BYTES = 8192 };

static const char *const names[] = {
    [FSDP_ORDER_TREE] = "tree",
    [FSDP_ORDER_RANK] = "rank",
    [FSDP_ORDER_RING] = "ring",
    [FSDP_ORDER_MPI] = "mpi",
};

const char *
fsdp_reduce_order_name(fsdp_reduce_order_t order)
{
    return names[order];
}

bool
fsdp_reduce_order_from_name(const char *name, fsdp_reduce_order_t *order)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *order = (fsdp_reduce_order_t)i;
            return true;
        }
    }
    return false;
}

/* The block that is worked on: term q stands at node[q] until it is added to
 * another one. */
typedef struct block {
    const fsdp_reduction_t *reduction;
    char **node; /* [size] */
    char *out;
    size_t count;
} block_t;

/* node[a] becomes node[a] op node[b], which is written to `out` if it is the
 * last one, else over one of the two that is not the caller's own. */
static void
add(const block_t *block, int a, int b, bool last)
{
    const fsdp_reduction_t *r = block->reduction;
    char *to = a == r->own ? block->node[b] : block->node[a];
    if (last)
        to = block->out;
    fsdp_reduce_pair(r->dtype, r->op, to, block->node[a], block->node[b],
                     block->count);
    block->node[a] = to;
}

/* Neighbours at distance 1, then the sums of those at distance 2, 4, ...; one
 * without a neighbour on its right waits for the next level.  The sum at node
 * `own` stands in scratch from its first addition on, and its second one may
 * as well write to its other term. */
static void
tree(const block_t *block)
{
    int size = block->reduction->size;
    for (int step = 1; step < size; step *= 2)
        for (int i = 0; i + step < size; i += 2 * step)
            add(block, i, i + step, 2 * step >= size);
}

/* From `first` on, round to the rank before it. */
static void
chain(const block_t *block, int first)
{
    int size = block->reduction->size;
    for (int i = 1; i < size; i++)
        add(block, first, (first + i) % size, i == size - 1);
}

static void
reduce_block(const block_t *block)
{
    const fsdp_reduction_t *r = block->reduction;
    if (r->size == 1 && block->out != block->node[0])
        memcpy(block->out, block->node[0],
               block->count * fsdp_dtype_size(r->dtype));
    else if (r->order == FSDP_ORDER_RANK)
        chain(block, 0);
    else if (r->order == FSDP_ORDER_RING)
        chain(block, (r->destination + 1) % r->size);
    else
        tree(block);
}

void
fsdp_reduce_terms(const fsdp_reduction_t *r)
{
    size_t element = fsdp_dtype_size(r->dtype);
    size_t most = BLOCK_BYTES / element;
    block_t block = {.reduction = r};
    block.node =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)r->size * sizeof *block.node);

    for (size_t at = 0; at < r->count; at += block.count) {
        block.count = r->count - at < most ? r->count - at : most;
        block.out = (char *)r->out + at * element;
        for (int q = 0; q < r->size; q++)
            block.node[q] = r->terms[q] + at * element;
        reduce_block(&block);
    }
    fsdp_free(block.node);
}
