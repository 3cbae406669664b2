/* The level `phase`: what happened inside a micro-batch. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

static int
find_param(const fsdp_verifier_t *verifier, const fsdp_parameter_t *parameter)
{
    for (int p = 0; p < verifier->num_params; p++)
        if (verifier->param[p].run == parameter)
            return p;
    return -1;
}

/* ---- the observer ------------------------------------------------------- */

/* Rank r's copy of a gathered parameter, or part of one, against the copy that
 * the baseline computes with. */
static void
compare_gathered(fsdp_verifier_t *verifier, const verified_t *param,
                 place_t place, const char *copy, int r)
{
    size_t size = fsdp_dtype_size(param->lent);
    const char *base = param->low != NULL ? param->low : param->base->data;
    fsdp_layout_t layout = verifier_gathered_layout(param, r);
    fsdp_run_t run = {0};
    while (fsdp_layout_next_run(&layout, &run)) {
        const char *ours = copy + run.local * size;
        const char *expected = base + run.whole * size;
        size_t same = 0;
        while (same < run.count &&
               memcmp(ours + same * size, expected + same * size, size) == 0)
            same++;
        place.rank = verifier_owner(
            verifier, param, run.whole + (same < run.count ? same : 0), r);
        place.element = run.whole;
        verifier_compare(verifier, &place, param->lent, ours, expected,
                         run.count);
    }
}

/* All ranks' copies, at once, so that nobody needs to keep them.  Losses of the
 * micro-batch have no such moment: an event at sequence s has the key 2 s,
 * between two is 2 s + 1. */
void
verifier_on_gathered(void *context, fsdp_parameter_t *parameter,
                     const void *data)
{
    fsdp_verifier_t *verifier = context;
    int p = find_param(verifier, parameter);
    if (!verifier->recorder.on || p < 0)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    const verified_t *param = &verifier->param[p];
    fsdp_dtype_t dtype = parameter->data_dtype;
    size_t numel = fsdp_parameter_numel(parameter);
    char *all = NULL;
    if (verifier->rank == 0)
        all = fsdp_alloc(FSDP_MEM_BASELINE, (size_t)verifier->size * numel *
                                                fsdp_dtype_size(dtype));
    uint64_t key = 2 * verifier->recorder.sequence++;
    fsdp_gather(verifier->comm, param->run->name, dtype, data, all, numel, 0);
    for (int r = 0; all != NULL && r < verifier->size; r++) {
        place_t place = {
            .phase = "gathered parameter",
            .unit = param->unit,
            .name = param->run->name,
            .micro = verifier_micro(verifier, r, verifier->micro),
            .rank = r,
            .key = key,
        };
        if (dtype == param->lent)
            compare_gathered(verifier, param, place,
                             all + (size_t)r * numel * fsdp_dtype_size(dtype),
                             r);
        else
            verifier_compare_types(verifier, &place, dtype, param->lent);
    }
    fsdp_free(all);
    fsdp_memory_override(former);
}

void
verifier_on_reduced(void *context, fsdp_parameter_t *parameter,
                    const void *grad)
{
    fsdp_verifier_t *verifier = context;
    int p = find_param(verifier, parameter);
    if (!verifier->recorder.on || p < 0)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    const verified_t *param = &verifier->param[p];
    recorder_add(&verifier->recorder, RECORD_REDUCED, param->unit, p,
                 param->dtype, grad, param->local_numel, param->buffer_numel);
    fsdp_memory_override(former);
}

/* ---- records ------------------------------------------------------------ */

static int64_t
hash_of(const recorder_t *recorder)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a, by words */
    for (int i = 0; i < recorder->count; i++) {
        const record_t *r = &recorder->list[i];
        uint64_t word[4] = {(uint64_t)r->kind, r->sequence, (uint64_t)r->param,
                            r->rows != NULL ? r->num_rows : r->numel};
        for (int k = 0; k < 4; k++)
            hash = (hash ^ word[k]) * 1099511628211u;
    }
    return (int64_t)hash;
}

/* The gathers below pair the ranks' records by their number. */
static void
check_alike(fsdp_verifier_t *verifier)
{
    int64_t low = hash_of(&verifier->recorder), high = low;
    fsdp_all_reduce(verifier->comm, "records", FSDP_INT64, FSDP_MIN,
                    FSDP_ORDER_TREE, &low, 1);
    fsdp_all_reduce(verifier->comm, "records", FSDP_INT64, FSDP_MAX,
                    FSDP_ORDER_TREE, &high, 1);
    FSDP_CHECK(low == high,
               "the ranks ran other units, or units of other shapes, in step "
               "%ld: all ranks must do the same",
               verifier->step);
}

const record_t *
verifier_next_record(const recorder_t *recorder, record_kind_t kind, int *at)
{
    while (*at < recorder->count) {
        const record_t *record = &recorder->list[(*at)++];
        if (record->kind == kind)
            return record;
    }
    return NULL;
}

place_t
verifier_place_of(const record_t *record)
{
    return (place_t){
        .phase =
            record->kind == RECORD_OUTPUT ? "unit output" : "input gradient",
        .unit = record->unit,
        .key = 2 * record->sequence,
    };
}

