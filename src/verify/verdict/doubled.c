/* Ours in float64, beside theirs and ours: rounding makes both about as far away
 * from it, a fault makes theirs further.  And theirs in float64, if there is a
 * trace of it: what is rounding is smaller there by 2^29 = 2^53 / 2^24. */

#include <math.h>
#include <stdlib.h>

#include "verify/trace/replay.h"
#include "verify/value.h"
#include "verify/verdict/internal.h"

/** A tensor of theirs, found by our record. */
typedef struct pair {
    const record_t *ours;
    fsdp_verdict_tensor_t *tensor;
} pair_t;

typedef struct sums {
    double theirs, ours, doubled; /**< of squares of differences            */
    double numel, doubled_numel;
} sums_t;

typedef struct doubling {
    judging_t *j;
    fsdp_trace_t *their_double; /**< NULL: none */
    pair_t *pair;               /**< by record of ours */
    size_t count;
    sums_t of[FSDP_TRACE_PHASES];
} doubling_t;

static int
by_ours(const void *a, const void *b)
{
    const pair_t *x = a, *y = b;
    return (x->ours > y->ours) - (x->ours < y->ours);
}

/* Only what is the same tensor on both sides, of the same numbers. */
static void
list_pairs(doubling_t *d)
{
    size_t n = d->j->verdict.num_tensors;
    d->pair = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *d->pair);
    for (size_t i = 0; i < n; i++) {
        fsdp_verdict_tensor_t *tensor = &d->j->tensor[i];
        if (tensor->ours != NULL &&
            tensor->ours->numel == tensor->theirs->numel &&
            tensor->theirs->phase != FSDP_TRACE_INPUT)
            d->pair[d->count++] = (pair_t){tensor->ours, tensor};
    }
    qsort(d->pair, d->count, sizeof *d->pair, by_ours);
}

static const record_t *
double_of(const doubling_t *d, const record_t *theirs)
{
    const record_t *record =
        d->their_double != NULL
            ? fsdp_trace_find(d->their_double, theirs->step, theirs->phase,
                              theirs->micro, theirs->name)
            : NULL;
    return record != NULL && record->numel == theirs->numel ? record : NULL;
}

/* Adds squares of values - (ours in float64) times `scale`. */
static void
add_squares(const fsdp_replay_value_t *exact, const double *values,
            double scale, double *sum, double *numel)
{
    for (uint64_t i = 0; values != NULL && i < exact->numel; i++) {
        double d = values[i] - scale * value_get(exact->dtype, exact->data, i);
        if (isnan(d))
            continue;
        *sum += d * d;
        *numel += 1;
    }
}

static void
show(void *context, const fsdp_replay_value_t *exact)
{
    doubling_t *d = context;
    judging_t *j = d->j;
    pair_t key = {.ours = fsdp_trace_find(j->ours, exact->step, exact->phase,
                                          exact->micro, exact->name)};
    const pair_t *pair =
        key.ours != NULL && value_is_floating(exact->dtype)
            ? bsearch(&key, d->pair, d->count, sizeof key, by_ours)
            : NULL;
    if (pair == NULL || key.ours->numel != exact->numel)
        return;
    const record_t *theirs = pair->tensor->theirs;
    const record_t *doubled = double_of(d, theirs);
    sums_t *s = &d->of[theirs->phase];
    double *a = verdict_read(j, j->theirs, theirs), ignored = 0;
    double *b = verdict_read(j, j->ours, pair->ours);
    double *c = verdict_read(j, d->their_double, doubled);
    double scale = verdict_scale(j, theirs->phase);
    add_squares(exact, a, scale, &s->theirs, &s->numel);
    add_squares(exact, b, 1, &s->ours, &ignored);
    add_squares(exact, c, scale, &s->doubled, &s->doubled_numel);
    fsdp_free(a);
    fsdp_free(b);
    fsdp_free(c);
}

static void
tell(doubling_t *d)
{
    judging_t *j = d->j;
    for (int p = 0; p < j->verdict.num_phases; p++) {
        fsdp_verdict_phase_t *phase = &j->phase[p];
        const sums_t *s = &d->of[phase->phase];
        if (s->numel > 0) {
            phase->theirs_to_double = sqrt(s->theirs / s->numel);
            phase->ours_to_double = sqrt(s->ours / s->numel);
        }
        if (s->doubled_numel > 0)
            phase->double_to_double = sqrt(s->doubled / s->doubled_numel);
    }
}

/* What makes it no answer to the question. */
static fsdp_status_t
check_double(const fsdp_verdict_t *v, const char *path)
{
    const fsdp_trace_about_t *about = fsdp_trace_about(v->theirs);
    const record_t *first =
        v->first_wrong != NULL ? v->first_wrong->theirs : NULL;
    if (about->dtype != FSDP_DTYPE_NONE && about->dtype != FSDP_FP64)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is a trace in %s; the third one is to be theirs "
                          "in float64",
                          path, fsdp_dtype_name(about->dtype));
    if (first != NULL && (first->step == 0 || first->phase == FSDP_TRACE_INPUT))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s does not begin as the others: %s is another; let "
                          "the run in float64 have the same initial values and "
                          "inputs, converted (model.double() in PyTorch)",
                          path, first->name);
    return FSDP_OK;
}

/* Theirs in float64, by its own verdict. */
static void
judge_double(judging_t *j, const char *path)
{
    fsdp_verdict_options_t options = j->options;
    options.with_double = false;
    options.theirs_double = NULL;
    j->status = fsdp_verdict_make(fsdp_trace_path(j->ours), path, &options,
                                  &j->verdict.of_double);
    if (j->status == FSDP_OK)
        j->status = check_double(j->verdict.of_double, path);
}

void
verdict_double(judging_t *j)
{
    doubling_t d = {.j = j};
    const char *path = j->options.theirs_double;
    fsdp_replay_options_t options = {
        .dtype = FSDP_FP64, .context = &d, .show = show};
    if (path != NULL)
        judge_double(j, path);
    if (j->status == FSDP_OK && path != NULL)
        j->status = fsdp_trace_open(path, &d.their_double);
    if (j->status == FSDP_OK) {
        list_pairs(&d);
        if (fsdp_trace_replay(j->ours, &options) != FSDP_OK)
            verdict_note(j, "ours cannot be run in float64: %s",
                         fsdp_error_message());
        tell(&d);
    }
    fsdp_free(d.pair);
    fsdp_trace_close(&d.their_double);
}
