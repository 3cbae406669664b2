/* Sums over ranks and micro-batches: the exact sum of their own terms, and how
 * far any order of adding them may be from it (Higham, Accuracy and Stability,
 * 4.2): gamma_k sum|terms| / divisor, k the roundings that one term meets. */

#include <limits.h>
#include <math.h>
#include <string.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"

int
verdict_ranks(const fsdp_trace_about_t *about)
{
    int n = about->replicas * about->shards;
    if (n > 0)
        return n;
    return about->tensor > 1 ? about->world_size / about->tensor
                             : about->world_size;
}

/* By which a trace says that it divides; NaN: unknown. */
static double
own_divisor(const fsdp_trace_about_t *about)
{
    return isnan(about->divide_factor) ? (double)verdict_ranks(about)
                                       : about->divide_factor;
}

/* The gradient of the step is the sum over M micro-batches times scale / divisor:
 * that factor, times M, is 1 for the mean, and theirs is to be ours. */
double
verdict_divisor(const judging_t *j)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    double M = (double)verdict_ranks(b) * b->micro_batches;
    double our_M = (double)verdict_ranks(a) * a->micro_batches;
    double mean = our_M * a->loss_scale / own_divisor(a);
    double divisor = M * b->loss_scale / mean;
    return isfinite(divisor) && divisor > 0 ? divisor : own_divisor(b);
}

/* ---- which terms ------------------------------------------------------------------ */

/** Terms: micro-batches first, first + stride, ..., `count` of them. */
typedef struct terms {
    fsdp_trace_phase_t phase;
    int first, stride, count;
} terms_t;

static bool
syncs_each(const fsdp_trace_about_t *about)
{
    return about->micro_batches == 1 || about->gradient_sync == FSDP_SYNC_EACH;
}

/* Are there enough settings to know? */
static bool
dealing_known(const fsdp_trace_about_t *about)
{
    return about->micro_batches > 0 &&
           about->micro_batches <= INT_MAX / verdict_ranks(about) &&
           (about->micro_batches == 1 || about->gradient_sync >= 0);
}

/* Of the reduced gradient under `micro`. */
static bool
terms_of_reduced(const fsdp_trace_about_t *about, int micro, terms_t *terms)
{
    int N = verdict_ranks(about);
    if (!dealing_known(about) || micro / N >= about->micro_batches)
        return false;
    int M = N * about->micro_batches;
    int n = syncs_each(about) ? N : M;
    *terms = (terms_t){FSDP_TRACE_UNREDUCED_GRAD, micro - n + 1, 1, n};
    return terms->first >= 0 && terms->first % n == 0;
}

static bool
terms_of_grad(const fsdp_trace_about_t *about, bool unreduced, terms_t *terms)
{
    int N = verdict_ranks(about), m = about->micro_batches;
    if (!dealing_known(about))
        return false;
    int M = N * m;
    if (unreduced)
        *terms = (terms_t){FSDP_TRACE_UNREDUCED_GRAD, 0, 1, M};
    else if (syncs_each(about))
        *terms = (terms_t){FSDP_TRACE_REDUCED_GRAD, N - 1, N, m};
    else
        *terms = (terms_t){FSDP_TRACE_REDUCED_GRAD, M - 1, 1, 1};
    return true;
}

/* ---- the sum ------------------------------------------------------------------------ */

/* Adds all terms to value and their magnitudes to bound; false: one is missing.
 * *type becomes that of the terms. */
static bool
add_terms(judging_t *j, const record_t *record, const terms_t *terms,
          expected_t *expected, fsdp_dtype_t *type)
{
    for (int k = 0; k < terms->count; k++) {
        const record_t *term =
            verdict_theirs(j, record, record->step, terms->phase,
                           terms->first + k * terms->stride);
        double *values = verdict_read(j, j->theirs, term);
        if (values == NULL)
            return false;
        *type = term->dtype;
        for (uint64_t i = 0; i < record->numel; i++) {
            double sum = k == 0 ? values[i] : expected->value[i] + values[i];
            expected->value[i] = sum;
            expected->bound[i] += fabs(values[i]);
        }
        fsdp_free(values);
    }
    return true;
}

static bool
is_power_of_two(double x)
{
    int exponent;
    return frexp(fabs(x), &exponent) == 0.5;
}

/* Places of averaging where something is rounded: by 1 / S and 1 / R, or before
 * and after the sum, each a constant and a product. */
