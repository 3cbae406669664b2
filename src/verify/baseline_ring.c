/* The order `ring` begins at another rank for each destination, so where an
 * element goes decides how it is summed: a reduce-scatter's destination is the
 * rank that keeps the element; an all-reduce over R replicas is one of R chunks
 * of the unit's reduce-scattered buffer,
 *
 *      [ shard of parameter 0 | of 1 | ... ]   padded, parameters with gradients
 *      [   chunk 0   |   chunk 1   | ... ]     ceil(length / R) elements each
 */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

static bool
same_unit(const verified_t *a, const verified_t *b)
{
    return strcmp(a->unit, b->unit) == 0;
}

static size_t
shard_numel(const verified_t *param)
{
    return param->run->requires_grad ? fsdp_layout_max_numel(&param->layout[0])
                                     : 0;
}

/* Where the p-th parameter's shard begins in its unit's buffer; and how long
 * that is. */
static size_t
begin_in_unit(const fsdp_verifier_t *verifier, int p, size_t *length)
{
    size_t begin = 0;
    *length = 0;
    for (int q = 0; q < verifier->num_params; q++) {
        if (!same_unit(&verifier->param[p], &verifier->param[q]))
            continue;
        if (q == p)
            begin = *length;
        *length += shard_numel(&verifier->param[q]);
    }
    return begin;
}

static void
find_destinations(const fsdp_verifier_t *verifier, int p)
{
    verified_t *param = &verifier->param[p];
    size_t length, begin = begin_in_unit(verifier, p, &length);
    size_t replicas = (size_t)verifier->replicas;
    size_t chunk = (length + replicas - 1) / replicas;
    size_t bytes = param->numel * sizeof(int);
    param->destination = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    param->destination_replica = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    for (int r = 0; r < verifier->size; r++) {
        fsdp_run_t run = {0};
        while (fsdp_layout_next_run(&param->layout[r], &run))
            for (size_t i = 0; i < run.count; i++) {
                size_t at = run.whole + i;
                param->destination[at] = param->layout[r].rank;
                param->destination_replica[at] =
                    chunk > 0 ? (int)((begin + run.local + i) / chunk) : 0;
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
