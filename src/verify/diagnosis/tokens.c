/* What a micro-batch counts for.  With n of its targets counting, of the step's
 * all, its mean's gradient is to weigh n / all (average "token") or as much as
 * any other's ("rank"), times what the backward begins with, which the trace says
 * as its first rank had it.  So what theirs weighs is known, and whether that is
 * another weight that scripts give by mistake. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/diagnosis/hypothesis.h"

/** Of the micro-batch that is looked at: its targets, those of them that count;
 *  those that count in all of its rank's, and in all of the step's. */
typedef struct targets {
    double numel, counting, of_rank, of_all;
} targets_t;

/* How many count in micro-batch g; false: unknown. */
static bool
count_of(const symptom_t *s, int g, double *count, double *numel)
{
    uint64_t n = 0;
    const double *t = s->get(s->context, false, s->step, FSDP_TRACE_INPUT, g,
                             "targets", -1, &n);
    *count = 0;
    *numel = (double)n;
    for (uint64_t i = 0; t != NULL && i < n; i++)
        *count += t[i] != (double)s->meant->ignore_index;
    return t != NULL;
}

static bool
count_targets(const symptom_t *s, targets_t *t)
{
    int micros = symptom_ranks(s) * symptom_micros(s);
    *t = (targets_t){.numel = 0};
    if (s->micro < 0 || s->micro >= micros)
        return false;
    int rank = symptom_rank_of_micro(s, s->micro);
    for (int g = 0; g < micros; g++) {
        double count, numel;
        if (!count_of(s, g, &count, &numel))
            return false;
        t->of_all += count;
        t->of_rank += symptom_rank_of_micro(s, g) == rank ? count : 0;
        if (g == s->micro) {
            t->counting = count;
            t->numel = numel;
        }
    }
    return t->counting > 0;
}

/* What the gradient of the micro-batch's mean is multiplied by in what is
 * expected; NaN: unknown. */
static double
expected_weight(const symptom_t *s, const targets_t *t)
{
    double scale = s->theirs->loss_scale;
    int micros = symptom_ranks(s) * symptom_micros(s);
    if (isnan(scale)) /* then it was not theirs that was run again */
        scale = symptom_micros(s) == 1 ? 1 : s->meant->loss_scale;
    bool token =
        s->meant->average != NULL && strcmp(s->meant->average, "token") == 0;
    return token ? scale * t->counting * micros / t->of_all : scale;
}

static bool
is_theirs(const symptom_t *s, double factor, const char *text, cause_t *cause)
{
    if (!isfinite(factor) || fabs(factor - 1) < 1e-12)
        return false;
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        c.value[i] = factor * s->expected[i];
        c.bound[i] =
            factor * s->bound[i] + 8 * symptom_roundoff(s) * fabs(c.value[i]);
    }
    return candidate_explains(
        s, &c, cause, "theirs is %.6g times what it should be: the loss is %s",
        factor, text);
}

/* Of one micro-batch, and of its gradients? */
static bool
is_looked_at(const symptom_t *s, targets_t *t)
{
    bool gradient = s->phase == FSDP_TRACE_OUTPUT_GRAD ||
                    s->phase == FSDP_TRACE_INPUT_GRAD ||
                    s->phase == FSDP_TRACE_UNREDUCED_GRAD;
    return gradient && s->copy == NULL && count_targets(s, t);
}

/* With the weight, or that divided by the micro-batches, too. */
static bool
weighs(const symptom_t *s, const targets_t *t, double weight, const char *text,
       cause_t *cause)
{
    double expected = expected_weight(s, t);
    return is_theirs(s, weight / expected, text, cause) ||
           is_theirs(s, weight / symptom_micros(s) / expected, text, cause);
}

bool
hypothesis_token_mean(const symptom_t *s, cause_t *cause)
{
    targets_t t;
    if (!is_looked_at(s, &t))
        return false;
    int ranks = symptom_ranks(s), micros = ranks * symptom_micros(s);
    bool token =
        s->meant->average != NULL && strcmp(s->meant->average, "token") == 0;
    if (!token)
        return weighs(s, &t, t.counting * micros / t.of_all,
                      "weighted by its share of the targets, and all "
                      "micro-batches were meant to count alike",
                      cause);
    return weighs(s, &t, 1,
                  "a mean over each micro-batch's own targets, however many "
                  "they are, and one over all ranks' targets was meant",
                  cause) ||
           is_theirs(s, t.counting / t.of_rank / expected_weight(s, &t),
                     "a mean over this rank's own targets, and one over all "
                     "ranks' targets was meant",
                     cause);
}

bool
hypothesis_ignored_targets(const symptom_t *s, cause_t *cause)
{
    static const char text[] = "divided by all targets, the ignored ones too";
    targets_t t;
    if (s->phase == FSDP_TRACE_LOSS && s->copy == NULL && count_targets(s, &t))
        return is_theirs(s, t.counting / t.numel, text, cause);
    return is_looked_at(s, &t) &&
           weighs(s, &t, t.counting / t.numel, text, cause);
}
