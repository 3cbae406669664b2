/* The norm of their gradients, and their gradients times the coefficient of
 * clipping.  PyTorch: torch/nn/utils/clip_grad.py. */

#include <math.h>

#include "fsdp/exact_sum.h"
#include "verify/value.h"
#include "verify/verdict/internal.h"
#include "verify/verdict/running.h"

/* ---- the norm ------------------------------------------------------------- */

/** The gradients of a step, all of them. */
typedef struct gradients {
    double norm;
    double numel;
    int count;
    fsdp_dtype_t dtype; /**< the coarsest */
} gradients_t;

/* Every parameter has a gradient, or seems to have had none. */
static bool
has_all_gradients(const judging_t *j, long step)
{
    const fsdp_trace_about_t *about = j->their_about;
    bool before = false; /* gradients of micro-batches were recorded */
    for (size_t i = 0; i < j->verdict.num_tensors; i++) {
        const record_t *r = j->tensor[i].theirs;
        if (r->step != step || (r->phase != FSDP_TRACE_UNREDUCED_GRAD &&
                                r->phase != FSDP_TRACE_REDUCED_GRAD))
            continue;
        before = true;
        if (fsdp_trace_find(j->theirs, step, FSDP_TRACE_GRAD, -1, r->name) ==
            NULL)
            return false;
    }
    for (int p = 0; p < about->num_parameters && !before; p++)
        if (fsdp_trace_find(j->theirs, step, FSDP_TRACE_GRAD, -1,
                            about->parameter[p].name) == NULL)
            return false;
    return about->num_parameters > 0;
}

/* Which norm is meant: that by which ours clips, if it does. */
static double
norm_type(const judging_t *j)
{
    bool ours = j->our_about->grad_clip > 0;
    return ours ? j->our_about->norm_type : j->their_about->norm_type;
}

static double
norm_of_array(const double *x, uint64_t numel, double type)
{
    fsdp_exact_sum_t sum;
    double largest = 0;
    fsdp_exact_sum_clear(&sum);
    if (type == 2)
        fsdp_exact_sum_add_squares_f64(&sum, x, numel);
    else if (type == 1)
        fsdp_exact_sum_add_magnitudes_f64(&sum, x, numel);
    else
        for (uint64_t i = 0; i < numel; i++)
            largest = fmax(largest, fabs(x[i]));
    return type == 2 || type == 1 ? fsdp_exact_sum_round(&sum) : largest;
}

/* Sums of squares or magnitudes, or the largest; false: something is missing. */
static bool
take_gradients(judging_t *j, long step, gradients_t *all)
{
    double type = norm_type(j), total = 0;
    *all = (gradients_t){.dtype = FSDP_FP64};
    if ((type != 1 && type != 2 && !isinf(type)) || !has_all_gradients(j, step))
        return false;
    for (int p = 0; p < j->their_about->num_parameters; p++) {
        const record_t *r =
            fsdp_trace_find(j->theirs, step, FSDP_TRACE_GRAD, -1,
                            j->their_about->parameter[p].name);
        double *values = verdict_read(j, j->theirs, r);
        if (values == NULL)
            continue; /* it has none */
        double part = norm_of_array(values, r->numel, type);
        fsdp_free(values);
        if (isnan(part))
            return false;
        total = isinf(type) ? fmax(total, part) : total + part;
        all->numel += (double)r->numel;
        all->count++;
        if (value_roundoff(r->dtype) > value_roundoff(all->dtype))
            all->dtype = r->dtype;
    }
    all->norm = type == 2 ? sqrt(total) : total;
    return all->count > 0 && j->status == FSDP_OK;
}

static double
error_of_norm(const judging_t *j, const gradients_t *all)
{
    return isinf(norm_type(j))
               ? 0
               : verdict_error_of_norm(all->numel, all->count,
                                       j->their_about->world_size, all->dtype);
}

bool
verdict_expect_norm(judging_t *j, const record_t *record, expected_t *expected)
{
    gradients_t all;
    if (record->numel != 1 || !value_is_floating(record->dtype) ||
        !take_gradients(j, record->step, &all))
        return false;
    expected_make(expected, record, "the norm of their own gradients");
    expected->value[0] = all.norm;
    expected->bound[0] = error_of_norm(j, &all) * all.norm +
                         (isinf(norm_type(j)) ? 0 : 0x1p-149);
    return true;
}

