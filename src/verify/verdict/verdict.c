/* A trace of theirs, judged from its first tensor to its last. */

#include "fsdp/verdict.h"

#include <math.h>
#include <string.h>

#include "verify/verdict/internal.h"

enum { RUNS = 16 };

const char *
fsdp_verdict_kind_name(fsdp_verdict_kind_t kind)
{
    static const char *const name[] = {"unchecked", "equal", "within rounding",
                                       "wrong"};
    return name[kind];
}

/* ---- one tensor ------------------------------------------------------------- */

/* Holds it to what stands before it in their own trace. */
static void
judge_by_itself(judging_t *j, fsdp_verdict_tensor_t *tensor)
{
    const record_t *record = tensor->theirs;
    expected_t e = {0};
    switch (record->phase) {
    case FSDP_TRACE_REDUCED_GRAD:
        if (verdict_expect_reduced(j, record, &e))
            verdict_judge(j, tensor, &e);
        break;
    case FSDP_TRACE_GRAD:
        for (int second = 0; second < 2; second++)
            if (verdict_expect_grad(j, record, second, &e))
                verdict_judge(j, tensor, &e);
        break;
    case FSDP_TRACE_NORM:
        if (verdict_expect_norm(j, record, &e))
            verdict_judge(j, tensor, &e);
        break;
    case FSDP_TRACE_CLIPPED_GRAD:
        if (verdict_expect_clipped(j, record, &e))
            verdict_judge(j, tensor, &e);
        break;
    default:
        if (verdict_expect_copy(j, tensor, &e) ||
            verdict_expect_update(j, record, &e))
            verdict_judge(j, tensor, &e);
    }
}

/* Ranks that are to read different data, and do not. */
static void
judge_input(judging_t *j, fsdp_verdict_tensor_t *tensor)
{
    int other = verdict_same_input(j, tensor->theirs);
    if (other < 0)
        return;
    const record_t *twin =
        fsdp_trace_find(j->theirs, tensor->theirs->step, FSDP_TRACE_INPUT,
                        other, tensor->theirs->name);
    tensor->kind = FSDP_VERDICT_WRONG;
    tensor->why = "another rank reads the same data";
    tensor->rule = "data of its own for each rank";
    tensor->rank = tensor->theirs->piece[0].rank;
    tensor->other_rank = twin->piece[0].rank;
    tensor->over = tensor->theirs->numel;
    tensor->ratio = INFINITY;
}

static void
judge_all(judging_t *j)
{
    for (size_t i = 0; i < j->verdict.num_tensors && j->status == FSDP_OK;
         i++) {
        fsdp_verdict_tensor_t *tensor = &j->tensor[i];
        verdict_meet(j, tensor);
        if (j->status == FSDP_OK && tensor->theirs->phase == FSDP_TRACE_INPUT)
            judge_input(j, tensor);
        if (j->status == FSDP_OK && tensor->kind == FSDP_VERDICT_UNCHECKED)
            judge_by_itself(j, tensor);
    }
    if (j->status == FSDP_OK)
        verdict_rerun(j);
    if (j->status == FSDP_OK)
        verdict_weak(j);
}

/* ---- what comes of them -------------------------------------------------------- */

static void
count_tensor(fsdp_verdict_phase_t *phase, const fsdp_verdict_tensor_t *tensor)
{
    phase->tensors++;
    phase->equal += tensor->kind == FSDP_VERDICT_EQUAL;
    phase->within += tensor->kind == FSDP_VERDICT_WITHIN_ROUNDING;
    phase->wrong += tensor->kind == FSDP_VERDICT_WRONG;
    phase->unchecked += tensor->kind == FSDP_VERDICT_UNCHECKED;
    phase->weak += tensor->weak;
    if (tensor->rule != NULL &&
        (phase->worst == NULL || tensor->ratio > phase->worst_ratio)) {
        phase->worst_ratio = tensor->ratio;
        phase->worst = tensor;
    }
}

static void
sum_up(judging_t *j)
{
    fsdp_verdict_t *v = &j->verdict;
    for (int p = 0; p < FSDP_TRACE_PHASES; p++)
        j->phase[p] = (fsdp_verdict_phase_t){.phase = (fsdp_trace_phase_t)p,
                                             .theirs_to_double = NAN,
                                             .ours_to_double = NAN,
                                             .double_to_double = NAN};
    v->kind = FSDP_VERDICT_EQUAL;
    for (size_t i = 0; i < v->num_tensors; i++) {
        const fsdp_verdict_tensor_t *tensor = &v->tensor[i];
        count_tensor(&j->phase[tensor->theirs->phase], tensor);
        if (tensor->kind != FSDP_VERDICT_EQUAL && v->first_difference == NULL)
            v->first_difference = tensor;
        if (tensor->kind == FSDP_VERDICT_WRONG && v->first_wrong == NULL)
            v->first_wrong = tensor;
        if (tensor->kind == FSDP_VERDICT_WITHIN_ROUNDING &&
            v->kind == FSDP_VERDICT_EQUAL)
            v->kind = FSDP_VERDICT_WITHIN_ROUNDING;
    }
    if (v->first_wrong != NULL)
        v->kind = FSDP_VERDICT_WRONG;
    for (int p = 0; p < FSDP_TRACE_PHASES; p++)
        if (j->phase[p].tensors > 0)
            j->phase[v->num_phases++] = j->phase[p];
    v->phase = j->phase;
}

