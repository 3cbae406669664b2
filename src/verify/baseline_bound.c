/* The order `mpi` is whatever MPI does, so a sum is held to a derived bound:
 * |d| <= 2 gamma_n sum|terms| (Higham, Accuracy and Stability, section 4.2). */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

/* gamma_n = n u / (1 - n u), u the unit roundoff. */
static double
gamma_of(double n, double u)
{
    return n * u / (1 - n * u);
}

void
baseline_add_magnitude(verified_t *param, fsdp_dtype_t type, const void *term)
{
    for (size_t i = 0; param->magnitude_of_j != NULL && i < param->numel; i++)
        param->magnitude_of_j[i] += fabs(value_get(type, term, i));
}

/* One of the places of averaging.h: its result is rounded, and its constant if
 * the type does not have it. */
static int
roundings_of(fsdp_dtype_t type, double constant)
{
    if (constant == 1)
        return 0;
    return value_round(type, constant) == constant ? 1 : 2;
}

/* The most roundings that a term meets in the type of the sums: the additions
 * over ranks and, if they come first, over micro-batches, and the averaging. */
static int
roundings(const fsdp_verifier_t *verifier, const verified_t *param)
{
    const fsdp_verify_options_t *o = &verifier->options;
    const averaging_t *a = &param->averaging;
    const double constants[] = {a->times,        a->over,
                                a->over_shards,  a->times_replica,
                                a->over_replica, a->over_all};
    int count = param->shards + verifier->replicas - 2;
    if (o->gradient_sync != FSDP_SYNC_EACH)
        count += o->micro_batches - 1;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        count += roundings_of(param->summed, constants[i]);
    return count > 0 ? count : 1;
}

/* Those in the parameter's type: the cast, and additions over micro-batches. */
static int
own_roundings(const fsdp_verifier_t *verifier, const verified_t *param,
              bool of_step)
{
    const fsdp_verify_options_t *o = &verifier->options;
    int count = param->summed != param->dtype;
    if (of_step && o->gradient_sync == FSDP_SYNC_EACH)
        count += o->micro_batches - 1;
    return count;
}

/* Each of the two sums is within the relative error `far` of the exact one,
 * times sum|terms| / divisor, by the roundings in the two types.  What
 * underflows adds half of the smallest number.  The last line makes up for the
 * rounding of the bound itself. */
double *
baseline_bound(const fsdp_verifier_t *verifier, const verified_t *param,
               bool of_step)
{
    const double *magnitude =
        of_step ? param->magnitude : param->magnitude_of_j;
    if (magnitude == NULL)
        return NULL;
    double n = roundings(verifier, param);
    double own = own_roundings(verifier, param, of_step);
    double a = gamma_of(n, value_roundoff(param->summed));
    double b = gamma_of(own, value_roundoff(param->dtype));
    double far = a + b + a * b;
    double divisor = fabs(averaging_total(&param->averaging));
    double smallest = n * (1 + own) * value_smallest(param->summed) +
                      own * value_smallest(param->dtype);
    double *bound = fsdp_alloc(FSDP_MEM_BASELINE, param->numel * sizeof *bound);
    smallest /= fmin(1, divisor);
    for (size_t i = 0; i < param->numel; i++) {
        bound[i] = 2 * far * magnitude[i] / divisor + smallest;
        bound[i] *= 1 + gamma_of(n + own + 8, 0x1p-53);
    }
    return bound;
}

void
baseline_end_micro_batch(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        if (param->magnitude == NULL || !param->was_reduced)
            continue;
        for (size_t i = 0; i < param->numel; i++) {
            param->magnitude[i] += param->magnitude_of_j[i];
            param->magnitude_of_j[i] = 0;
        }
    }
}

void
baseline_end_step(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        if (param->magnitude != NULL)
            memset(param->magnitude, 0, param->numel * sizeof(double));
    }
}

void
baseline_adopt(verified_t *param, const void *grad)
{
    memcpy(param->grad, grad, param->numel * fsdp_dtype_size(param->dtype));
}
