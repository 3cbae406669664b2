/* PyTorch: torch/nn/utils/clip_grad.py, clip_grad_norm_(), get_total_norm() and
 * clip_grads_with_norm_().  There each tensor's norm is rounded, then the norm
 * of those; here all elements go into one exact sum, which is rounded once. */
#include "fsdp/optim.h"

#include <math.h>

#include "fsdp/exact_sum.h"
#include "fsdp/fault.h"
#include "fsdp/offload.h"
#include "nn/ops_internal.h"
#include "optim/gradients.h"
#include "optim/parameters.h"

/* The parameters, this rank's part of them, and what is known so far of some of
 * their elements: a sum, or a maximum. */
typedef struct grads {
    fsdp_parameter_t **parameter;
    fsdp_local_t *local;
    size_t count;
    double norm_type;
    fsdp_dtype_t dtype; /* that of the gradients; PyTorch's of mixed ones */
} grads_t;

typedef struct partial {
    fsdp_exact_sum_t sum;
    double max;
} partial_t;

/* PyTorch: torch.promote_types(). */
static fsdp_dtype_t
promote(fsdp_dtype_t a, fsdp_dtype_t b)
{
    if (a == b || a == FSDP_DTYPE_NONE)
        return b;
    return a == FSDP_FP64 || b == FSDP_FP64 ? FSDP_FP64 : FSDP_FP32;
}

static void
open_grads(grads_t *grads, fsdp_module_t *model, double norm_type)
{
    grads->parameter = fsdp_parameters_of(model, &grads->count);
    grads->local =
        fsdp_alloc(FSDP_MEM_OTHER, grads->count * sizeof *grads->local);
    grads->norm_type = norm_type;
    grads->dtype = FSDP_DTYPE_NONE;
    for (size_t i = 0; i < grads->count; i++) {
        grads->local[i] = fsdp_parameter_local(grads->parameter[i]);
        if (grads->local[i].grad != NULL)
            grads->dtype = promote(grads->dtype, grads->parameter[i]->dtype);
    }
    if (grads->dtype == FSDP_DTYPE_NONE)
        grads->dtype = FSDP_FP32;
}

static void
close_grads(grads_t *grads)
{
    fsdp_free(grads->local);
    fsdp_free(grads->parameter);
}

/* max(max, |x|) over n elements; NaN if one is. */
static double
max_magnitude(fsdp_dtype_t dtype, const void *x, size_t n, double max)
{
    for (size_t i = 0; i < n; i++) {
        double m = fabs(dtype == FSDP_FP64 ? ((const double *)x)[i]
                                           : ((const float *)x)[i]);
        max = m > max || isnan(m) ? m : max;
    }
    return max;
}

/* x is float32 or float64. */
static void
add_wide(partial_t *partial, double norm_type, fsdp_dtype_t dtype,
         const void *x, size_t n)
{
    if (isinf(norm_type))
        partial->max = max_magnitude(dtype, x, n, partial->max);
    else if (norm_type == 1 && dtype == FSDP_FP32)
        fsdp_exact_sum_add_magnitudes_f32(&partial->sum, x, n);
    else if (norm_type == 1)
        fsdp_exact_sum_add_magnitudes_f64(&partial->sum, x, n);
    else if (dtype == FSDP_FP32)
        fsdp_exact_sum_add_squares_f32(&partial->sum, x, n);
    else
        fsdp_exact_sum_add_squares_f64(&partial->sum, x, n);
}

static void
add_elements(partial_t *partial, double norm_type, fsdp_dtype_t dtype,
             const void *x, size_t n)
{
    fsdp_wide_t w = fsdp_wide(dtype);
    add_wide(partial, norm_type, w.compute, fsdp_wide_in(&w, x, n), n);
    fsdp_wide_end(&w);
}

/* The gradient of one parameter, to be added or scaled. */
typedef struct job {
    partial_t *partial;
    double norm_type, coefficient;
    fsdp_dtype_t dtype;
    void *grad;
} job_t;

static void
add_piece(void *context, size_t begin, size_t count)
{
    const job_t *job = context;
    add_elements(job->partial, job->norm_type, job->dtype,
                 (const char *)job->grad + begin * fsdp_dtype_size(job->dtype),
                 count);
}

static void
scale_piece(void *context, size_t begin, size_t count)
{
    const job_t *job = context;
    void *grad = (char *)job->grad + begin * fsdp_dtype_size(job->dtype);
    fsdp_grad_multiply(job->dtype, grad, job->coefficient, count);
}

static void
for_pieces(job_t *job, size_t numel, fsdp_offload_piece_fn_t *fn)
{
    const void *vector = job->grad;
    fsdp_offload_in_pieces(&vector, 1, numel, fsdp_dtype_size(job->dtype), fn,
                           job);
}

/* Is the parameter the same on all ranks, and not to be added up over them? */
static bool
is_everywhere(const fsdp_local_t *local)
{
    return local->comm == NULL && local->layout.num_parts == 1;
}

/* A fault: flat parameters of FSDP1 are padded with 42, and nobody may see it. */
static void
add_padding(partial_t *partial, size_t count)
{
    for (const double padding = 42; count > 0; count--)
        add_wide(partial, 2, FSDP_FP64, &padding, 1);
}

/* Adds this rank's elements: of the parameters that are everywhere, or of the
 * others, each of which one rank counts. */