static int
roundings_of_averaging(const judging_t *j)
{
    const fsdp_trace_about_t *about = j->their_about;
    bool exact = is_power_of_two(verdict_ranks(about)) &&
                 is_power_of_two(verdict_divisor(j)) &&
                 is_power_of_two(own_divisor(about));
    return exact ? 0 : about->replicas > 1 ? 6 : 4;
}

/* The type of the sums over ranks: what ours says is meant, if it computes in the
 * same type. */
static fsdp_dtype_t
type_of_sums(const judging_t *j, fsdp_dtype_t terms)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    bool meant = a->has_precision && a->dtype == b->dtype &&
                 a->precision.param_dtype == b->precision.param_dtype;
    const fsdp_trace_about_t *about = meant ? a : b;
    fsdp_dtype_t asked = about->precision.reduce_dtype;
    bool said = about->has_precision && value_is_floating(asked);
    return said ? asked : terms;
}

/* 1 + the relative error of k roundings to the type. */
static double
growth(double k, fsdp_dtype_t type)
{
    return 1 + verdict_gamma(k, value_roundoff(type));
}

/* Of unreduced gradients: their cast and the sums to T, FSDP1's own sums over
 * micro-batches to the gradient's type, the cast and the sum over micro-batches
 * to the parameter's. */
static double
error_of_reduction(const judging_t *j, fsdp_dtype_t terms, fsdp_dtype_t result,
                   int count, double *smallest)
{
    const fsdp_trace_about_t *about = j->their_about;
    fsdp_dtype_t T = type_of_sums(j, terms);
    int m = about->micro_batches;
    double k = count - 1 + roundings_of_averaging(j) + (T != terms);
    double error = growth(k, T);
    int own = m - 1 + (T != result);
    error *= growth(own, result);
    *smallest = (k + 1) * value_smallest(T) + own * value_smallest(result);
    bool low = !syncs_each(about) && about->api != NULL &&
               strcmp(about->api, "fsdp1") == 0;
    if (low) /* added up in the type of the backward */
        error *= growth(m - 1, terms);
    return error - 1;
}

static void
finish(expected_t *expected, uint64_t numel, double divisor, double error,
       double smallest)
{
    for (uint64_t i = 0; i < numel; i++) {
        if (isnan(expected->value[i]) && isnan(expected->bound[i])) {
            expected->bound[i] = INFINITY; /* nobody has a term, or it is NaN */
            continue;
        }
        expected->value[i] /= divisor;
        expected->bound[i] *= error / fabs(divisor);
        if (expected->bound[i] > 0 || smallest > 0)
            expected->bound[i] += smallest / fmin(1, fabs(divisor));
    }
}

static bool
expect_sum(judging_t *j, const record_t *record, const terms_t *terms,
           const char *rule, expected_t *expected)
{
    fsdp_dtype_t type = FSDP_DTYPE_NONE;
    double smallest = 0, divisor = 1, error;
    expected_make(expected, record, rule);
    if (!add_terms(j, record, terms, expected, &type) ||
        !value_is_floating(type) || !value_is_floating(record->dtype)) {
        expected_free(expected);
        return false;
    }
    if (terms->phase == FSDP_TRACE_UNREDUCED_GRAD) {
        divisor = verdict_divisor(j);
        error =
            error_of_reduction(j, type, record->dtype, terms->count, &smallest);
    } else { /* one is only cast, if at all */
        int k = terms->count - 1 + (type != record->dtype);
        error = growth(k, record->dtype) - 1;
        smallest = k * value_smallest(record->dtype);
    }
    error *= 1 + 0x1p-40; /* of this arithmetic itself */
    if (terms->count > 1 && record->dtype == FSDP_FP64)
        error *= 2;
    finish(expected, record->numel, divisor, error, smallest);
    return true;
}

bool
verdict_expect_reduced(judging_t *j, const record_t *record,
                       expected_t *expected)
{
    terms_t terms;
    return terms_of_reduced(j->their_about, record->micro, &terms) &&
           expect_sum(j, record, &terms, "the mean of all ranks' own gradients",
                      expected);
}

bool
verdict_expect_grad(judging_t *j, const record_t *record, bool second,
                    expected_t *expected)
{
    terms_t terms;
    return terms_of_grad(j->their_about, second, &terms) &&
           expect_sum(j, record, &terms,
                      second ? "the mean of all ranks' own gradients"
                             : "the sum of their reduced gradients",
                      expected);
}
