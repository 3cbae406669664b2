/* What ours has for a record of theirs. */

#include <limits.h>
#include <math.h>
#include <string.h>

#include "verify/verdict/internal.h"

/* One value for each row of the batch, whatever pieces it is in. */
static bool
is_by_rows(fsdp_trace_phase_t phase)
{
    return phase == FSDP_TRACE_INPUT || phase == FSDP_TRACE_UNIT_INPUT ||
           phase == FSDP_TRACE_UNIT_OUTPUT;
}

/* Reductions of the two sides are of the same micro-batches: one in a step, or
 * dealt alike. */
static bool
same_reductions(const judging_t *j)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    if (a->micro_batches == 0 || b->micro_batches == 0)
        return false;
    bool one = a->micro_batches == 1 || a->gradient_sync > FSDP_SYNC_EACH;
    bool their_one = b->micro_batches == 1 || b->gradient_sync > FSDP_SYNC_EACH;
    if (one && their_one)
        return true;
    return verdict_ranks(a) == verdict_ranks(b) &&
           a->micro_batches == b->micro_batches &&
           a->gradient_sync == b->gradient_sync;
}

/* The micro-batch number that our record has; -2: there is none. */
static int
our_number(const judging_t *j, const record_t *theirs)
{
    if (theirs->micro < 0)
        return -1;
    if (theirs->phase == FSDP_TRACE_REDUCED_GRAD) {
        const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
        long M = (long)verdict_ranks(a) * a->micro_batches;
        long their_M = (long)verdict_ranks(b) * b->micro_batches;
        if (!same_reductions(j) || M > INT_MAX)
            return -2;
        return theirs->micro == their_M - 1 ? (int)M - 1 : theirs->micro;
    }
    const counterpart_t *c =
        verdict_counterpart(j, theirs->step, theirs->micro);
    if (c == NULL) /* no inputs were recorded: by the number */
        return theirs->micro;
    if (theirs->phase == FSDP_TRACE_INPUT && c->count == 0)
        return theirs->micro; /* it should have been that one */
    if (c->count == 0)
        return theirs->phase == FSDP_TRACE_GATHERED_PARAMETER ? 0 : -2;
    bool alone = c->count == 1 && c->parts == 1;
    return alone || is_by_rows(theirs->phase) ||
                   theirs->phase == FSDP_TRACE_GATHERED_PARAMETER
               ? c->first
               : -2;
}

const record_t *
verdict_our_record(const judging_t *j, const record_t *theirs)
{
    const char *name = verdict_names_ours(j->names, theirs);
    int micro = our_number(j, theirs);
    if (name == NULL || micro < -1)
        return NULL;
    return fsdp_trace_find(j->ours, theirs->step, theirs->phase, micro, name);
}

/* ---- values --------------------------------------------------------------------- */

/* Several of ours end to end, or a part of one. */
static double *
read_rows(judging_t *j, const record_t *theirs, const counterpart_t *c)
{
    const char *name = verdict_names_ours(j->names, theirs);
    double *out = fsdp_alloc(FSDP_MEM_OTHER, theirs->numel * sizeof *out);
    uint64_t used = 0;
    bool good = true;
    for (int k = 0; good && k < c->count; k++) {
        const record_t *r = fsdp_trace_find(j->ours, theirs->step,
                                            theirs->phase, c->first + k, name);
        double *values = verdict_read(j, j->ours, r);
        good = values != NULL;
        uint64_t n = good ? r->numel / (uint64_t)c->parts : 0;
        good = good && n * (uint64_t)c->parts == r->numel &&
               n <= theirs->numel - used;
        if (good)
            memcpy(out + used, values + (uint64_t)c->part * n, n * sizeof *out);
        used += n;
        fsdp_free(values);
    }
    if (good && used == theirs->numel)
        return out;
    fsdp_free(out);
    return NULL;
}

/* Backward began with another multiple of the loss. */
double
verdict_scale(const judging_t *j, fsdp_trace_phase_t phase)
{
    if (phase != FSDP_TRACE_OUTPUT_GRAD && phase != FSDP_TRACE_INPUT_GRAD &&
        phase != FSDP_TRACE_UNREDUCED_GRAD)
        return 1;
    double scale = j->their_about->loss_scale / j->our_about->loss_scale;
    return isfinite(scale) && scale != 0 ? scale : 1;
}

double *
verdict_read_ours(judging_t *j, const record_t *theirs)
{
    const record_t *record = verdict_our_record(j, theirs);
    const counterpart_t *c =
        theirs->micro >= 0 ? verdict_counterpart(j, theirs->step, theirs->micro)
                           : NULL;
    if (record == NULL)
        return NULL;
    if (c != NULL && is_by_rows(theirs->phase) && c->count > 0 &&
        (c->count > 1 || c->parts > 1))
        return read_rows(j, theirs, c);
    if (record->numel != theirs->numel)
        return NULL;
    double *values = verdict_read(j, j->ours, record);
    double scale = verdict_scale(j, theirs->phase);
    for (uint64_t i = 0; values != NULL && scale != 1 && i < theirs->numel; i++)
        values[i] *= scale;
    return values;
}
