/* What can go wrong between the ranks' own gradients and their mean.  Each
 * candidate is what it should be, more or less some ranks' shares. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

/** The terms of the tensor: micro-batches [first, first + count), all of theirs. */
typedef struct terms {
    int first, count;
    double divisor;          /**< expected = their sum / divisor */
    double *sum, *magnitude; /**< [numel], owned */
} terms_t;

static const double *
term_of(const symptom_t *s, int g)
{
    return symptom_get(s, s->step, FSDP_TRACE_UNREDUCED_GRAD, g);
}

static void
terms_free(terms_t *terms)
{
    fsdp_free(terms->sum);
    fsdp_free(terms->magnitude);
}

/* By which the sum was to be divided: a simple number if one is as near as the
 * rounding of what is expected allows. */
static double
divisor_of(const symptom_t *s, const terms_t *terms)
{
    double xx = 0, xy = 0, error = 0;
    double u = symptom_roundoff_of_sums(s), k = terms->count + 8;
    for (uint64_t i = 0; i < s->numel; i++)
        if (isfinite(s->expected[i])) {
            double x = terms->sum[i];
            xx += x * x;
            xy += x * s->expected[i];
            error += fabs(x) * terms->magnitude[i];
        }
    double d = xy != 0 ? xx / xy : (double)NAN, near = round(d * 64) / 64;
    return fabs(d - near) <= fabs(d) * verdict_gamma(k, u) * error / xx ? near
                                                                        : d;
}

static bool
terms_make(const symptom_t *s, terms_t *terms)
{
    int N = symptom_ranks(s), m = symptom_micros(s), M = N * m;
    bool each = m == 1 || s->theirs->gradient_sync == FSDP_SYNC_EACH;
    *terms = (terms_t){.first = 0, .count = M};
    if (s->phase == FSDP_TRACE_REDUCED_GRAD && each) {
        terms->count = N;
        terms->first = s->micro - N + 1;
    } else if (s->phase != FSDP_TRACE_REDUCED_GRAD &&
               s->phase != FSDP_TRACE_GRAD) {
        return false;
    }
    if (s->numel == 0 || terms->first < 0 || s->copy != NULL)
        return false;
    size_t bytes = s->numel * sizeof(double);
    terms->sum = fsdp_calloc(FSDP_MEM_OTHER, bytes);
    terms->magnitude = fsdp_calloc(FSDP_MEM_OTHER, bytes);
    for (int g = terms->first; g < terms->first + terms->count; g++) {
        const double *t = term_of(s, g);
        if (t == NULL) {
            terms_free(terms);
            return false;
        }
        for (uint64_t i = 0; i < s->numel; i++) {
            terms->sum[i] += t[i];
            terms->magnitude[i] += fabs(t[i]);
        }
    }
    terms->divisor = divisor_of(s, terms);
    if (isfinite(terms->divisor))
        return true;
    terms_free(terms);
    return false;
}

/* What rounding can do to a sum of such terms, twice over for another order. */
static double
bound_of(const symptom_t *s, const terms_t *terms, uint64_t i)
{
    double k = 2 * terms->count + 8;
    return verdict_gamma(k, symptom_roundoff_of_sums(s)) * terms->magnitude[i] /
               fabs(terms->divisor) +
           s->bound[i];
}

/** Is micro-batch g among those that a hypothesis is about? */
typedef bool (*among_t)(const symptom_t *s, int g, int which);

static bool
of_rank(const symptom_t *s, int g, int which)
{
    return symptom_rank_of_micro(s, g) == which;
}

/* The which-th micro-batch of every rank. */
static bool
of_turn(const symptom_t *s, int g, int which)
{
    int N = symptom_ranks(s), m = symptom_micros(s);
    bool each = m == 1 || s->theirs->gradient_sync == FSDP_SYNC_EACH;
    return (each ? g / N : g % m) == which;
}

/* Expected plus `times` the share of those. */
static candidate_t
with_share(const symptom_t *s, const terms_t *terms, among_t among, int which,
           double times)
{
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        c.value[i] = s->expected[i];
        c.bound[i] = bound_of(s, terms, i);
    }
    for (int g = terms->first; g < terms->first + terms->count; g++) {
        if (!among(s, g, which))
            continue;
        const double *t = term_of(s, g);
        for (uint64_t i = 0; i < s->numel; i++)
            c.value[i] += times * t[i] / terms->divisor;
    }
    return c;
}

static bool
share_explains(const symptom_t *s, cause_t *cause, among_t among, int groups,
               double times, const char *format)
{
    terms_t terms;
    bool found = false;
    if (groups < 2 || !terms_make(s, &terms))
        return false;
    for (int which = 0; which < groups && !found; which++) {
        candidate_t c = with_share(s, &terms, among, which, times);
        found = candidate_explains(s, &c, cause, format, which);
    }
    terms_free(&terms);
    return found;
}

bool
hypothesis_rank_missing(const symptom_t *s, cause_t *cause)
{
    return share_explains(s, cause, of_rank, symptom_ranks(s), -1,
                          "the gradient of rank %d is missing in the sum");
}

bool
hypothesis_rank_doubled(const symptom_t *s, cause_t *cause)
{
    return share_explains(s, cause, of_rank, symptom_ranks(s), 1,
                          "the gradient of rank %d is in the sum twice");
}

