/* Mistakes that any tensor can have. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

/* ---- a constant factor --------------------------------------------------- */

/* The factor by which theirs is nearest to what it should be. */
static double
best_factor(const symptom_t *s)
{
    double xy = 0, yy = 0;
    for (uint64_t i = 0; i < s->numel; i++)
        if (isfinite(s->is[i]) && isfinite(s->expected[i])) {
            xy += s->is[i] * s->expected[i];
            yy += s->expected[i] * s->expected[i];
        }
    return yy > 0 ? xy / yy : (double)NAN;
}

static candidate_t
scaled(const symptom_t *s, double factor)
{
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        c.value[i] = factor * s->expected[i];
        c.bound[i] = fabs(factor) * s->bound[i] +
                     4 * symptom_roundoff(s) * fabs(c.value[i]);
    }
    return c;
}

/* A factor that has a name; else any, if there are enough numbers for that to
 * mean something. */
bool
hypothesis_factor(const symptom_t *s, cause_t *cause)
{
    const char *name;
    double factor;
    for (int k = 0; (name = symptom_factor(s, k, &factor)) != NULL; k++) {
        if (factor == 1)
            continue;
        candidate_t c = scaled(s, factor);
        if (candidate_explains(
                s, &c, cause,
                "theirs is %.7g times what it should be; that is %s", factor,
                name))
            return true;
    }
    factor = best_factor(s);
    if (!isfinite(factor) || factor == 0 || symptom_count_wrong(s) < 4)
        return false;
    candidate_t c = scaled(s, factor);
    return candidate_explains(s, &c, cause,
                              "theirs is %.7g times what it should be", factor);
}

bool
hypothesis_negated(const symptom_t *s, cause_t *cause)
{
    candidate_t c = scaled(s, -1);
    return candidate_explains(s, &c, cause, "theirs has the other sign");
}

/* ---- order ------------------------------------------------------------------ */

static uint64_t
rows_of(const symptom_t *s)
{
    return s->ndim > 0 ? s->shape[0] : 0;
}

bool
hypothesis_transposed(const symptom_t *s, cause_t *cause)
{
    uint64_t n = rows_of(s);
    if (s->ndim != 2 || n != s->shape[1] || n < 2)
        return false;
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < n; k++) {
            c.value[i * n + k] = s->expected[k * n + i];
            c.bound[i * n + k] = s->bound[k * n + i];
        }
    return candidate_explains(s, &c, cause, "theirs is transposed");
}

/* Rows [0, rows) moved up by `shift`, around the end or with zeros behind it. */
static candidate_t
shifted(const symptom_t *s, uint64_t shift, bool around)
{
    uint64_t rows = rows_of(s), width = s->numel / rows;
    candidate_t c = candidate_make(s);
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t from = (r + shift) % rows;
        bool there = around || r + shift < rows;
        for (uint64_t k = 0; k < width; k++) {
            uint64_t i = r * width + k, o = from * width + k;
            c.value[i] = there ? s->expected[o] : 0;
            c.bound[i] = there ? s->bound[o] : 0;
        }
    }
    return c;
}

bool
hypothesis_rows_shifted(const symptom_t *s, cause_t *cause)
{
    uint64_t rows = rows_of(s);
    if (rows < 3 || rows > 4096)
        return false;
    for (uint64_t shift = 1; shift < rows; shift++)
        for (int around = 0; around < 2; around++) {
            candidate_t c = shifted(s, shift, around);
            bool back = around && shift > rows / 2;
            if (candidate_explains(s, &c, cause,
                                   "rows are shifted: row 0 of theirs is row "
                                   "%lld of what it should be",
                                   back ? (long long)shift - (long long)rows
                                        : (long long)shift))
                return true;
        }
    return false;
}

/* Is row `a` of theirs row `b` of what it should be? */
static bool
same_row(const symptom_t *s, uint64_t a, uint64_t b)
{
    uint64_t width = s->numel / rows_of(s);
    for (uint64_t k = 0; k < width; k++) {
        uint64_t o = b * width + k;
        double d = fabs(s->is[a * width + k] - s->expected[o]);
        if (!(d <= s->bound[o]))
            return false;
    }
    return true;
}

/* The row that row `a` of theirs is, not used before; -1: none. */
static long long
find_row(const symptom_t *s, uint64_t a, const bool *used)
{
    if (!used[a] && same_row(s, a, a))
        return (long long)a;
    for (uint64_t b = 0; b < rows_of(s); b++)
        if (!used[b] && same_row(s, a, b))
            return (long long)b;
    return -1;
}

bool
hypothesis_rows_permuted(const symptom_t *s, cause_t *cause)
{
    uint64_t rows = rows_of(s), moved = 0;
    long long first[2] = {-1, -1};
    if (rows < 2 || rows > 4096 || s->numel < 4)
        return false;
    bool *used = fsdp_calloc(FSDP_MEM_OTHER, rows * sizeof *used);
    bool all = true;
    for (uint64_t a = 0; a < rows && all; a++) {
        long long b = find_row(s, a, used);
        all = b >= 0;
        if (all)
            used[b] = true;
        if (all && (uint64_t)b != a && moved++ == 0) {
            first[0] = (long long)a;
            first[1] = b;
        }
    }
    fsdp_free(used);
    if (!all || moved == 0)
        return false;
    cause->ratio = 1;
    snprintf(cause->text, sizeof cause->text,
             "%llu of %llu rows are at other places: row %lld of theirs is row "
             "%lld of what it should be",
             (unsigned long long)moved, (unsigned long long)rows, first[0],
             first[1]);
    return true;
}

/* ---- old values ------------------------------------------------------------- */

