/* Two ranks have different copies of what should be one tensor. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"

/* ---- sums of own gradients ------------------------------------------------ */

/* Over the micro-batches of data-parallel ranks [first, first + count); NULL: some
 * are not known.  The caller frees. */
static double *
sum_of_ranks(const symptom_t *s, int first, int count)
{
    double *sum = fsdp_calloc(FSDP_MEM_OTHER, s->numel * sizeof *sum);
    int M = symptom_ranks(s) * symptom_micros(s);
    for (int g = 0; g < M; g++) {
        int r = symptom_rank_of_micro(s, g);
        if (r < first || r >= first + count)
            continue;
        const double *t = symptom_get(s, s->step, FSDP_TRACE_UNREDUCED_GRAD, g);
        if (t == NULL) {
            fsdp_free(sum);
            return NULL;
        }
        for (uint64_t i = 0; i < s->numel; i++)
            sum[i] += t[i];
    }
    return sum;
}

/* `x` is `sum` times some factor, wherever it is known. */
static bool
is_multiple(const symptom_t *s, const double *x, const double *sum, int terms)
{
    double xy = 0, yy = 0, largest = 0;
    double u = symptom_roundoff_of_sums(s);
    for (uint64_t i = 0; i < s->numel; i++)
        if (!isnan(x[i])) {
            xy += x[i] * sum[i];
            yy += sum[i] * sum[i];
            largest = fmax(largest, fabs(sum[i]));
        }
    if (!(yy > 0))
        return false;
    double factor = xy / yy;
    double bound = verdict_gamma(terms + 6, u) * fabs(factor) * largest * terms;
    for (uint64_t i = 0; i < s->numel; i++)
        if (!isnan(x[i]) && !(fabs(x[i] - factor * sum[i]) <= bound))
            return false;
    return true;
}

/* Both copies are the sums over `count` ranks with which each belongs. */
static bool
both_are_sums_of(const symptom_t *s, int count)
{
    const double *copy[2] = {s->is, s->copy};
    bool all = true;
    for (int k = 0; k < 2 && all; k++) {
        int first = s->copy_rank[k] / count * count;
        double *sum = sum_of_ranks(s, first, count);
        all = sum != NULL &&
              is_multiple(s, copy[k], sum, count * symptom_micros(s));
        fsdp_free(sum);
    }
    return all;
}

static bool
is_gradient(const symptom_t *s)
{
    return s->phase == FSDP_TRACE_GRAD || s->phase == FSDP_TRACE_REDUCED_GRAD ||
           s->phase == FSDP_TRACE_CLIPPED_GRAD;
}

bool
hypothesis_not_reduced_copies(const symptom_t *s, cause_t *cause)
{
    if (s->copy == NULL || !is_gradient(s) || !both_are_sums_of(s, 1))
        return false;
    cause->ratio = 1;
    snprintf(cause->text, sizeof cause->text,
             "it was never reduced: ranks %d and %d each keep the gradient of "
             "their own data",
             s->copy_rank[0], s->copy_rank[1]);
    return true;
}

bool
hypothesis_replicas_not_reduced(const symptom_t *s, cause_t *cause)
{
    int S = s->theirs->shards;
    if (s->copy == NULL || !is_gradient(s) || s->theirs->replicas < 2 ||
        S < 2 || !both_are_sums_of(s, S))
        return false;
    cause->ratio = 1;
    snprintf(cause->text, sizeof cause->text,
             "it was reduced over each replica's %d shards and not over the %d "
             "replicas: ranks %d and %d have sums of their own replica",
             S, s->theirs->replicas, s->copy_rank[0], s->copy_rank[1]);
    return true;
}

bool
hypothesis_not_broadcast(const symptom_t *s, cause_t *cause)
{
    if (s->copy == NULL || s->step != 0)
        return false;
    cause->ratio = 0;
    snprintf(cause->text, sizeof cause->text,
             "ranks %d and %d began with different values: initial values are "
             "neither drawn from one seed nor broadcast",
             s->copy_rank[0], s->copy_rank[1]);
    return true;
}

/* After equal gradients: the update itself differed. */
bool
hypothesis_copies_drift(const symptom_t *s, cause_t *cause)
{
    if (s->copy == NULL || s->step < 1 || is_gradient(s))
        return false;
    cause->ratio = 1;
    snprintf(cause->text, sizeof cause->text,
             "ranks %d and %d have different copies though nothing before it "
             "differed: one of them left the step out, or made another one",
             s->copy_rank[0], s->copy_rank[1]);
    return true;
}