bool
hypothesis_micro_missing(const symptom_t *s, cause_t *cause)
{
    return share_explains(s, cause, of_turn, symptom_micros(s), -1,
                          "the gradients of every rank's micro-batch %d are "
                          "missing in the sum");
}

bool
hypothesis_micro_doubled(const symptom_t *s, cause_t *cause)
{
    return share_explains(s, cause, of_turn, symptom_micros(s), 1,
                          "the gradients of every rank's micro-batch %d are in "
                          "the sum twice");
}

/* ---- too few ranks -------------------------------------------------------------- */

/* Each element is the sum over the `count` ranks with which its owner belongs,
 * times `times` / divisor. */
static candidate_t
sum_near_owner(const symptom_t *s, const terms_t *terms, int count,
               double times)
{
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        c.value[i] = 0;
        c.bound[i] = bound_of(s, terms, i) * times;
    }
    for (int g = terms->first; g < terms->first + terms->count; g++) {
        const double *t = term_of(s, g);
        int group = symptom_rank_of_micro(s, g) / count;
        for (uint64_t i = 0; i < s->numel; i++)
            if (s->owner[i] >= 0 && s->owner[i] / count == group)
                c.value[i] += times * t[i] / terms->divisor;
    }
    return c;
}

static bool
too_few(const symptom_t *s, cause_t *cause, int count, const char *text)
{
    terms_t terms;
    bool found = false;
    int N = symptom_ranks(s);
    if (s->owner == NULL || N < 2 || count >= N || N % count != 0 ||
        !terms_make(s, &terms))
        return false;
    /* not divided, divided by all, divided by as many as were added up */
    const double times[] = {1, (double)N / count, fabs(terms.divisor)};
    for (int k = 0; k < 3 && !found; k++) {
        candidate_t c = sum_near_owner(s, &terms, count, times[k]);
        found = candidate_explains(s, &c, cause, "%s", text);
    }
    terms_free(&terms);
    return found;
}

bool
hypothesis_not_reduced(const symptom_t *s, cause_t *cause)
{
    return too_few(s, cause, 1,
                   "it was not reduced: each rank's rows are those of its own "
                   "gradient");
}

bool
hypothesis_one_replica_only(const symptom_t *s, cause_t *cause)
{
    if (s->theirs->replicas < 2 || s->theirs->shards < 2)
        return false;
    return too_few(s, cause, s->theirs->shards,
                   "it was reduced over the shards of one replica and not over "
                   "the replicas");
}

/* ---- steps that run into each other ----------------------------------------------- */

bool
hypothesis_not_zeroed(const symptom_t *s, cause_t *cause)
{
    static const fsdp_trace_phase_t phases[] = {FSDP_TRACE_CLIPPED_GRAD,
                                                FSDP_TRACE_GRAD};
    if (s->phase != FSDP_TRACE_GRAD || s->step < 2)
        return false;
    for (int p = 0; p < 2; p++) {
        const double *old = symptom_get(s, s->step - 1, phases[p], -1);
        if (old == NULL)
            continue;
        candidate_t c = candidate_make(s);
        for (uint64_t i = 0; i < s->numel; i++) {
            c.value[i] = s->expected[i] + old[i];
            c.bound[i] =
                s->bound[i] +
                4 * symptom_roundoff(s) * (fabs(s->expected[i]) + fabs(old[i]));
        }
        if (candidate_explains(s, &c, cause,
                               "the gradient of step %ld is in it: gradients "
                               "were not set to zero",
                               s->step - 1))
            return true;
    }
    return false;
}

/* ---- precision ------------------------------------------------------------------------ */

static bool
reduced_in(const symptom_t *s, cause_t *cause, const terms_t *terms,
           fsdp_dtype_t type)
{
    double u = value_roundoff(type);
    candidate_t cast = candidate_make(s), all = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        cast.value[i] = 0;
        cast.bound[i] = bound_of(s, terms, i);
        all.value[i] = s->expected[i];
        all.bound[i] = cast.bound[i] + verdict_gamma(terms->count + 4, u) *
                                           terms->magnitude[i] /
                                           fabs(terms->divisor);
        for (int g = terms->first; g < terms->first + terms->count; g++)
            cast.value[i] +=
                value_round(type, term_of(s, g)[i]) / terms->divisor;
    }
    bool found = candidate_explains(
        s, &cast, cause,
        "the ranks' gradients were rounded to %s before they "
        "were added up",
        fsdp_dtype_name(type));
    bool narrow = true; /* after sums in that type values are of it, too */
    for (uint64_t i = 0; i < s->numel && narrow; i++)
        narrow = !isfinite(s->is[i]) ||
                 value_round(type, s->is[i] * terms->divisor) ==
                     s->is[i] * terms->divisor ||
                 value_round(type, s->is[i]) == s->is[i];
    if (found || !narrow || s->numel < 8) {
        candidate_free(&all);
        return found;
    }
    return candidate_explains(
        s, &all, cause, "it was added up in %s: its values are of that type",
        fsdp_dtype_name(type));
}

bool
hypothesis_reduced_in_lower_precision(const symptom_t *s, cause_t *cause)
{
    static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16};
    terms_t terms;
    bool found = false;
    if (!terms_make(s, &terms))
        return false;
    for (int t = 0; t < 2 && !found; t++)
        if (value_roundoff(types[t]) > symptom_roundoff_of_sums(s))
            found = reduced_in(s, cause, &terms, types[t]);
    terms_free(&terms);
    return found;
}