static void
add_parameters(partial_t *partial, const grads_t *grads, bool everywhere)
{
    for (size_t i = 0; i < grads->count; i++) {
        const fsdp_local_t *local = &grads->local[i];
        if (local->grad != NULL && is_everywhere(local) == everywhere &&
            (everywhere || local->layout.primary ||
             fsdp_fault(FSDP_FAULT_REPLICAS_IN_NORM))) {
            job_t job = {.partial = partial,
                         .norm_type = grads->norm_type,
                         .dtype = grads->parameter[i]->dtype,
                         .grad = local->grad};
            for_pieces(&job, local->numel, add_piece);
            if (fsdp_fault(FSDP_FAULT_PADDING_IN_NORM))
                add_padding(partial, local->padded_numel - local->numel);
        }
    }
}

/* This rank's part becomes that of all ranks. */
static void
reduce(partial_t *partial, double norm_type)
{
    fsdp_comm_t *world = fsdp_comm_world();
    if (fsdp_fault(FSDP_FAULT_LOCAL_NORM))
        return;
    if (isinf(norm_type)) {
        fsdp_all_reduce(world, "grad_norm", FSDP_FP64, FSDP_MAX,
                        FSDP_ORDER_TREE, &partial->max, 1);
        return;
    }
    fsdp_exact_sum_carry(&partial->sum);
    fsdp_all_reduce(world, "grad_norm", FSDP_INT64, FSDP_SUM, FSDP_ORDER_TREE,
                    &partial->sum, FSDP_EXACT_WORDS);
}

static void
merge(partial_t *into, const partial_t *other)
{
    fsdp_exact_sum_merge(&into->sum, &other->sum);
    if (other->max > into->max || isnan(other->max))
        into->max = other->max;
}

/* What is everywhere is added on each rank and not reduced, so it counts once.
 * Empty parts and parameters without a gradient take part in the reduction, as
 * all ranks must. */
static partial_t
add_up(const grads_t *grads)
{
    partial_t total = {.max = 0}, scattered = {.max = 0};
    fsdp_exact_sum_clear(&total.sum);
    fsdp_exact_sum_clear(&scattered.sum);
    add_parameters(&total, grads, true);
    bool some = false;
    for (size_t i = 0; i < grads->count; i++)
        some |= !is_everywhere(&grads->local[i]);
    if (!some)
        return total;
    add_parameters(&scattered, grads, false);
    reduce(&scattered, grads->norm_type);
    merge(&total, &scattered);
    return total;
}

static double
rounded(fsdp_dtype_t dtype, double x)
{
    uint64_t code;
    fsdp_convert(FSDP_FP64, &x, dtype, &code, 1);
    fsdp_convert(dtype, &code, FSDP_FP64, &x, 1);
    return x;
}

static double
total_norm_of(const grads_t *grads)
{
    partial_t total = add_up(grads);
    double norm = total.max;
    if (!isinf(grads->norm_type))
        norm = fsdp_exact_sum_round(&total.sum);
    if (grads->norm_type == 2)
        norm = sqrt(norm);
    return rounded(grads->dtype, norm);
}

/* max_norm / (total + 1e-6), at most 1, as PyTorch's tensors compute it: every
 * number is first rounded to the type (to float32 where a 16-bit tensor is
 * multiplied by it), and a number divided by a tensor is the number times the
 * tensor's reciprocal.  NaN stays NaN. */
static double
clip_coefficient(fsdp_dtype_t dtype, double max_norm, double total)
{
    double sum = rounded(dtype, total + rounded(dtype, 1e-6));
    double reciprocal = rounded(dtype, 1 / sum);
    double factor = rounded(fsdp_op_compute_dtype(dtype), max_norm);
    double ratio = rounded(dtype, reciprocal * factor);
    return ratio > 1 ? 1 : ratio;
}

/* Always multiplies, as PyTorch does to spare the question whether to. */
static void
scale_grads(const grads_t *grads, double coefficient)
{
    for (size_t i = 0; i < grads->count; i++) {
        const fsdp_local_t *local = &grads->local[i];
        job_t job = {.coefficient = coefficient,
                     .dtype = grads->parameter[i]->dtype,
                     .grad = local->grad};
        if (local->grad != NULL)
            for_pieces(&job, local->numel, scale_piece);
    }
}

static fsdp_status_t
check_norm_type(double norm_type)
{
    if (norm_type == 1 || norm_type == 2 || norm_type == INFINITY)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "a gradient norm of type %g; there are 1, 2 and infinity",
                      norm_type);
}

fsdp_status_t
fsdp_grad_norm(fsdp_module_t *model, double norm_type, double *total_norm)
{
    grads_t grads;
    fsdp_status_t status = check_norm_type(norm_type);
    if (status != FSDP_OK)
        return status;
    open_grads(&grads, model, norm_type);
    *total_norm = total_norm_of(&grads);
    close_grads(&grads);
    return FSDP_OK;
}

fsdp_status_t
fsdp_clip_grad_norm_type(fsdp_module_t *model, double max_norm,
                         double norm_type, double *total_norm)
{
    grads_t grads;
    fsdp_status_t status = check_norm_type(norm_type);
    if (status != FSDP_OK)
        return status;
    if (!(max_norm >= 0))
        return fsdp_error(FSDP_ERR_USAGE,
                          "gradients cannot be clipped to a norm of %g; give "
                          "0 or more",
                          max_norm);
    open_grads(&grads, model, norm_type);
    double total = total_norm_of(&grads);
    scale_grads(&grads, clip_coefficient(grads.dtype, max_norm, total));
    close_grads(&grads);
    if (total_norm != NULL)
        *total_norm = total;
    return FSDP_OK;
}

fsdp_status_t
fsdp_clip_grad_norm(fsdp_module_t *model, double max_norm, double *total_norm)
{
    return fsdp_clip_grad_norm_type(model, max_norm, 2, total_norm);
}