/* What stood there a step before. */
static const double *
old_values(const symptom_t *s)
{
    if (s->step < 1)
        return NULL;
    if (s->phase == FSDP_TRACE_GATHERED_PARAMETER)
        return symptom_get(s, s->step - 2, FSDP_TRACE_PARAMETER, -1);
    if (s->phase == FSDP_TRACE_UNREDUCED_GRAD ||
        s->phase == FSDP_TRACE_REDUCED_GRAD || s->micro < 0)
        return symptom_get(s, s->step - 1, s->phase, s->micro);
    return NULL;
}

/* Exactly them where `all`, else where theirs is wrong. */
static candidate_t
replaced(const symptom_t *s, const double *by, bool all)
{
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        bool here = all || symptom_is_wrong(s, i);
        double old = by != NULL ? by[i] : 0;
        c.value[i] = here ? old : s->expected[i];
        c.bound[i] = here ? 0 : s->bound[i];
    }
    return c;
}

bool
hypothesis_stale(const symptom_t *s, cause_t *cause)
{
    const double *old = old_values(s);
    if (old == NULL)
        return false;
    candidate_t c = replaced(s, old, true);
    return candidate_explains(s, &c, cause,
                              s->phase == FSDP_TRACE_PARAMETER
                                  ? "it was not updated: theirs is what it was "
                                    "before the step"
                                  : "theirs is what it was a step before");
}

/* "rows 24 to 28 (rank 3)" of the wrong elements. */
static void
describe_wrong(const symptom_t *s, char *text, size_t size)
{
    uint64_t first = s->numel, last = 0, rows = rows_of(s);
    for (uint64_t i = 0; i < s->numel; i++)
        if (symptom_is_wrong(s, i)) {
            first = first < i ? first : i;
            last = i;
        }
    uint64_t width = rows > 0 ? s->numel / rows : 1;
    int a = s->owner != NULL ? s->owner[first] : -1;
    int b = s->owner != NULL ? s->owner[last] : -1;
    int n = snprintf(text, size, "%llu elements in rows %llu to %llu",
                     (unsigned long long)symptom_count_wrong(s),
                     (unsigned long long)(first / width),
                     (unsigned long long)(last / width));
    if (a >= 0 && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n,
                 a == b ? ", all of rank %d" : ", of ranks %d to %d", a, b);
}

bool
hypothesis_slice_stale(const symptom_t *s, cause_t *cause)
{
    char where[128];
    const double *old = old_values(s);
    uint64_t wrong = symptom_count_wrong(s);
    if (old == NULL || wrong == 0 || wrong == s->numel)
        return false;
    candidate_t c = replaced(s, old, false);
    describe_wrong(s, where, sizeof where);
    return candidate_explains(
        s, &c, cause, "%s are what they were before: %s", where,
        s->phase == FSDP_TRACE_PARAMETER ? "they were never updated"
                                         : "they were not refreshed");
}

bool
hypothesis_slice_zero(const symptom_t *s, cause_t *cause)
{
    char where[128];
    if (symptom_count_wrong(s) == 0)
        return false;
    candidate_t c = replaced(s, NULL, false);
    describe_wrong(s, where, sizeof where);
    return candidate_explains(s, &c, cause, "%s are zero", where);
}

/* ---- precision -------------------------------------------------------------- */

static bool
representable(const double *x, uint64_t numel, fsdp_dtype_t type)
{
    for (uint64_t i = 0; i < numel; i++)
        if (isfinite(x[i]) && value_round(type, x[i]) != x[i])
            return false;
    return true;
}

/* Every value is one of the narrower type, which the right ones are not.  Bounds
 * are, to first order, proportional to the roundoff. */
bool
hypothesis_lower_precision(const symptom_t *s, cause_t *cause)
{
    static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16, FSDP_FP32};
    for (int t = 0; t < 3; t++) {
        double u = value_roundoff(types[t]);
        if (u <= symptom_roundoff(s) || s->numel < 8 ||
            !representable(s->is, s->numel, types[t]) ||
            representable(s->expected, s->numel, types[t]))
            continue;
        candidate_t c = candidate_make(s);
        for (uint64_t i = 0; i < s->numel; i++) {
            c.value[i] = s->expected[i];
            c.bound[i] = s->bound[i] * (u / symptom_roundoff(s)) +
                         u * fabs(s->expected[i]);
        }
        if (candidate_explains(
                s, &c, cause,
                "every value of theirs is one of %s, and what it "
                "should be is not: it was rounded to that type",
                fsdp_dtype_name(types[t])))
            return true;
    }
    return false;
}

/* ---- dropout ------------------------------------------------------------------ */

/* Elements are 0 or all scaled by one factor above 1. */
bool
hypothesis_dropout(const symptom_t *s, cause_t *cause)
{
    double factor = 0;
    uint64_t zeros = 0;
    if (s->phase != FSDP_TRACE_UNIT_OUTPUT && s->phase != FSDP_TRACE_UNIT_INPUT)
        return false;
    for (uint64_t i = 0; i < s->numel; i++) {
        zeros += s->is[i] == 0 && s->expected[i] != 0;
        if (factor == 0 && s->is[i] != 0 && s->expected[i] != 0)
            factor = s->is[i] / s->expected[i];
    }
    if (zeros == 0 || !(factor > 1))
        return false;
    candidate_t c = scaled(s, factor);
    for (uint64_t i = 0; i < s->numel; i++)
        if (s->is[i] == 0)
            c.value[i] = c.bound[i] = 0;
    return candidate_explains(s, &c, cause,
                              "%.2g of the elements are zero and the others "
                              "%.4g times what they should be: dropout is on",
                              (double)zeros / (double)s->numel, factor);
}