/* ---- what one side lacks ---------------------------------------------------------- */

static void
add_missing(judging_t *j, bool of_ours, const record_t *record)
{
    fsdp_verdict_missing_t *m =
        &j->missing[(of_ours ? FSDP_TRACE_PHASES : 0) + (int)record->phase];
    if (m->count++ == 0)
        *m = (fsdp_verdict_missing_t){of_ours, record->phase, 1, record->name};
}

static void
list_missing(judging_t *j)
{
    size_t n = fsdp_trace_count(j->ours);
    bool *met = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *met);
    j->missing =
        fsdp_calloc(FSDP_MEM_OTHER, 2 * FSDP_TRACE_PHASES * sizeof *j->missing);
    for (size_t i = 0; i < j->verdict.num_tensors; i++) {
        const fsdp_verdict_tensor_t *tensor = &j->tensor[i];
        if (tensor->ours != NULL)
            met[fsdp_trace_index(j->ours, tensor->ours)] = true;
        else
            add_missing(j, false, tensor->theirs);
    }
    for (size_t i = 0; i < n; i++)
        if (!met[i])
            add_missing(j, true, fsdp_trace_record(j->ours, i));
    fsdp_free(met);
    for (int k = 0; k < 2 * FSDP_TRACE_PHASES; k++)
        if (j->missing[k].count > 0)
            j->missing[j->verdict.num_missing++] = j->missing[k];
    j->verdict.missing = j->missing;
}

/* ---- life --------------------------------------------------------------------------- */

static void
judging_free(judging_t *j)
{
    for (int i = 0; i < j->verdict.num_notes; i++)
        fsdp_free(j->note[i]);
    fsdp_free(j->note);
    expected_free(&j->kept);
    fsdp_free(j->missing);
    fsdp_free(j->cannot_rerun);
    fsdp_free(j->tensor);
    fsdp_free(j->counterpart);
    fsdp_verdict_destroy(&j->verdict.of_double);
    verdict_names_destroy(&j->names);
    fsdp_trace_close(&j->ours);
    fsdp_trace_close(&j->theirs);
    fsdp_free(j);
}

static void
make_tensors(judging_t *j)
{
    size_t n = fsdp_trace_count(j->theirs);
    j->tensor = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *j->tensor);
    for (size_t i = 0; i < n; i++)
        j->tensor[i] =
            (fsdp_verdict_tensor_t){.theirs = fsdp_trace_record(j->theirs, i),
                                    .rank = -1,
                                    .other_rank = -1,
                                    .value = NAN,
                                    .expected = NAN,
                                    .our_value = NAN};
    j->verdict.tensor = j->tensor;
    j->verdict.num_tensors = n;
    j->verdict.ours = j->ours;
    j->verdict.theirs = j->theirs;
}

static fsdp_status_t
open_both(judging_t *j, const char *ours, const char *theirs)
{
    fsdp_status_t status = fsdp_trace_open(ours, &j->ours);
    if (status == FSDP_OK)
        status = fsdp_trace_open(theirs, &j->theirs);
    if (status != FSDP_OK)
        return status;
    j->our_about = fsdp_trace_about(j->ours);
    j->their_about = fsdp_trace_about(j->theirs);
    return verdict_names_create(j->ours, j->theirs, j->options.rename,
                                &j->names);
}

fsdp_status_t
fsdp_verdict_make(const char *ours, const char *theirs,
                  const fsdp_verdict_options_t *options,
                  fsdp_verdict_t **verdict)
{
    judging_t *j = fsdp_calloc(FSDP_MEM_OTHER, sizeof *j);
    if (options != NULL)
        j->options = *options;
    if (j->options.runs <= 0)
        j->options.runs = RUNS;
    j->status = open_both(j, ours, theirs);
    if (j->status == FSDP_OK) {
        make_tensors(j);
        verdict_about(j);
        verdict_match_micros(j);
        judge_all(j);
    }
    if (j->status == FSDP_OK) {
        sum_up(j);
        list_missing(j);
        verdict_explain(j);
    }
    if (j->status == FSDP_OK && j->options.with_double)
        verdict_double(j);
    *verdict = j->status == FSDP_OK ? &j->verdict : NULL;
    fsdp_status_t status = j->status;
    if (status != FSDP_OK)
        judging_free(j);
    return status;
}

/* The verdict is the first member of what it is a part of. */
void
fsdp_verdict_destroy(fsdp_verdict_t **verdict)
{
    if (*verdict != NULL)
        judging_free((judging_t *)*verdict);
    *verdict = NULL;
}
