/* The norm and what is clipped by it. */

#include <math.h>
#include <stdio.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"

/** Norms of the step's gradients, put together in several ways. */
typedef struct norms {
    double square, sum, largest; /**< of all elements, each once              */
    double numel;
    double *local; /**< [world_size], squares of what each rank keeps; owned  */
} norms_t;

/* One parameter's gradient, as `rank` has it (-1: all of it). */
static const double *
gradient(const symptom_t *s, int p, int rank, uint64_t *numel)
{
    return s->get(s->context, false, s->step, FSDP_TRACE_GRAD, -1,
                  s->theirs->parameter[p].name, rank, numel);
}

static double
square_of(const double *x, uint64_t numel, norms_t *n)
{
    double square = 0;
    for (uint64_t i = 0; i < numel; i++) {
        if (isnan(x[i]))
            continue;
        square += x[i] * x[i];
        if (n != NULL) {
            n->sum += fabs(x[i]);
            n->largest = fmax(n->largest, fabs(x[i]));
            n->numel++;
        }
    }
    return square;
}

static bool
norms_make(const symptom_t *s, norms_t *n)
{
    int W = s->theirs->world_size;
    uint64_t numel;
    *n = (norms_t){
        .local = fsdp_calloc(FSDP_MEM_OTHER, (size_t)W * sizeof *n->local)};
    for (int p = 0; p < s->theirs->num_parameters; p++) {
        const double *x = gradient(s, p, -1, &numel);
        if (x != NULL)
            n->square += square_of(x, numel, n);
        for (int r = 0; r < W; r++) {
            x = gradient(s, p, r, &numel);
            if (x != NULL)
                n->local[r] += square_of(x, numel, NULL);
        }
    }
    if (n->square > 0)
        return true;
    fsdp_free(n->local);
    return false;
}

static double
error_of_norm(const symptom_t *s, const norms_t *n)
{
    return symptom_error_of_norm(s, n->numel);
}

static bool
is_norm(const symptom_t *s, cause_t *cause, const norms_t *n, double norm,
        const char *text)
{
    candidate_t c = candidate_make(s);
    c.value[0] = norm;
    c.bound[0] = 2 * error_of_norm(s, n) * norm; /* a square has no root */
    return candidate_explains(s, &c, cause, "%s", text);
}

static bool
wants_norm(const symptom_t *s)
{
    return s->phase == FSDP_TRACE_NORM && s->numel == 1;
}

/* What a hypothesis finds in the norms. */
typedef bool (*look_t)(const symptom_t *s, cause_t *cause, const norms_t *n);

static bool
look_at_norms(const symptom_t *s, cause_t *cause, look_t look)
{
    norms_t n;
    if (!wants_norm(s) || !norms_make(s, &n))
        return false;
    bool found = look(s, cause, &n);
    fsdp_free(n.local);
    return found;
}

/* One rank's norm, in either of two copies that differ. */
static bool
look_local(const symptom_t *s, cause_t *cause, const norms_t *n)
{
    const double *is[2] = {s->is, s->copy};
    double total = 0;
    for (int r = 0; r < s->theirs->world_size; r++) {
        char text[96];
        snprintf(text, sizeof text,
                 "it is the norm of what rank %d keeps, not of everything", r);
        for (int k = 0; k < 2; k++) {
            symptom_t of_copy = *s;
            of_copy.is = is[k];
            if (is[k] != NULL &&
                is_norm(&of_copy, cause, n, sqrt(n->local[r]), text))
                return true;
        }
        total += sqrt(n->local[r]);
    }
    return s->copy == NULL &&
           is_norm(s, cause, n, total,
                   "it is the sum of the ranks' norms, not the root of the sum "
                   "of their squares");
}

bool
hypothesis_local_norm(const symptom_t *s, cause_t *cause)
{
    return look_at_norms(s, cause, look_local);
}

static bool
look_replicas(const symptom_t *s, cause_t *cause, const norms_t *n)
{
    return s->theirs->replicas > 1 &&
           is_norm(s, cause, n, sqrt(n->square * s->theirs->replicas),
                   "each replica's copy is counted in it");
}

bool
hypothesis_norm_of_replicas(const symptom_t *s, cause_t *cause)
{
    return look_at_norms(s, cause, look_replicas);
}