static bool
all_finite(judging_t *j, const record_t *record)
{
    double *values = verdict_read(j, j->theirs, record);
    bool finite = true;
    for (uint64_t i = 0; values != NULL && finite && i < record->numel; i++)
        finite = !isinf(values[i]) && !isnan(values[i]);
    fsdp_free(values);
    return finite;
}

bool
verdict_is_finite(judging_t *j, long step)
{
    if (j->finite_step == step)
        return j->is_finite;
    j->finite_step = step;
    j->is_finite = true;
    for (size_t i = 0; j->is_finite && i < j->verdict.num_tensors; i++) {
        const record_t *r = j->tensor[i].theirs;
        if (r->phase == FSDP_TRACE_GRAD && r->step == step)
            j->is_finite = all_finite(j, r);
    }
    if (!j->is_finite)
        verdict_note(j,
                     "step %ld has gradients that are infinite or no numbers: "
                     "whether it should be left out is not judged",
                     step);
    return j->is_finite;
}

/* ---- clipping ---------------------------------------------------------------- */

/* The norm that they had, or that they should have had. */
static bool
find_norm(judging_t *j, long step, running_t *norm)
{
    const record_t *record =
        fsdp_trace_find(j->theirs, step, FSDP_TRACE_NORM, -1, "norm");
    double *values = record != NULL && record->numel == 1
                         ? verdict_read(j, j->theirs, record)
                         : NULL;
    gradients_t all;
    if (values != NULL)
        *norm = running_exact(values[0]);
    else if (take_gradients(j, step, &all))
        *norm = (running_t){all.norm, error_of_norm(j, &all) * all.norm};
    else
        return false;
    fsdp_free(values);
    return !isnan(norm->v);
}

/* The same, kept for the next parameter of the step. */
static bool
norm_of_step(judging_t *j, long step, running_t *norm)
{
    if (j->norm_step != step) {
        running_t found = {0, 0};
        j->norm_known = find_norm(j, step, &found);
        j->norm_step = step;
        j->norm = found.v;
        j->norm_error = found.e;
    }
    *norm = (running_t){j->norm, j->norm_error};
    return j->norm_known;
}

/* What is asked for: by ours, else by theirs; 0: nothing, also if neither says. */
static double
clip_of(const judging_t *j)
{
    double clip = isnan(j->our_about->grad_clip) ? j->their_about->grad_clip
                                                 : j->our_about->grad_clip;
    return isnan(clip) ? 0 : clip;
}

bool
verdict_clip_coefficient(judging_t *j, long step, fsdp_dtype_t dtype,
                         double *value, double *error)
{
    rounding_t r = rounding_of(dtype);
    running_t norm;
    double clip = clip_of(j);
    *value = 1;
    *error = 0;
    if (clip == 0)
        return true;
    if (!norm_of_step(j, step, &norm))
        return false;
    running_t total = running_add(r, norm, running_constant(r, 1e-6));
    running_t c = running_div(r, running_constant(r, clip), total);
    c.e += r.u * fabs(c.v); /* PyTorch's is a product with the reciprocal */
    *value = fmin(1, c.v);
    *error = c.v - c.e < 1 ? c.e : 0;
    return true;
}

bool
verdict_expect_clipped(judging_t *j, const record_t *record,
                       expected_t *expected)
{
    double c, error;
    double *grad = verdict_read(
        j, j->theirs,
        verdict_theirs(j, record, record->step, FSDP_TRACE_GRAD, -1));
    bool known =
        value_is_floating(record->dtype) && grad != NULL &&
        verdict_clip_coefficient(j, record->step, record->dtype, &c, &error);
    if (known) {
        rounding_t r = rounding_of(record->dtype);
        expected_make(expected, record,
                      "their own gradient, clipped by their own norm");
        for (uint64_t i = 0; i < record->numel; i++) {
            running_t x =
                running_mul(r, running_exact(grad[i]), (running_t){c, error});
            expected->value[i] = x.v;
            expected->bound[i] = c == 1 && error == 0 ? 0 : 2 * x.e;
            if (isnan(x.v))
                expected->bound[i] = INFINITY;
        }
    }
    fsdp_free(grad);
    return known;
}