/* Which of the ranks that share a batch it is. */
static size_t
place_in_batch(const fsdp_verifier_t *verifier, int r)
{
    size_t place = 0;
    for (int q = 0; q < r; q++)
        place += verifier->dp_rank[q] == verifier->dp_rank[r];
    return place;
}

/* Rank r's values against the baseline's: all of them, or the columns that it has
 * where ranks that share a batch have some each. */
static void
compare_columns(fsdp_verifier_t *verifier, place_t place, const record_t *mine,
                const char *ours, const record_t *base, int r)
{
    size_t size = fsdp_dtype_size(mine->dtype), n = mine->columns;
    if (mine->numel == base->numel) {
        verifier_compare(verifier, &place, mine->dtype, ours, base->data,
                         mine->numel);
        return;
    }
    size_t first = place_in_batch(verifier, r) * n;
    for (size_t row = 0; row < mine->numel / n; row++) {
        place.element = row * base->columns + first;
        verifier_compare(verifier, &place, mine->dtype, ours + row * n * size,
                         (const char *)base->data + place.element * size, n);
    }
}

/* Are the run's values those of the baseline, or some columns of them? */
static bool
fits(const record_t *mine, const record_t *base)
{
    if (mine->numel == base->numel)
        return true;
    return mine->columns > 0 && base->columns > mine->columns &&
           mine->numel / mine->columns == base->numel / base->columns;
}

static void
compare_activation(fsdp_verifier_t *verifier, const record_t *record,
                   const char *all, int r, int *at)
{
    int d = verifier->dp_rank[r];
    int from = *at;
    const record_t *base =
        verifier_next_record(&verifier->base_recorder[d], record->kind, &from);
    FSDP_CHECK(base != NULL && base->unit == record->unit && fits(record, base),
               "unit %s ran otherwise in the baseline than on rank %d",
               record->unit, r);
    place_t place = verifier_place_of(record);
    place.micro = verifier_micro(verifier, r, verifier->micro);
    place.rank = r;
    size_t bytes = record->numel * fsdp_dtype_size(record->dtype);
    if (record->dtype == base->dtype)
        compare_columns(verifier, place, record, all + (size_t)r * bytes, base,
                        r);
    else
        verifier_compare_types(verifier, &place, record->dtype, base->dtype);
    *at = from;
}

static void
compare_reduced(fsdp_verifier_t *verifier, const record_t *record,
                const void *all)
{
    const verified_t *param = &verifier->param[record->param];
    double *bound = baseline_bound(verifier, param, false);
    place_t place = {
        .phase = "reduced gradient",
        .unit = param->unit,
        .name = param->run->name,
        .micro = -1,
        .key = 2 * record->sequence,
        .bound = bound,
    };
    verifier_compare_parts(verifier, param, &place, all, param->reduced);
    fsdp_free(bound);
}

/* `at` is, for each kind and rank, how far the baseline's records are read. */
static void
compare_record(fsdp_verifier_t *verifier, const record_t *record, int *at)
{
    size_t bytes = record->numel * fsdp_dtype_size(record->dtype);
    size_t size = (size_t)verifier->size;
    char *all = NULL;
    if (record->rows != NULL) {
        verifier_compare_experts(verifier, record,
                                 &at[(size_t)record->kind * size]);
        return;
    }
    if (verifier->rank == 0)
        all = fsdp_alloc(FSDP_MEM_BASELINE, size * bytes);
    fsdp_gather(verifier->comm, record->unit, record->dtype, record->data, all,
                record->numel, 0);
    if (all != NULL && record->kind == RECORD_REDUCED)
        compare_reduced(verifier, record, all);
    else if (all != NULL)
        for (int r = 0; r < verifier->size; r++)
            compare_activation(verifier, record, all, r,
                               &at[(size_t)record->kind * size + (size_t)r]);
    fsdp_free(all);
}

/* Nothing in the baseline may be left over. */
static void
check_all_read(const fsdp_verifier_t *verifier, const int *at)
{
    for (int r = 0; r < verifier->size; r++)
        for (int kind = 0; kind < RECORD_REDUCED; kind++) {
            int from = at[kind * verifier->size + r];
            const record_t *left = verifier_next_record(
                &verifier->base_recorder[verifier->dp_rank[r]],
                (record_kind_t)kind, &from);
            FSDP_CHECK(left == NULL,
                       "rank %d did not run unit %s as often as "
                       "the baseline",
                       r, left->unit);
        }
}

void
verifier_compare_records(fsdp_verifier_t *verifier)
{
    check_alike(verifier);
    int *at = fsdp_calloc(FSDP_MEM_BASELINE,
                          RECORD_KINDS * (size_t)verifier->size * sizeof *at);
    for (int i = 0; i < verifier->recorder.count; i++)
        compare_record(verifier, &verifier->recorder.list[i], at);
    if (verifier->rank == 0)
        check_all_read(verifier, at);
    fsdp_free(at);
}
