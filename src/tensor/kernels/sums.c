#include "fsdp/memory.h"
#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/parallel.h"

/* Sums as a balanced tree.  A leaf is a group of 128 elements, summed in lanes.
 * A chunk is a whole subtree of 128 leaves, one thread's work; the chunks' sums
 * are then added as a tree of their own.  Neighbours are added in pairs, level
 * by level; one that has no neighbour waits for the next level. */
enum { LEAF = 128, LEAVES = 128, CHUNK = LEAF * LEAVES };

typedef struct operands {
    const real_t *x, *y; /* y: NULL in a plain sum */
    real_t *dx, scale;
    real_t *chunk_sums;
    size_t n;
} operands_t;

static real_t
tree_sum(real_t *x, size_t n)
{
    if (n == 0)
        return 0;
    for (; n > 1; n = (n + 1) / 2)
        for (size_t i = 0; i < n; i += 2)
            x[i / 2] = i + 1 < n ? x[i] + x[i + 1] : x[i];
    return x[0];
}

/* Writes the squares of x - y, and scale (x - y) to dx unless it is NULL. */
ALWAYS_INLINE void
leaf_squares(const operands_t *o, size_t begin, size_t n, real_t *squares)
{
    const real_t *x = o->x + begin, *y = o->y + begin;
    for (size_t i = 0; i < n; i++)
        squares[i] = (x[i] - y[i]) * (x[i] - y[i]);
    if (o->dx != NULL) {
        real_t *dx = o->dx + begin;
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = o->scale * (x[i] - y[i]);
    }
}

FSDP_CLONES static void
sum_chunk(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    real_t leaves[LEAVES], squares[LEAF];
    size_t count = 0;
    for (size_t i = begin; i < end; i += LEAF) {
        size_t n = end - i < LEAF ? end - i : LEAF;
        if (o.y != NULL)
            leaf_squares(&o, i, n, squares);
        leaves[count++] = lanes_sum_of(o.y != NULL ? squares : o.x + i, n);
    }
    o.chunk_sums[begin / CHUNK] = tree_sum(leaves, count);
}

static double
sum_all(operands_t o)
{
    size_t chunks = (o.n + CHUNK - 1) / CHUNK;
    o.chunk_sums = fsdp_alloc(FSDP_MEM_OTHER, chunks * sizeof(real_t));
    fsdp_parallel_for(o.n, CHUNK, sum_chunk, &o);
    real_t sum = tree_sum(o.chunk_sums, chunks);
    fsdp_free(o.chunk_sums);
    return sum;
}

double
K(sum)(const void *x, size_t n)
{
    return sum_all((operands_t){.x = x, .n = n});
}

double
K(squared_error)(const void *x, const void *y, double scale, void *dx, size_t n)
{
    return sum_all(
        (operands_t){.x = x, .y = y, .dx = dx, .scale = (real_t)scale, .n = n});
}
