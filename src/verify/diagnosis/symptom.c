#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

/* ---- candidates ---------------------------------------------------------- */

candidate_t
candidate_make(const symptom_t *s)
{
    size_t bytes = (s->numel > 0 ? s->numel : 1) * sizeof(double);
    return (candidate_t){fsdp_alloc(FSDP_MEM_OTHER, bytes),
                         fsdp_calloc(FSDP_MEM_OTHER, bytes)};
}

void
candidate_free(candidate_t *candidate)
{
    fsdp_free(candidate->value);
    fsdp_free(candidate->bound);
    *candidate = (candidate_t){0};
}

static bool
is_kept(const symptom_t *s, uint64_t i)
{
    return s->owner == NULL || s->owner[i] >= 0;
}

double
candidate_ratio(const symptom_t *s, const candidate_t *candidate)
{
    double worst = -1;
    for (uint64_t i = 0; i < s->numel; i++)
        if (is_kept(s, i))
            worst = fmax(worst, verdict_ratio(s->is[i], candidate->value[i],
                                              candidate->bound[i]));
    return worst >= 0 ? worst : (double)INFINITY;
}

bool
candidate_explains(const symptom_t *s, candidate_t *candidate, cause_t *cause,
                   const char *format, ...)
{
    double ratio = candidate_ratio(s, candidate);
    candidate_free(candidate);
    if (!(ratio <= 1))
        return false;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(cause->text, sizeof cause->text, format, arguments);
    va_end(arguments);
    if (n >= 0 && (size_t)n < sizeof cause->text)
        snprintf(cause->text + n, sizeof cause->text - (size_t)n,
                 " (all %llu elements, to %.2g of the bound)",
                 (unsigned long long)s->numel, ratio);
    cause->ratio = ratio;
    return true;
}

/* ---- rounding -------------------------------------------------------------- */

double
symptom_roundoff(const symptom_t *s)
{
    return value_is_floating(s->dtype) ? value_roundoff(s->dtype) : 0;
}

double
symptom_roundoff_of_sums(const symptom_t *s)
{
    fsdp_dtype_t asked = s->meant->precision.reduce_dtype;
    double u = symptom_roundoff(s);
    if (s->meant->has_precision && value_is_floating(asked))
        u = fmax(u, value_roundoff(asked));
    return u;
}

/* ---- what else there is ---------------------------------------------------- */

const double *
symptom_get_of_rank(const symptom_t *s, long step, fsdp_trace_phase_t phase,
                    int micro, int rank)
{
    uint64_t numel = 0;
    const double *x =
        s->get(s->context, false, step, phase, micro, s->name, rank, &numel);
    return numel == s->numel ? x : NULL;
}

const double *
symptom_get(const symptom_t *s, long step, fsdp_trace_phase_t phase, int micro)
{
    return symptom_get_of_rank(s, step, phase, micro, -1);
}

int
symptom_ranks(const symptom_t *s)
{
    const fsdp_trace_about_t *a = s->theirs;
    int n = a->replicas * a->shards;
    if (n > 0)
        return n;
    return a->tensor > 1 ? a->world_size / a->tensor : a->world_size;
}

int
symptom_micros(const symptom_t *s)
{
    return s->theirs->micro_batches > 0 ? s->theirs->micro_batches : 1;
}

int
symptom_rank_of_micro(const symptom_t *s, int g)
{
    int N = symptom_ranks(s), m = symptom_micros(s);
    bool each = m == 1 || s->theirs->gradient_sync == FSDP_SYNC_EACH;
    return each ? g % N : g / m;
}

double
symptom_lr(const symptom_t *s, long step)
{
    for (int i = 0; i < s->meant->num_steps; i++)
        if (s->meant->step[i].step == step)
            return s->meant->step[i].lr;
    return NAN;
}

bool
symptom_is_wrong(const symptom_t *s, uint64_t i)
{
    return is_kept(s, i) &&
           verdict_ratio(s->is[i], s->expected[i], s->bound[i]) > 1;
}

uint64_t
symptom_count_wrong(const symptom_t *s)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < s->numel; i++)
        count += symptom_is_wrong(s, i);
    return count;
}

/* The squares of many elements added up, as the verdict has it for all of them
 * together. */
double
symptom_error_of_norm(const symptom_t *s, double numel)
{
    return verdict_error_of_norm(numel, s->theirs->num_parameters,
                                 s->theirs->world_size, s->dtype);
}

/* ---- factors ----------------------------------------------------------------- */

const char *
symptom_factor(const symptom_t *s, int k, double *factor)
{
    static char text[96];
    double N = symptom_ranks(s), m = symptom_micros(s);
    double R = s->theirs->replicas, S = s->theirs->shards;
    const struct {
        double value;
        const char *name;
    } known[] = {{N, "the number of ranks"},
                 {m, "the number of micro-batches"},
                 {N * m, "the number of ranks times that of micro-batches"},
                 {R, "the number of replicas"},
                 {S, "the number of shards"},
                 {sqrt(N), "the root of the number of ranks"},
                 {N * N, "the square of the number of ranks"},
                 {R * R, "the square of the number of replicas"},
                 {m * m, "the square of the number of micro-batches"}};
    if (k >= 2 * (int)(sizeof known / sizeof *known))
        return NULL;
    double x = known[k / 2].value;
    *factor = x <= 1 ? 1 : k % 2 == 0 ? x : 1 / x;
    snprintf(text, sizeof text, "%s%s", k % 2 == 0 ? "" : "1 / ",
             known[k / 2].name);
    return text;
}
