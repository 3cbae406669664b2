/* The order `ring` begins at another rank for each destination, so where an
 * element goes decides how it is summed: a reduce-scatter's destination is the
 * rank that keeps the element; an all-reduce over n ranks is one of n chunks of
 * the unit's buffer, which is whole (NO_SHARD) or what was scattered:
 *
 *      [ parameter 0 | parameter 1 | ... ]     shards padded (FSDP2)
 *      [   chunk 0   |   chunk 1   | ... ]     ceil(length / n) elements each
 */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

/* How many elements of the unit's buffer the parameter has. */
static size_t
in_buffer(const verified_t *param)
{
    return param->run->requires_grad ? fsdp_layout_max_numel(&param->layout[0])
                                     : 0;
}

/* Where the p-th parameter begins in its unit's buffer; and how long that is. */
static size_t
begin_in_unit(const fsdp_verifier_t *verifier, int p, size_t *length)
{
    const verified_t *param = &verifier->param[p];
    size_t begin = 0;
    *length = 0;
    for (int q = 0; q < verifier->num_params; q++) {
        const verified_t *other = &verifier->param[q];
        if (strcmp(param->unit, other->unit) != 0)
            continue;
        if (q == p)
            begin = *length;
        *length += in_buffer(other);
    }
    return begin;
}

/* The same of this run's place, whose rank cuts a flat parameter. */
static size_t
place_of(const fsdp_layout_t *layout, const fsdp_run_t *run, size_t begin)
{
    if (layout->kind == FSDP_LAYOUT_FLAT)
        return layout->flat_offset + run->element -
               (size_t)layout->rank * layout->flat_chunk;
    return begin + run->local;
}

/* Which of n chunks of a buffer the place is in. */
static int
chunk_of(size_t place, size_t length, int n)
{
    size_t chunk = (length + (size_t)n - 1) / (size_t)n;
    return (int)(place / chunk);
}

static void
find_destinations(const fsdp_verifier_t *verifier, int p)
{
    verified_t *param = &verifier->param[p];
    size_t length, begin = begin_in_unit(verifier, p, &length);
    size_t bytes = param->numel * sizeof(int);
    param->destination = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    param->destination_replica = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    for (int r = 0; r < verifier->size; r++) {
        const fsdp_layout_t *layout = &param->layout[r];
        bool cut = layout->kind != FSDP_LAYOUT_WHOLE;
        fsdp_run_t run = {0};
        if (layout->kind == FSDP_LAYOUT_FLAT)
            length = layout->flat_chunk;
        while (fsdp_layout_next_run(layout, &run))
            for (size_t i = 0; i < run.count; i++) {
                size_t at = place_of(layout, &run, begin) + i;
                param->destination[run.whole + i] =
                    cut ? layout->rank : chunk_of(at, length, param->shards);
                param->destination_replica[run.whole + i] =
                    chunk_of(at, length, verifier->replicas);
            }
    }
}

void
baseline_find_destinations(const fsdp_verifier_t *verifier)
{
    if (verifier->options.reduce_order == FSDP_ORDER_RING)
        for (int p = 0; p < verifier->num_params; p++)
            find_destinations(verifier, p);
}
