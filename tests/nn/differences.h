/** \file differences.h  Derivatives without differentiation.
 *
 *  D(h) = (f(x + h) - f(x - h)) / 2h is off by c h^2 + O(h^4), so Richardson's
 *  R(h) = (4 D(h) - D(2h)) / 3 is off by d h^4 + O(h^6) and R(h) - R(2h) by
 *  15 d h^4: fifteen times what R(h) lacks, and the bound used here.  With f
 *  known to r, D(h) is known to r / h, R(h) to (4/3 + 1/6) r / h.
 */
#ifndef TESTS_NN_DIFFERENCES_H
#define TESTS_NN_DIFFERENCES_H

#include "fsdp/module.h"
#include "twin/numbers.h"

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

/* P(|T| > t) = 1e-12 for Student's t of 16 degrees of freedom. */
#define NN_STUDENT 19.95

/** How far rounding takes f of a float64 module.  A rounding moves what a
 *  parameter brings about as a move of the parameter does, so each is moved by a
 *  random part of p u of itself; p = sqrt(16 + longest) as the verdict has it
 *  (tutorials/verdict.md), for the longest sum, which has `longest` terms.  16 runs
 *  with u = 2^-24 give the standard deviation, Student's t a bound that is wrong
 *  once in 10^12 times, 2^-29 that of u = 2^-53; f's own last roundings come on
 *  top. */
static inline double
nn_rounding(nn_function_t f, void *context, fsdp_module_t *module,
            double longest)
{
    enum { RUNS = 16, MOST = 64 };
    fsdp_parameter_t *p[MOST];
    double centre = f(context), square = 0;
    size_t count = fsdp_module_parameters(module, p, MOST);
    for (uint32_t run = 1; run <= RUNS; run++) {
        double *was[MOST];
        for (size_t i = 0; i < count; i++) {
            size_t n = fsdp_parameter_numel(p[i]);
            double *value = p[i]->data;
            was[i] = twin_alloc(n, sizeof **was);
            memcpy(was[i], value, n * sizeof *value);
            for (size_t e = 0; e < n; e++)
                value[e] *= 1 + sqrt(16 + longest) * 0x1p-24 *
                                    twin_random(1000 * run + (uint32_t)i, e);
        }
        square += pow(f(context) - centre, 2) / RUNS;
        for (size_t i = 0; i < count; i++) {
            memcpy(p[i]->data, was[i],
                   fsdp_parameter_numel(p[i]) * sizeof *was[i]);
            fsdp_free(was[i]);
        }
    }
    return NN_STUDENT * 0x1p-29 * sqrt(square) +
           (16 + longest) * 0x1p-53 * fabs(centre);
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
