/* From the gradients of micro-batches to that of the step: each sum in the type
 * and the order that the contract names, each division where it says. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- small things --------------------------------------------------------- */

/* Over micro-batches the orders `ring` and `mpi` go from left to right. */
static fsdp_reduce_order_t
order_over_micros(const fsdp_verifier_t *verifier)
{
    fsdp_reduce_order_t order = verifier->options.reduce_order;
    return order == FSDP_ORDER_TREE ? FSDP_ORDER_TREE : FSDP_ORDER_RANK;
}

static bool
is_last(const fsdp_verifier_t *verifier, int j)
{
    return j == verifier->options.micro_batches - 1;
}

/* In which type they are added up until then: FSDP1 keeps the backward's. */
static fsdp_dtype_t
type_of_delayed(const fsdp_verifier_t *verifier, const verified_t *param)
{
    const fsdp_verify_options_t *o = &verifier->options;
    return o->fsdp1 && o->gradient_sync == FSDP_SYNC_LAST ? param->lent
                                                          : param->summed;
}

/* How many sums wait for the last micro-batch. */
static int
num_delayed(const fsdp_verifier_t *verifier, const verified_t *param)
{
    switch (verifier->options.gradient_sync) {
    case FSDP_SYNC_LAST:
        return verifier->replicas * param->shards;
    case FSDP_SYNC_LAST_ALL_REDUCE:
        return verifier->replicas;
    case FSDP_SYNC_EACH:
        break;
    }
    return 0;
}

static void *
converted(const verified_t *param, fsdp_dtype_t from, const void *x,
          fsdp_dtype_t to)
{
    void *out =
        fsdp_alloc(FSDP_MEM_BASELINE, param->numel * fsdp_dtype_size(to));
    for (size_t i = 0; i < param->numel; i++)
        value_put(to, out, i, value_get(from, x, i));
    return out;
}

/* x = x * factor, the factor rounded first; nothing for 1. */
static void
multiply(const verified_t *param, void *x, double factor)
{
    fsdp_dtype_t t = param->summed;
    double by = value_round(t, factor);
    for (size_t i = 0; factor != 1 && i < param->numel; i++)
        value_put(t, x, i, value_get(t, x, i) * by);
}

/* Rounded to the type that is computed in, which is float for 16-bit ones. */
static double
compute_round(fsdp_dtype_t type, double x)
{
    return type == FSDP_FP64 ? x : (double)(float)x;
}

static void
divide(const verified_t *param, void *x, double divisor)
{
    fsdp_dtype_t t = param->summed;
    double by = compute_round(t, divisor);
    for (size_t i = 0; divisor != 1 && i < param->numel; i++)
        value_put(t, x, i, compute_round(t, value_get(t, x, i) / by));
}

/* ---- life ----------------------------------------------------------------- */

void
baseline_prepare_sums(const fsdp_verifier_t *verifier, verified_t *param)
{
    const fsdp_verify_options_t *o = &verifier->options;
    double factor = o->divide_factor;
    if (factor == 0 && param->neighbours > 1) /* of all that sent rows */
        factor = (double)verifier->shards * verifier->replicas;
    param->averaging =
        averaging_make(o->averaging, param->summed, param->shards,
                       verifier->replicas, factor, o->force_sum);
    size_t delayed = (size_t)num_delayed(verifier, param);
    param->delayed =
        fsdp_calloc(FSDP_MEM_BASELINE, delayed * sizeof *param->delayed);
    if (o->reduce_order == FSDP_ORDER_MPI) {
        size_t bytes = param->numel * sizeof(double);
        param->magnitude = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
        param->magnitude_of_j = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    }
}

void
baseline_free_sums(const fsdp_verifier_t *verifier, verified_t *param)
{
    for (int i = 0; i < num_delayed(verifier, param); i++)
        term_sum_destroy(&param->delayed[i]);
    term_sum_destroy(&param->over_neighbours);
    term_sum_destroy(&param->over_shards);
    term_sum_destroy(&param->over_replicas);
    term_sum_destroy(&param->over_micros);
    fsdp_free(param->delayed);
    fsdp_free(param->reduced);
    fsdp_free(param->grad);
    fsdp_free(param->magnitude);
    fsdp_free(param->magnitude_of_j);
}

/* ---- one term after another ------------------------------------------------ */

/* A replica's sum is done. */
static void
add_replica(fsdp_verifier_t *verifier, verified_t *param, void *sum)
{
    multiply(param, sum, param->averaging.times_replica);
    divide(param, sum, param->averaging.over_replica);
    term_sum_add(&param->over_replicas, param->summed,
                 verifier->options.reduce_order, sum, param->numel);
}

static void
end_replica(fsdp_verifier_t *verifier, verified_t *param, int replica)
{
    void *sum = term_sum_take(&param->over_shards, param->summed,
                              verifier->options.reduce_order, param->numel,
                              param->destination);
    if (sum == NULL)
        return;
    divide(param, sum, param->averaging.over_shards);
    if (verifier->options.gradient_sync == FSDP_SYNC_LAST_ALL_REDUCE)
        term_sum_add(&param->delayed[replica], param->summed,
                     order_over_micros(verifier), sum, param->numel);
    else
        add_replica(verifier, param, sum);
}

