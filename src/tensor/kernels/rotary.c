#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* Rotary position embedding (Su et al., "RoFormer", 2021) in Hugging Face's
 * layout: element i of a head's first half and element i of its second are the
 * pair that turns, not two neighbours. */

typedef struct operands {
    const real_t *x, *table;
    real_t *y, sign; /* -1: turn back */
    size_t positions, heads, half;
} operands_t;

ALWAYS_INLINE void
turn_head(const operands_t *o, const real_t *cosine, const real_t *x, real_t *y)
{
    const real_t *sine = cosine + o->half;
    size_t half = o->half;
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        real_t a = x[i], b = x[half + i], s = o->sign * sine[i];
        y[i] = a * cosine[i] - b * s;
        y[half + i] = b * cosine[i] + a * s;
    }
}

FSDP_CLONES static void
turn_rows(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    size_t depth = 2 * o.half, row = o.heads * depth;
    for (size_t r = begin; r < end; r++) {
        const real_t *cosine = o.table + r % o.positions * depth;
        for (size_t h = 0; h < o.heads; h++) {
            size_t at = r * row + h * depth;
            turn_head(&o, cosine, o.x + at, o.y + at);
        }
    }
}

void
K(rotary)(const void *x, const void *table, void *y, size_t rows,
          size_t positions, size_t heads, size_t depth, bool inverse)
{
    operands_t o = {.x = x,
                    .table = table,
                    .y = y,
                    .sign = inverse ? -1 : 1,
                    .positions = positions,
                    .heads = heads,
                    .half = depth / 2};
    fsdp_parallel_for(rows, fsdp_block_rows(heads * depth), turn_rows, &o);
}
