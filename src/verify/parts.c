/* What ranks keep of a parameter comes to rank 0 and is put where it belongs. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

static bool
same_part(const fsdp_layout_t *a, const fsdp_layout_t *b)
{
    return a->rank == b->rank && a->num_ranks == b->num_ranks &&
           (a->part == b->part || a->part_dim < 0);
}

/* Of ranks that keep the same, the first is the one that counts. */
static void
find_first(const fsdp_verifier_t *verifier, verified_t *param)
{
    size_t world = verifier->rank == 0 ? (size_t)verifier->size : 0;
    param->first = fsdp_alloc(FSDP_MEM_BASELINE, world * sizeof *param->first);
    for (size_t r = 0; r < world; r++) {
        param->first[r] = true;
        for (size_t q = 0; q < r; q++)
            if (same_part(&param->layout[q], &param->layout[r]))
                param->first[r] = false;
    }
}

void
verifier_learn_layout(fsdp_verifier_t *verifier, verified_t *param)
{
    fsdp_local_t local = fsdp_parameter_local(param->run);
    size_t world = verifier->rank == 0 ? (size_t)verifier->size : 0;
    int64_t padded = (int64_t)local.padded_numel, longest = padded;
    param->layout =
        fsdp_alloc(FSDP_MEM_BASELINE, world * sizeof *param->layout);
    param->padded_numel =
        fsdp_alloc(FSDP_MEM_BASELINE, world * sizeof *param->padded_numel);
    fsdp_gather(verifier->comm, param->run->name, FSDP_UINT8, &local.layout,
                param->layout, sizeof local.layout, 0);
    fsdp_gather(verifier->comm, param->run->name, FSDP_INT64, &padded,
                param->padded_numel, 1, 0);
    fsdp_all_reduce(verifier->comm, param->run->name, FSDP_INT64, FSDP_MAX,
                    FSDP_ORDER_TREE, &longest, 1);
    find_first(verifier, param);
    param->local_numel = local.numel;
    param->local_padded_numel = local.padded_numel;
    param->buffer_numel = (size_t)longest;
}

/* This rank's part in a buffer as long as everybody's; NaN if it has none. */
static void *
in_buffer(const verified_t *param, const void *local)
{
    size_t size = fsdp_dtype_size(param->dtype);
    char *buffer = fsdp_calloc(FSDP_MEM_BASELINE, param->buffer_numel * size);
    size_t padded = param->local_padded_numel;
    if (local != NULL)
        memcpy(buffer, local, padded * size);
    else
        for (size_t i = 0; i < padded; i++)
            value_put(param->dtype, buffer, i, NAN);
    return buffer;
}

void *
verifier_gather_parts(fsdp_verifier_t *verifier, const verified_t *param,
                      const void *local)
{
    size_t bytes = (size_t)verifier->size * param->buffer_numel *
                   fsdp_dtype_size(param->dtype);
    void *all =
        verifier->rank == 0 ? fsdp_alloc(FSDP_MEM_BASELINE, bytes) : NULL;
    void *mine = in_buffer(param, local);
    fsdp_gather(verifier->comm, param->run->name, param->dtype, mine, all,
                param->buffer_numel, 0);
    fsdp_free(mine);
    return all;
}

static const char *
buffer_of(const verified_t *param, const void *all, int r)
{
    return (const char *)all +
           (size_t)r * param->buffer_numel * fsdp_dtype_size(param->dtype);
}

void *
verifier_put_together(const fsdp_verifier_t *verifier, const verified_t *param,
                      const void *all)
{
    size_t size = fsdp_dtype_size(param->dtype);
    void *whole = fsdp_calloc(FSDP_MEM_BASELINE, param->numel * size);
    for (int r = 0; r < verifier->size; r++)
        if (param->first[r])
            fsdp_layout_place(&param->layout[r], size, buffer_of(param, all, r),
                              whole);
    return whole;
}

/* The runs of rank r's buffer against the same places of `whole`. */
static void
compare_runs(fsdp_verifier_t *verifier, const verified_t *param, place_t place,
             const char *buffer, const char *whole, int r)
{
    size_t size = fsdp_dtype_size(param->dtype);
    fsdp_run_t run = {0};
    place.rank = r;
    while (fsdp_layout_next_run(&param->layout[r], &run)) {
        place.element = run.whole;
        verifier_compare(verifier, &place, param->dtype,
                         buffer != NULL ? buffer + run.local * size : NULL,
                         whole != NULL ? whole + run.whole * size : NULL,
                         run.count);
    }
}

/* Whoever keeps the same as another rank is held against it, so that it shows
 * which of the two is wrong. */
static void
compare_copies(fsdp_verifier_t *verifier, const verified_t *param,
               place_t place, const void *all)
{
    void *whole = verifier_put_together(verifier, param, all);
    place.what = place.phase;
    place.phase = "replica";
    place.bound = NULL;
    for (int r = 0; r < verifier->size; r++)
        if (!param->first[r])
            compare_runs(verifier, param, place, buffer_of(param, all, r),
                         whole, r);
    fsdp_free(whole);
}

void
verifier_compare_parts(fsdp_verifier_t *verifier, const verified_t *param,
                       const place_t *place, const void *all,
                       const void *expected)
{
    bool copies = false;
    for (int r = 0; r < verifier->size; r++) {
        copies |= !param->first[r];
        if (param->first[r])
            compare_runs(verifier, param, *place,
                         all != NULL ? buffer_of(param, all, r) : NULL,
                         expected, r);
    }
    if (copies && all != NULL)
        compare_copies(verifier, param, *place, all);
}

void
verifier_compare_padding(fsdp_verifier_t *verifier, const verified_t *param,
                         const void *all)
{
    size_t size = fsdp_dtype_size(param->dtype);
    void *zeros = fsdp_calloc(FSDP_MEM_BASELINE, param->buffer_numel * size);
    place_t place = {.phase = "padding",
                     .unit = param->unit,
                     .name = param->run->name,
                     .micro = -1};
    for (place.rank = 0; place.rank < verifier->size; place.rank++) {
        size_t numel = fsdp_layout_numel(&param->layout[place.rank]);
        verifier_compare(verifier, &place, param->dtype,
                         buffer_of(param, all, place.rank) + numel * size,
                         zeros, param->padded_numel[place.rank] - numel);
    }
    fsdp_free(zeros);
}

static bool
keeps(const fsdp_layout_t *layout, size_t element)
{
    fsdp_run_t run = {0};
    while (fsdp_layout_next_run(layout, &run))
        if (element >= run.whole && element - run.whole < run.count)
            return true;
    return false;
}

int
verifier_owner(const fsdp_verifier_t *verifier, const verified_t *param,
               size_t element, int near)
{
    int replica = verifier->dp_rank[near] / verifier->shards, other = -1;
    for (int r = 0; r < verifier->size; r++) {
        if (!keeps(&param->layout[r], element))
            continue;
        if (verifier->dp_rank[r] / verifier->shards == replica)
            return r;
        if (other < 0)
            other = r;
    }
    return other < 0 ? 0 : other;
}

fsdp_layout_t
verifier_gathered_layout(const verified_t *param, int r)
{
    fsdp_layout_t layout = param->layout[r];
    layout.kind = FSDP_LAYOUT_WHOLE;
    layout.num_ranks = 1;
    layout.rank = 0;
    return layout;
}
