/** \file differences.h  Derivatives without differentiation.
 *
 *  D(h) = (f(x + h) - f(x - h)) / 2h is off by c h^2 + O(h^4), so Richardson's
 *  R(h) = (4 D(h) - D(2h)) / 3 is off by d h^4 + O(h^6) and R(h) - R(2h) by
 *  15 d h^4: fifteen times what R(h) lacks, and the bound used here.  With f
 *  known to r, D(h) is known to r / h, R(h) to (4/3 + 1/6) r / h.
 */
#ifndef TESTS_NN_DIFFERENCES_H
#define TESTS_NN_DIFFERENCES_H

#include "nn/rounding.h"

typedef double (*nn_function_t)(void *context);

/* A power of two: x + h is exact for the numbers that the tests use. */
#define NN_STEP 0x1p-9

static inline double
nn_central(nn_function_t f, void *context, double *x, double h)
{
    double at = *x;
    *x = at + h;
    double above = f(context);
    *x = at - h;
    double below = f(context);
    *x = at;
    return (above - below) / (2 * h);
}

typedef struct nn_one_output {
    nn_function_t f;
    void *context;
} nn_one_output_t;

static inline void
nn_call(void *context, double *out)
{
    nn_one_output_t *one = context;
    *out = one->f(one->context);
}

/** How far rounding takes f of a float64 module. */
static inline double
nn_rounding(nn_function_t f, void *context, fsdp_module_t *module,
            double longest)
{
    nn_one_output_t one = {f, context};
    double value, bound;
    nn_rounding_of(nn_call, &one, module, longest, 1, &value, &bound);
    return bound;
}

/** df/dx, with its bound; f reads *x and is known to `rounding`. */
static inline bounded_t
nn_derivative(nn_function_t f, void *context, double *x, double rounding)
{
    double h = NN_STEP;
    double d1 = nn_central(f, context, x, h);
    double d2 = nn_central(f, context, x, 2 * h);
    double d4 = nn_central(f, context, x, 4 * h);
    double fine = (4 * d1 - d2) / 3, coarse = (4 * d2 - d4) / 3;
    return (bounded_t){fine, fabs(fine - coarse) + 1.5 * rounding / h};
}

/** Compares a gradient with it.  `sharp`: the largest bound that still tells
 *  something; a wider one is a failure of the test. */
static inline bool
nn_agrees(const char *what, size_t i, double got, bounded_t want, double sharp)
{
    bool good = fabs(got - want.v) <= want.e && want.e <= sharp;
    if (!good)
        fprintf(stderr,
                "%s, element %zu: gradient %.17g, differences %.17g +- %g\n",
                what, i, got, want.v, want.e);
    return good;
}

#endif
