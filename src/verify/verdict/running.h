/** \file running.h  Floor 6, verify: values that carry how wrong they may be.
 *
 *  Running error analysis (Wilkinson; Higham, Accuracy and Stability, 3.3): each
 *  operation adds the errors that come in, and its own rounding, u times the
 *  result's magnitude.  So a formula gives its own bound, element by element,
 *  cancellation included.  `tiny` is for what underflows.
 */
#ifndef FSDP_VERIFY_VERDICT_RUNNING_H
#define FSDP_VERIFY_VERDICT_RUNNING_H

#include <math.h>

#include "verify/value.h"

typedef struct running {
    double v, e; /**< |computed - v| <= e */
} running_t;

/** The type that is computed in. */
typedef struct rounding {
    double u, tiny;
} rounding_t;

static inline rounding_t
rounding_of(fsdp_dtype_t dtype)
{
    return (rounding_t){value_roundoff(dtype), value_smallest(dtype)};
}

/** As it stands in a trace. */
static inline running_t
running_exact(double x)
{
    return (running_t){x, 0};
}

/** A constant of the formula, rounded to the type before it is used. */
static inline running_t
running_constant(rounding_t r, double x)
{
    return (running_t){x, r.u * fabs(x) + r.tiny};
}

static inline running_t
running_add(rounding_t r, running_t a, running_t b)
{
    double v = a.v + b.v, e = a.e + b.e;
    return (running_t){v, e + r.u * (fabs(v) + e)};
}

static inline running_t
running_mul(rounding_t r, running_t a, running_t b)
{
    double v = a.v * b.v;
    double e = fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e;
    return (running_t){v, e + r.u * (fabs(v) + e) + r.tiny};
}

static inline running_t
running_div(rounding_t r, running_t a, running_t b)
{
    double v = a.v / b.v, left = fabs(b.v) - b.e;
    double e = left > 0 ? (a.e + fabs(v) * b.e) / left : (double)INFINITY;
    return (running_t){v, e + r.u * (fabs(v) + e) + r.tiny};
}

static inline running_t
running_sqrt(rounding_t r, running_t a)
{
    double v = sqrt(a.v), e = v - sqrt(fmax(0, a.v - a.e));
    e = fmax(e, sqrt(a.v + a.e) - v);
    return (running_t){v, e + r.u * (v + e) + r.tiny};
}

#endif
