/* What can go wrong where gradients of several micro-batches become one. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

/* ---- in a narrower type --------------------------------------------------------- */

static const double *
unreduced(const symptom_t *s, int g)
{
    return symptom_get(s, s->step, FSDP_TRACE_UNREDUCED_GRAD, g);
}

/* Global micro-batch of rank r's j-th, where they are brought together last. */
static int
number(const symptom_t *s, int r, int j)
{
    return r * symptom_micros(s) + j;
}

/* Each rank's running sum is rounded to the type after each micro-batch; then the
 * sums are added over the ranks, exactly here, and to within `bound` there.
 * False: a gradient is missing. */
static bool
running_sums(const symptom_t *s, fsdp_dtype_t type, candidate_t *c)
{
    int N = symptom_ranks(s), m = symptom_micros(s);
    double u = symptom_roundoff_of_sums(s);
    for (uint64_t i = 0; i < s->numel; i++)
        c->value[i] = c->bound[i] = 0;
    for (int r = 0; r < N; r++)
        for (int j = 0; j < m; j++)
            if (unreduced(s, number(s, r, j)) == NULL)
                return false;
    for (uint64_t i = 0; i < s->numel; i++) {
        double exact = 0;
        for (int r = 0; r < N; r++) {
            double sum = 0;
            for (int j = 0; j < m; j++) {
                double t = unreduced(s, number(s, r, j))[i];
                sum = value_round(type, sum + t);
                exact += t;
            }
            c->value[i] += sum;
            c->bound[i] += verdict_gamma(N + 8, u) * fabs(sum);
        }
        /* the divisor, by what it should be */
        double factor = exact != 0 ? s->expected[i] / exact : 0;
        c->value[i] *= factor;
        c->bound[i] = c->bound[i] * fabs(factor) + s->bound[i];
    }
    return true;
}

bool
hypothesis_accumulated_in_lower_precision(const symptom_t *s, cause_t *cause)
{
    static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16};
    bool last = s->theirs->gradient_sync > FSDP_SYNC_EACH;
    if ((s->phase != FSDP_TRACE_REDUCED_GRAD && s->phase != FSDP_TRACE_GRAD) ||
        symptom_micros(s) < 2 || !last || s->copy != NULL || s->numel < 8)
        return false;
    for (int t = 0; t < 2; t++) {
        if (value_roundoff(types[t]) <= symptom_roundoff_of_sums(s))
            continue;
        candidate_t c = candidate_make(s);
        if (!running_sums(s, types[t], &c)) {
            candidate_free(&c);
            return false;
        }
        if (candidate_explains(s, &c, cause,
                               "each rank added its micro-batches up in %s "
                               "before they were reduced",
                               fsdp_dtype_name(types[t])))
            return true;
    }
    return false;
}

/* ---- clipped in between ------------------------------------------------------------ */

/** The gradient of each parameter as it grows. */
typedef struct growing {
    double **sum; /**< [num_parameters][numel], owned; NULL: it has none */
    uint64_t *numel;
} growing_t;

static void
growing_free(const symptom_t *s, growing_t *g)
{
    for (int p = 0; p < s->theirs->num_parameters; p++)
        fsdp_free(g->sum[p]);
    fsdp_free(g->sum);
    fsdp_free(g->numel);
}

/* Adds the reduced gradients of turn j. */
static void
add_turn(const symptom_t *s, growing_t *g, int j)
{
    int micro = j * symptom_ranks(s) + symptom_ranks(s) - 1;
    for (int p = 0; p < s->theirs->num_parameters; p++) {
        uint64_t numel = 0;
        const double *x =
            s->get(s->context, false, s->step, FSDP_TRACE_REDUCED_GRAD, micro,
                   s->theirs->parameter[p].name, -1, &numel);
        if (x == NULL || (g->sum[p] != NULL && g->numel[p] != numel))
            continue;
        if (g->sum[p] == NULL)
            g->sum[p] = fsdp_calloc(FSDP_MEM_OTHER,
                                    (numel > 0 ? numel : 1) * sizeof(double));
        g->numel[p] = numel;
        for (uint64_t i = 0; i < numel; i++)
            g->sum[p][i] += x[i];
    }
}

/* Clips what there is by its 2-norm; false: it would not be clipped. */
static bool
clip(const symptom_t *s, growing_t *g, double max_norm)
{
    double square = 0;
    for (int p = 0; p < s->theirs->num_parameters; p++)
        for (uint64_t i = 0; g->sum[p] != NULL && i < g->numel[p]; i++)
            if (isfinite(g->sum[p][i]))
                square += g->sum[p][i] * g->sum[p][i];
    double c = fmin(1, max_norm / (sqrt(square) + 1e-6));
    for (int p = 0; p < s->theirs->num_parameters; p++)
        for (uint64_t i = 0; g->sum[p] != NULL && i < g->numel[p]; i++)
            g->sum[p][i] *= c;
    return c < 1;
}

static int
index_of(const symptom_t *s)
{
    for (int p = 0; p < s->theirs->num_parameters; p++)
        if (strcmp(s->theirs->parameter[p].name, s->name) == 0)
            return p;
    return -1;
}

static double
error_of_clipping(const symptom_t *s, const growing_t *g)
{
    double numel = 0;
    for (int p = 0; p < s->theirs->num_parameters; p++)
        numel += (double)g->numel[p];
    /* each time the norm, and its coefficient's sum, quotient and product */
    return (symptom_error_of_norm(s, numel) +
            verdict_gamma(4, symptom_roundoff(s))) *
           symptom_micros(s);
}

bool
hypothesis_clipped_too_early(const symptom_t *s, cause_t *cause)
{
    double max_norm =
        isnan(s->meant->grad_clip) ? s->theirs->grad_clip : s->meant->grad_clip;
    int m = symptom_micros(s), self = index_of(s);
    bool each = s->theirs->gradient_sync == FSDP_SYNC_EACH, found = false;
    size_t count = (size_t)s->theirs->num_parameters;
    if (s->phase != FSDP_TRACE_GRAD || m < 2 || !each || !(max_norm > 0) ||
        self < 0 || s->meant->norm_type != 2 || s->copy != NULL)
        return false;
    growing_t g = {fsdp_calloc(FSDP_MEM_OTHER, count * sizeof *g.sum),
                   fsdp_calloc(FSDP_MEM_OTHER, count * sizeof *g.numel)};
    bool clipped = false;
    for (int j = 0; j < m; j++) {
        add_turn(s, &g, j);
        if (j < m - 1)
            clipped |= clip(s, &g, max_norm);
    }
    if (clipped && g.sum[self] != NULL && g.numel[self] == s->numel) {
        candidate_t c = candidate_make(s);
        double error = error_of_clipping(s, &g);
        for (uint64_t i = 0; i < s->numel; i++) {
            c.value[i] = g.sum[self][i];
            c.bound[i] = error * fabs(s->expected[i]) + s->bound[i] +
                         error * fabs(c.value[i]);
        }
        found = candidate_explains(s, &c, cause,
                                   "it was clipped after each micro-batch, "
                                   "before all of them were in it");
    }
    growing_free(s, &g);
    return found;
}
