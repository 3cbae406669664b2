/* Bit by bit, or within a derived bound. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/internal.h"
#include "verify/value.h"

/* Bits as an integer that grows with the value; +0 and -0 are both 0. */
static int64_t
ordered_bits(fsdp_dtype_t dtype, double x)
{
    if (dtype == FSDP_FP32) {
        float single = (float)x;
        int32_t bits;
        memcpy(&bits, &single, sizeof bits);
        return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
    }
    if (dtype == FSDP_BF16 || dtype == FSDP_FP16) {
        int32_t code = value_half(dtype, x);
        return code > 0x7fff ? 0x8000 - code : code;
    }
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

double
verify_ulps(fsdp_dtype_t dtype, double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return INFINITY;
    return fabs((double)ordered_bits(dtype, a) -
                (double)ordered_bits(dtype, b));
}

/* The earliest one of a call is kept; of two at the same time, the first. */
static bool
keep_candidate(fsdp_verifier_t *verifier, const place_t *place,
               fsdp_dtype_t dtype, size_t element, double ours, double expected)
{
    fsdp_divergence_t *c = &verifier->candidate;
    if (c->found && verifier->key <= place->key)
        return false;
    verifier->key = place->key;
    *c = (fsdp_divergence_t){
        .found = true,
        .step = verifier->step,
        .micro = place->micro,
        .element = place->element + element,
        .rank = place->rank,
        .ours = ours,
        .expected = expected,
        .ulps = verify_ulps(
            place->ulp_dtype != FSDP_DTYPE_NONE ? place->ulp_dtype : dtype,
            ours, expected),
    };
    snprintf(c->phase, sizeof c->phase, "%s", place->phase);
    snprintf(c->what, sizeof c->what, "%s",
             place->what != NULL ? place->what : "");
    snprintf(c->unit, sizeof c->unit, "%s",
             place->unit != NULL ? place->unit : "");
    snprintf(c->name, sizeof c->name, "%s",
             place->name != NULL ? place->name : "");
    return true;
}

/* IEEE 754 leaves a NaN's sign and payload to the processor, which takes them from
 * whichever operand the compiler put first: two NaNs are one value. */
static bool
both_nan(const void *ours, const void *expected, double a, double b)
{
    return ours != NULL && expected != NULL && isnan(a) && isnan(b);
}

/* Is the difference of element i no more than rounding explains? */
static bool
within_bound(fsdp_verifier_t *verifier, const place_t *place, size_t i,
             double ours, double expected)
{
    if (place->bound == NULL)
        return false;
    double difference = fabs(ours - expected);
    if (difference == 0) /* zeros of two signs */
        return true;
    double ratio = difference / place->bound[place->element + i];
    if (ratio > verifier->of_step.bound_ratio)
        verifier->of_step.bound_ratio = ratio;
    if (ratio > 1 || isnan(ratio))
        return false;
    if (difference > verifier->of_step.largest_difference)
        verifier->of_step.largest_difference = difference;
    return true;
}

static void
compare_element(fsdp_verifier_t *verifier, const place_t *place,
                fsdp_dtype_t dtype, const void *ours, const void *expected,
                size_t i)
{
    size_t size = fsdp_dtype_size(dtype);
    if (ours != NULL && expected != NULL &&
        memcmp((const char *)ours + i * size, (const char *)expected + i * size,
               size) == 0)
        return;
    double a = ours != NULL ? value_get(dtype, ours, i) : NAN;
    double b = expected != NULL ? value_get(dtype, expected, i) : NAN;
    if (both_nan(ours, expected, a, b) ||
        within_bound(verifier, place, i, a, b))
        return;
    verifier->of_step.differing++;
    keep_candidate(verifier, place, dtype, i, a, b);
}

void
verifier_compare(fsdp_verifier_t *verifier, const place_t *place,
                 fsdp_dtype_t dtype, const void *ours, const void *expected,
                 size_t n)
{
    verifier->of_step.compared += n;
    if (ours != NULL && expected != NULL &&
        memcmp(ours, expected, n * fsdp_dtype_size(dtype)) == 0)
        return;
    for (size_t i = 0; i < n; i++)
        compare_element(verifier, place, dtype, ours, expected, i);
}

void
verifier_compare_types(fsdp_verifier_t *verifier, const place_t *place,
                       fsdp_dtype_t ours, fsdp_dtype_t expected)
{
    verifier->of_step.compared++;
    verifier->of_step.differing++;
    if (keep_candidate(verifier, place, FSDP_FP64, 0, NAN, NAN)) {
        verifier->candidate.our_type = ours;
        verifier->candidate.expected_type = expected;
    }
}

void
verifier_settle(fsdp_verifier_t *verifier)
{
    if (verifier->candidate.found && !verifier->total.first.found)
        verifier->total.first = verifier->candidate;
    verifier->candidate.found = false;
}