/* Rank d's term, which may be none, joins the sums over ranks. */
static void
add_rank(fsdp_verifier_t *verifier, verified_t *param, int d, void *term)
{
    if (term != NULL) {
        multiply(param, term, param->averaging.times);
        divide(param, term, param->averaging.over);
        term_sum_add(&param->over_shards, param->summed,
                     verifier->options.reduce_order, term, param->numel);
    }
    if ((d + 1) % param->shards == 0)
        end_replica(verifier, param, d / param->shards);
}

/* Experts that neighbours share out: the sum over them, which the last one has. */
static void *
sum_of_neighbours(fsdp_verifier_t *verifier, verified_t *param, int d)
{
    fsdp_reduce_order_t order = order_over_micros(verifier);
    const fsdp_tensor_t *grad = param->base->grad;
    if (grad != NULL)
        term_sum_add(&param->over_neighbours, param->lent, order,
                     converted(param, grad->dtype, grad->data, param->lent),
                     param->numel);
    return (d + 1) % param->neighbours == 0
               ? term_sum_take(&param->over_neighbours, param->lent, order,
                               param->numel, NULL)
               : NULL;
}

/* What rank d brings to the sums over ranks, or has to wait with. */
static void *
term_of(fsdp_verifier_t *verifier, verified_t *param, int d, fsdp_dtype_t type)
{
    const fsdp_tensor_t *grad = param->base->grad;
    if (param->neighbours == 1)
        return grad != NULL ? converted(param, grad->dtype, grad->data, type)
                            : NULL;
    void *sum = sum_of_neighbours(verifier, param, d);
    void *term = sum != NULL ? converted(param, param->lent, sum, type) : NULL;
    fsdp_free(sum);
    return term;
}

void
baseline_take_gradient(fsdp_verifier_t *verifier, verified_t *param, int d)
{
    bool delays = verifier->options.gradient_sync == FSDP_SYNC_LAST;
    fsdp_dtype_t type =
        delays ? type_of_delayed(verifier, param) : param->summed;
    void *term = term_of(verifier, param, d, type);
    if (term != NULL)
        baseline_add_magnitude(param, type, term);
    fsdp_parameter_zero_grad(param->base);
    if ((d + 1) % param->neighbours != 0)
        return;
    d /= param->neighbours;
    if (!delays)
        add_rank(verifier, param, d, term);
    else if (term != NULL)
        term_sum_add(&param->delayed[d], type, order_over_micros(verifier),
                     term, param->numel);
}

/* ---- what was put off ------------------------------------------------------ */

/* What waits at place i, in the type of the sums over ranks. */
static void *
take_delayed(fsdp_verifier_t *verifier, verified_t *param, int i)
{
    fsdp_dtype_t type = type_of_delayed(verifier, param);
    void *sum = term_sum_take(&param->delayed[i], type,
                              order_over_micros(verifier), param->numel, NULL);
    if (sum == NULL || type == param->summed)
        return sum;
    void *cast = converted(param, type, sum, param->summed);
    fsdp_free(sum);
    return cast;
}

static void
add_delayed(fsdp_verifier_t *verifier, verified_t *param)
{
    bool of_ranks = verifier->options.gradient_sync == FSDP_SYNC_LAST;
    for (int i = 0; i < num_delayed(verifier, param); i++) {
        void *sum = take_delayed(verifier, param, i);
        if (of_ranks)
            add_rank(verifier, param, i, sum);
        else if (sum != NULL)
            add_replica(verifier, param, sum);
    }
}

static void
reduce_parameter(fsdp_verifier_t *verifier, verified_t *param, int j)
{
    fsdp_free(param->reduced);
    param->reduced = NULL;
    if (is_last(verifier, j))
        add_delayed(verifier, param);
    void *sum = term_sum_take(&param->over_replicas, param->summed,
                              verifier->options.reduce_order, param->numel,
                              param->destination_replica);
    param->was_reduced = sum != NULL;
    if (sum == NULL)
        return;
    divide(param, sum, param->averaging.over_all);
    void *own = converted(param, param->summed, sum, param->dtype);
    if (verifier->options.level == FSDP_VERIFY_PHASE)
        param->reduced = converted(param, param->dtype, own, param->dtype);
    term_sum_add(&param->over_micros, param->dtype, order_over_micros(verifier),
                 own, param->numel);
    fsdp_free(sum);
}

void
baseline_reduce(fsdp_verifier_t *verifier, int j)
{
    for (int p = 0; p < verifier->num_params; p++)
        reduce_parameter(verifier, &verifier->param[p], j);
}

void
baseline_gradients(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        fsdp_free(param->grad);
        param->grad =
            term_sum_take(&param->over_micros, param->dtype,
                          order_over_micros(verifier), param->numel, NULL);
    }
}
