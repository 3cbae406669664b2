/* The first wrong tensor, as the diagnosis sees it. */

#include <math.h>
#include <string.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"

/** A tensor that was asked for. */
typedef struct fetched {
    const record_t *record;
    int rank;
    double *values; /**< owned */
    struct fetched *next;
} fetched_t;

typedef struct explaining {
    judging_t *j;
    fetched_t *list;
    const record_t *record; /**< what is to be explained                     */
    double *again;          /**< [numel] of it, by another model; owned       */
    bool shown;
} explaining_t;

/* As one rank has it: NaN where it has nothing. */
static double *
read_rank(judging_t *j, fsdp_trace_t *trace, const record_t *record, int rank)
{
    size_t n = record->numel, count = 0;
    double *whole = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *whole);
    double *part = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *part);
    uint64_t *element = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *element);
    for (size_t i = 0; i < n; i++)
        whole[i] = NAN;
    if (fsdp_trace_find_piece(record, rank) != NULL && j->status == FSDP_OK)
        j->status =
            fsdp_trace_read_rank(trace, record, rank, part, element, &count);
    for (size_t i = 0; i < count && j->status == FSDP_OK; i++)
        whole[element[i]] = part[i];
    fsdp_free(part);
    fsdp_free(element);
    return whole;
}

/* fsdp_symptom_t.get; what was read is kept until the end. */
static const double *
get(void *context, bool ours, long step, fsdp_trace_phase_t phase, int micro,
    const char *name, int rank, uint64_t *numel)
{
    explaining_t *e = context;
    fsdp_trace_t *trace = ours ? e->j->ours : e->j->theirs;
    const record_t *record = fsdp_trace_find(trace, step, phase, micro, name);
    *numel = record != NULL ? record->numel : 0;
    if (record == NULL || e->j->status != FSDP_OK)
        return NULL;
    for (fetched_t *f = e->list; f != NULL; f = f->next)
        if (f->record == record && f->rank == rank)
            return f->values;
    fetched_t *f = fsdp_alloc(FSDP_MEM_OTHER, sizeof *f);
    *f = (fetched_t){record, rank,
                     rank >= 0 ? read_rank(e->j, trace, record, rank)
                               : verdict_read(e->j, trace, record),
                     e->list};
    e->list = f;
    return f->values;
}

static void
take_again(void *context, const fsdp_replay_value_t *value)
{
    explaining_t *e = context;
    const record_t *r = e->record;
    if (value->step != r->step || value->phase != r->phase ||
        value->micro != r->micro || value->numel != r->numel ||
        strcmp(value->name, r->name) != 0)
        return;
    for (uint64_t i = 0; i < r->numel; i++)
        e->again[i] = value_get(value->dtype, value->data, i);
    e->shown = true;
}

/* fsdp_symptom_t.again */
static const double *
again(void *context, const fsdp_replay_change_t *change)
{
    explaining_t *e = context;
    fsdp_replay_options_t options = {.dtype = FSDP_FP64,
                                     .first_step = e->record->step,
                                     .last_step = e->record->step,
                                     .meant = e->j->our_about,
                                     .change = change,
                                     .context = e,
                                     .show = take_again};
    if (e->again == NULL)
        e->again =
            fsdp_alloc(FSDP_MEM_OTHER, e->record->numel * sizeof *e->again);
    e->shown = false;
    return fsdp_trace_replay(e->j->theirs, &options) == FSDP_OK && e->shown
               ? e->again
               : NULL;
}

static void
forget(explaining_t *e)
{
    fsdp_free(e->again);
    while (e->list != NULL) {
        fetched_t *f = e->list;
        e->list = f->next;
        fsdp_free(f->values);
        fsdp_free(f);
    }
}

/* Where nothing is known to compare with, nothing is claimed. */
static void
claim_nothing(expected_t *expected, const record_t *record)
{
    expected_make(expected, record, "");
    for (uint64_t i = 0; i < record->numel; i++) {
        expected->value[i] = NAN;
        expected->bound[i] = INFINITY;
    }
}

static void
diagnose(judging_t *j, const fsdp_verdict_tensor_t *tensor, explaining_t *e,
         const expected_t *expected, double *is, int *owner)
{
    const record_t *r = tensor->theirs;
    fsdp_symptom_t s = {.meant = j->our_about,
                        .theirs = j->their_about,
                        .step = r->step,
                        .phase = r->phase,
                        .micro = r->micro,
                        .name = r->name,
                        .dtype = r->dtype,
                        .ndim = r->ndim,
                        .numel = r->numel,
                        .is = is,
                        .expected = expected->value,
                        .bound = expected->bound,
                        .owner = owner,
                        .get = get,
                        .again = again,
                        .context = e};
    memcpy(s.shape, r->shape, sizeof s.shape);
    double *copy[2] = {NULL, NULL};
    if (tensor->other_rank >= 0 && r->phase != FSDP_TRACE_INPUT) {
        s.copy_rank[0] = tensor->rank;
        s.copy_rank[1] = tensor->other_rank;
        for (int k = 0; k < 2; k++)
            copy[k] = read_rank(j, j->theirs, r, s.copy_rank[k]);
        s.is = copy[0];
        s.copy = copy[1];
    }
    if (j->status == FSDP_OK)
        j->verdict.num_causes = fsdp_diagnose(&s, j->cause);
    j->verdict.cause = j->cause;
    fsdp_free(copy[0]);
    fsdp_free(copy[1]);
}

/* A diagnosis is an extra: what it cannot read does not undo the verdict. */
void
verdict_explain(judging_t *j)
{
    const fsdp_verdict_tensor_t *tensor = j->verdict.first_wrong;
    explaining_t e = {.j = j, .record = tensor != NULL ? tensor->theirs : NULL};
    expected_t nothing = {0};
    if (tensor == NULL || tensor->theirs->numel == 0)
        return;
    const record_t *r = tensor->theirs;
    bool known = j->kept_of == tensor;
    if (!known)
        claim_nothing(&nothing, r);
    double *is = fsdp_alloc(FSDP_MEM_OTHER, r->numel * sizeof *is);
    int *owner = fsdp_alloc(FSDP_MEM_OTHER, r->numel * sizeof *owner);
    if (fsdp_trace_read(j->theirs, r, is, owner, NULL) == FSDP_OK)
        diagnose(j, tensor, &e, known ? &j->kept : &nothing, is, owner);
    forget(&e);
    j->status = FSDP_OK;
    fsdp_free(is);
    fsdp_free(owner);
    expected_free(&nothing);
}
