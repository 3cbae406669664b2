/* Other data, other values to begin with. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/diagnosis/hypothesis.h"

static bool
same_values(const double *a, const double *b, uint64_t numel)
{
    for (uint64_t i = 0; i < numel; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

static int
num_micros(const symptom_t *s)
{
    return symptom_ranks(s) * symptom_micros(s);
}

/* Two micro-batches of one step. */
bool
hypothesis_same_data(const symptom_t *s, cause_t *cause)
{
    if (s->phase != FSDP_TRACE_INPUT || s->numel == 0)
        return false;
    for (int g = 0; g < num_micros(s); g++) {
        const double *other =
            g != s->micro ? symptom_get(s, s->step, FSDP_TRACE_INPUT, g) : NULL;
        if (other == NULL || !same_values(s->is, other, s->numel))
            continue;
        cause->ratio = 0;
        snprintf(cause->text, sizeof cause->text,
                 "micro-batches %d and %d have the same data: rank %d reads "
                 "what rank %d reads",
                 s->micro, g, symptom_rank_of_micro(s, s->micro),
                 symptom_rank_of_micro(s, g));
        return true;
    }
    return false;
}

/* Targets along the last dimension, moved by one or two. */
bool
hypothesis_labels_shifted(const symptom_t *s, cause_t *cause)
{
    if (s->phase != FSDP_TRACE_INPUT || strcmp(s->name, "targets") != 0 ||
        s->ndim < 1 || s->shape[s->ndim - 1] < 3)
        return false;
    uint64_t T = s->shape[s->ndim - 1];
    for (int shift = -2; shift <= 2; shift++) {
        bool same = shift != 0;
        for (uint64_t i = 0; same && i < s->numel; i++) {
            int64_t t = (int64_t)(i % T) + shift;
            if (t >= 0 && t < (int64_t)T)
                same = s->is[i] == s->expected[(int64_t)i + shift];
        }
        if (!same)
            continue;
        cause->ratio = 0;
        snprintf(cause->text, sizeof cause->text,
                 "the targets are shifted by %d more than they should be",
                 shift);
        return true;
    }
    return false;
}

/* Where ours has targets to be ignored, theirs has one and the same. */
bool
hypothesis_padding_learnt(const symptom_t *s, cause_t *cause)
{
    uint64_t count = 0;
    double ignored = (double)s->meant->ignore_index, target = NAN;
    if (s->phase != FSDP_TRACE_INPUT || strcmp(s->name, "targets") != 0)
        return false;
    for (uint64_t i = 0; i < s->numel; i++) {
        if (s->is[i] == s->expected[i])
            continue;
        if (s->expected[i] != ignored || (count++ > 0 && s->is[i] != target))
            return false;
        target = s->is[i];
    }
    if (count == 0)
        return false;
    cause->ratio = 0;
    snprintf(cause->text, sizeof cause->text,
             "%llu targets that are to be ignored (%g) are %g in theirs: "
             "padding is learnt",
             (unsigned long long)count, ignored, target);
    return true;
}

bool
hypothesis_data_of_another_step(const symptom_t *s, cause_t *cause)
{
    if (s->phase != FSDP_TRACE_INPUT)
        return false;
    for (long step = s->step - 1; step >= 1; step--)
        for (int g = 0; g < num_micros(s); g++) {
            const double *other = symptom_get(s, step, FSDP_TRACE_INPUT, g);
            if (other == NULL || !same_values(s->is, other, s->numel))
                continue;
            cause->ratio = 0;
            snprintf(cause->text, sizeof cause->text,
                     "the data are those of micro-batch %d of step %ld", g,
                     step);
            return true;
        }
    return false;
}

/* Step 0: nothing else came before. */
bool
hypothesis_initial_values(const symptom_t *s, cause_t *cause)
{
    if (s->step != 0 || s->phase != FSDP_TRACE_PARAMETER || s->copy != NULL)
        return false;
    cause->ratio = 0;
    snprintf(cause->text, sizeof cause->text,
             "training began with other values in %llu of %llu elements: "
             "another seed, another rule, or weights that were not loaded",
             (unsigned long long)symptom_count_wrong(s),
             (unsigned long long)s->numel);
    return true;
}
