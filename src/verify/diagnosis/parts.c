/* Parts that are put together wrongly: rows of one rank that begin elsewhere,
 * pieces in another order with their padding, a buffer that something else was
 * written to. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

static uint64_t
rows_of(const symptom_t *s)
{
    return s->ndim > 0 ? s->shape[0] : 0;
}

static bool
is_wrong_row(const symptom_t *s, uint64_t row)
{
    uint64_t width = s->numel / rows_of(s);
    for (uint64_t k = 0; k < width; k++)
        if (symptom_is_wrong(s, row * width + k))
            return true;
    return false;
}

/* ---- rows of some ranks, shifted ----------------------------------------------- */

/* The wrong rows are those `shift` further on, zero where there are none; the
 * others are what they should be. */
static candidate_t
wrong_rows_shifted(const symptom_t *s, int64_t shift)
{
    uint64_t rows = rows_of(s), width = s->numel / rows;
    candidate_t c = candidate_make(s);
    for (uint64_t r = 0; r < rows; r++) {
        int64_t from = (int64_t)r + (is_wrong_row(s, r) ? shift : 0);
        bool there = from >= 0 && from < (int64_t)rows;
        for (uint64_t k = 0; k < width; k++) {
            uint64_t i = r * width + k, o = (uint64_t)from * width + k;
            c.value[i] = there ? s->expected[o] : 0;
            c.bound[i] = there ? s->bound[o] : 0;
        }
    }
    return c;
}

bool
hypothesis_part_shifted(const symptom_t *s, cause_t *cause)
{
    uint64_t rows = rows_of(s), first = 0, last = 0, count = 0;
    if (rows < 4 || rows > 4096 || s->numel < 8)
        return false;
    for (uint64_t r = 0; r < rows; r++)
        if (is_wrong_row(s, r)) {
            first = count++ == 0 ? r : first;
            last = r;
        }
    if (count < 2 || count == rows)
        return false;                  /* the whole: rows-shifted */
    int64_t most = (int64_t)count / 2; /* more would be zeros, mostly */
    for (int64_t shift = -most; shift <= most; shift++) {
        candidate_t c = wrong_rows_shifted(s, shift);
        if (shift == 0)
            candidate_free(&c);
        else if (candidate_explains(
                     s, &c, cause,
                     "rows %llu to %llu are those %lld further on: the part of "
                     "a rank begins at another row",
                     (unsigned long long)first, (unsigned long long)last,
                     (long long)shift))
            return true;
    }
    return false;
}

/* ---- pieces in another order, their padding with them ---------------------------- */

/* Is row `a` of theirs row `b` of what it should be? */
static bool
same_row(const symptom_t *s, uint64_t a, uint64_t b)
{
    uint64_t width = s->numel / rows_of(s);
    for (uint64_t k = 0; k < width; k++) {
        double d = fabs(s->is[a * width + k] - s->expected[b * width + k]);
        if (!(d <= s->bound[b * width + k]))
            return false;
    }
    return true;
}

static bool
zero_row(const symptom_t *s, uint64_t a)
{
    uint64_t width = s->numel / rows_of(s);
    for (uint64_t k = 0; k < width; k++)
        if (s->is[a * width + k] != 0)
            return false;
    return true;
}

/* The row that row `a` of theirs is, the one after `near` if that is it; -1: it is
 * zero; -2: none. */
static int64_t
row_from(const symptom_t *s, uint64_t a, int64_t near)
{
    uint64_t rows = rows_of(s);
    uint64_t next = (uint64_t)(near + 1);
    if (next < rows && same_row(s, a, next))
        return (int64_t)next;
    for (uint64_t b = 0; b < rows; b++)
        if (same_row(s, a, b))
            return (int64_t)b;
    return zero_row(s, a) ? -1 : -2;
}

