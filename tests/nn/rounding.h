/** \file rounding.h  How far rounding takes what a float64 module computes, by
 *  measuring it.
 *
 *  A rounding moves what a parameter brings about as a move of the parameter does,
 *  so each is moved by a random part of p u of itself; p = sqrt(16 + longest) as
 *  the verdict has it (tutorials/verdict.md), for sums of `longest` terms at most.
 *  16 runs with u = 2^-24 give each output's standard deviation, Student's t a
 *  bound that is wrong once in 10^12 times, 2^-29 that of u = 2^-53; the output's
 *  own last roundings come on top.
 */
#ifndef TESTS_NN_ROUNDING_H
#define TESTS_NN_ROUNDING_H

#include <math.h>
#include <string.h>

#include "fsdp/module.h"
#include "twin/numbers.h"

/** Sets out[n] from the parameters, which it may change. */
typedef void (*nn_outputs_t)(void *context, double *out);

enum { NN_RUNS = 16, NN_MOST_PARAMETERS = 64 };
/* P(|T| > t) = 1e-12 for Student's t of 16 degrees of freedom. */
#define NN_STUDENT 19.95

/* The whole parameters one after another; `back`: into the module. */
static inline void
nn_copy_parameters(fsdp_module_t *module, double *all, bool back)
{
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    size_t count = fsdp_module_parameters(module, p, NN_MOST_PARAMETERS);
    for (size_t i = 0; i < count; all += fsdp_parameter_numel(p[i++])) {
        size_t bytes = fsdp_parameter_numel(p[i]) * sizeof *all;
        memcpy(back ? p[i]->data : all, back ? all : p[i]->data, bytes);
    }
}

static inline size_t
nn_count_parameters(fsdp_module_t *module)
{
    fsdp_parameter_t *p[NN_MOST_PARAMETERS];
    size_t count = fsdp_module_parameters(module, p, NN_MOST_PARAMETERS), n = 0;
    for (size_t i = 0; i < count; i++) {
        fsdp_parameter_data(p[i]);
        n += fsdp_parameter_numel(p[i]);
    }
    return n;
}

/** out[n], and a bound[n] of how far another order of the same float64 operations
 *  may be away.  Leaves the parameters as they were. */
static inline void
nn_rounding_of(nn_outputs_t f, void *context, fsdp_module_t *module,
               double longest, size_t n, double *out, double *bound)
{
    size_t numel = nn_count_parameters(module);
    double *init = twin_alloc(numel, sizeof *init);
    double *moved = twin_alloc(numel, sizeof *moved);
    double *other = twin_alloc(n, sizeof *other);
    double p = sqrt(16 + longest);
    nn_copy_parameters(module, init, false);
    f(context, out);
    for (size_t i = 0; i < n; i++)
        bound[i] = 0;
    for (uint32_t run = 1; run <= NN_RUNS; run++) {
        for (size_t i = 0; i < numel; i++)
            moved[i] = init[i] * (1 + p * 0x1p-24 * twin_random(run, i));
        nn_copy_parameters(module, moved, true);
        f(context, other);
        for (size_t i = 0; i < n; i++)
            bound[i] += (other[i] - out[i]) * (other[i] - out[i]) / NN_RUNS;
    }
    for (size_t i = 0; i < n; i++)
        bound[i] = NN_STUDENT * 0x1p-29 * sqrt(bound[i]) +
                   (16 + longest) * 0x1p-53 * fabs(out[i]);
    nn_copy_parameters(module, init, true);
    fsdp_free(init);
    fsdp_free(moved);
    fsdp_free(other);
}

#endif