static bool
look_squares(const symptom_t *s, cause_t *cause, const norms_t *n)
{
    return is_norm(s, cause, n, n->square,
                   "it is the sum of the squares, without the root");
}

bool
hypothesis_norm_not_rooted(const symptom_t *s, cause_t *cause)
{
    return look_at_norms(s, cause, look_squares);
}

static bool
look_kinds(const symptom_t *s, cause_t *cause, const norms_t *n)
{
    return is_norm(s, cause, n, sqrt(n->square), "it is the 2-norm") ||
           is_norm(s, cause, n, n->sum, "it is the 1-norm") ||
           is_norm(s, cause, n, n->largest, "it is the largest magnitude") ||
           (isinf(s->meant->norm_type) &&
            is_norm(s, cause, n, 1,
                    "it is 1: something to the power 1 / infinity"));
}

bool
hypothesis_norm_of_another_kind(const symptom_t *s, cause_t *cause)
{
    return look_at_norms(s, cause, look_kinds);
}

/* ---- clipping ------------------------------------------------------------------ */

static const double *
unclipped(const symptom_t *s)
{
    return symptom_get(s, s->step, FSDP_TRACE_GRAD, -1);
}

static double
max_norm(const symptom_t *s)
{
    double clip = s->meant->grad_clip;
    return isnan(clip) ? s->theirs->grad_clip : clip;
}

/* Each element times the coefficient of its owner, [world_size] or one for all. */
static bool
clipped_by(const symptom_t *s, cause_t *cause, const double *coefficient,
           bool by_owner, double error, const char *text)
{
    const double *grad = unclipped(s);
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        int r = by_owner && s->owner[i] >= 0 ? s->owner[i] : 0;
        c.value[i] = grad[i] * coefficient[r];
        c.bound[i] = fabs(c.value[i]) * (error + 8 * symptom_roundoff(s));
    }
    return candidate_explains(s, &c, cause, "%s", text);
}

static double
coefficient_of(double clip, double norm)
{
    return fmin(1, clip / (norm + 1e-6));
}

static bool
wants_clipped(const symptom_t *s)
{
    return s->phase == FSDP_TRACE_CLIPPED_GRAD && s->copy == NULL &&
           unclipped(s) != NULL;
}

bool
hypothesis_clipped_by_local_norm(const symptom_t *s, cause_t *cause)
{
    double clip = max_norm(s);
    norms_t n;
    if (!wants_clipped(s) || s->owner == NULL || !(clip > 0) ||
        !norms_make(s, &n))
        return false;
    for (int r = 0; r < s->theirs->world_size; r++)
        n.local[r] = coefficient_of(clip, sqrt(n.local[r]));
    bool found = clipped_by(s, cause, n.local, true, error_of_norm(s, &n),
                            "each rank clipped by the norm of what it keeps");
    fsdp_free(n.local);
    return found;
}

bool
hypothesis_not_clipped(const symptom_t *s, cause_t *cause)
{
    const double one = 1;
    return wants_clipped(s) &&
           clipped_by(s, cause, &one, false, 0, "it was not clipped");
}

/* The coefficient is above 1 and was used all the same. */
bool
hypothesis_clipped_though_small(const symptom_t *s, cause_t *cause)
{
    double clip = max_norm(s);
    norms_t n;
    if (!wants_clipped(s) || !(clip > 0) || !norms_make(s, &n))
        return false;
    double c = clip / (sqrt(n.square) + 1e-6), error = error_of_norm(s, &n);
    bool found =
        c > 1 && clipped_by(s, cause, &c, false, error,
                            "it was scaled up to the largest norm that "
                            "is allowed: the coefficient is not kept "
                            "to 1");
    fsdp_free(n.local);
    return found;
}

bool
hypothesis_clipped_twice(const symptom_t *s, cause_t *cause)
{
    double clip = max_norm(s);
    norms_t n;
    if (!wants_clipped(s) || !(clip > 0) || !norms_make(s, &n))
        return false;
    double c = coefficient_of(clip, sqrt(n.square));
    c *= c;
    bool found =
        c < 1 && clipped_by(s, cause, &c, false, 2 * error_of_norm(s, &n),
                            "it was clipped twice");
    fsdp_free(n.local);
    return found;
}