bool
hypothesis_pieces_moved(const symptom_t *s, cause_t *cause)
{
    uint64_t rows = rows_of(s), moved = 0, zero = 0, first = 0;
    int64_t from = -1, first_from = 0;
    cause_t shift;
    if (rows < 3 || rows > 4096 || s->numel / rows < 2 || s->copy != NULL)
        return false;
    if (hypothesis_rows_shifted(s, &shift) ||
        hypothesis_part_shifted(s, &shift) ||
        hypothesis_rows_permuted(s, &shift))
        return false; /* which says more */
    for (uint64_t a = 0; a < rows; a++) {
        int64_t b = row_from(s, a, from);
        if (b == -2)
            return false;
        zero += b == -1;
        if (b >= 0 && b != (int64_t)a && moved++ == 0) {
            first = a;
            first_from = b;
        }
        from = b;
    }
    if (moved < 2 || 2 * zero > rows)
        return false;
    cause->ratio = 1;
    snprintf(cause->text, sizeof cause->text,
             "%llu of %llu rows are at other places (row %llu of theirs is row "
             "%lld of what it should be) and %llu are zero: pieces were put "
             "together in another order, with their padding",
             (unsigned long long)moved, (unsigned long long)rows,
             (unsigned long long)first, (long long)first_from,
             (unsigned long long)zero);
    return true;
}

/* ---- another tensor's values ------------------------------------------------------ */

static bool
of_parameters(fsdp_trace_phase_t phase)
{
    return phase == FSDP_TRACE_GATHERED_PARAMETER ||
           phase == FSDP_TRACE_UNREDUCED_GRAD ||
           phase == FSDP_TRACE_REDUCED_GRAD || phase == FSDP_TRACE_GRAD ||
           phase == FSDP_TRACE_PARAMETER;
}

static int
by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool
has(const double *sorted, uint64_t count, double x)
{
    return count > 0 && bsearch(&x, sorted, count, sizeof x, by_size) != NULL;
}

/* Those of parameter p that are numbers and not zero; the caller frees. */
static double *
values_of(const symptom_t *s, int p, uint64_t *count)
{
    uint64_t numel = 0;
    const double *x = s->get(s->context, false, s->step, s->phase, s->micro,
                             s->theirs->parameter[p].name, -1, &numel);
    double *out = NULL;
    *count = 0;
    if (x == NULL || strcmp(s->theirs->parameter[p].name, s->name) == 0)
        return NULL;
    out = fsdp_alloc(FSDP_MEM_OTHER, (numel > 0 ? numel : 1) * sizeof *out);
    for (uint64_t i = 0; i < numel; i++)
        if (isfinite(x[i]) && x[i] != 0)
            out[(*count)++] = x[i];
    if (*count > 0)
        qsort(out, *count, sizeof *out, by_size);
    return out;
}

/* Marks the wrong elements that parameter p has, returns how many. */
static uint64_t
mark(const symptom_t *s, int p, bool *found)
{
    uint64_t count, marked = 0;
    double *values = values_of(s, p, &count);
    for (uint64_t i = 0; values != NULL && i < s->numel; i++)
        if (symptom_is_wrong(s, i) && has(values, count, s->is[i])) {
            found[i] = true;
            marked++;
        }
    fsdp_free(values);
    return marked;
}

/* All values that are wrong stand, in every bit, in other tensors of the same
 * phase; padding's zeros may be among them.  By chance that happens to one value
 * of 24 bits, not to eight. */
bool
hypothesis_of_other_tensor(const symptom_t *s, cause_t *cause)
{
    uint64_t wrong = symptom_count_wrong(s), missing = 0, zeros = 0, most = 0;
    const char *name = NULL;
    if (!of_parameters(s->phase) || wrong < 8 ||
        !(symptom_roundoff(s) <= 0x1p-24) || s->copy != NULL)
        return false;
    bool *found = fsdp_calloc(FSDP_MEM_OTHER, s->numel * sizeof *found);
    for (int p = 0; p < s->theirs->num_parameters; p++) {
        uint64_t marked = mark(s, p, found);
        if (marked > most) {
            most = marked;
            name = s->theirs->parameter[p].name;
        }
    }
    for (uint64_t i = 0; i < s->numel; i++) {
        zeros += symptom_is_wrong(s, i) && s->is[i] == 0;
        missing += symptom_is_wrong(s, i) && s->is[i] != 0 && !found[i];
    }
    fsdp_free(found);
    if (name == NULL || missing > 0 || wrong - zeros < 8)
        return false;
    cause->ratio = 0;
    snprintf(
        cause->text, sizeof cause->text,
        "the %llu elements that are wrong are those of other tensors, %llu "
        "of them of %s: its memory was used for another before it was "
        "read",
        (unsigned long long)wrong, (unsigned long long)most, name);
    return true;
}
