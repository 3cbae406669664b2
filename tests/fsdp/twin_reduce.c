/* The reduction of one element of a gradient, by the contract's rules alone. */
#include <math.h>
#include <string.h>

#include "twin.h"
#include "twin/half.h"

/* ---- arithmetic of a type ------------------------------------------------ */

double
twin_round(fsdp_dtype_t dtype, double x)
{
    return dtype == FSDP_FP64 ? x : half_round(dtype, (double)(float)x);
}

static double
add(fsdp_dtype_t t, double a, double b)
{
    return twin_round(t, a + b);
}

/* Divisors are rounded to what is computed in. */
static double
divide(fsdp_dtype_t t, double a, double d)
{
    return twin_round(t, a / (t == FSDP_FP64 ? d : (double)(float)d));
}

/* By 1/n, rounded to the type. */
static double
times_one_over(fsdp_dtype_t t, double a, double n)
{
    return twin_round(
        t, a * half_round(t, t == FSDP_FP64 ? 1 / n : (double)(float)(1 / n)));
}

static double
left_sum(fsdp_dtype_t t, const double *x, int n, int first)
{
    double sum = x[first % n];
    for (int i = 1; i < n; i++)
        sum = add(t, sum, x[(first + i) % n]);
    return sum;
}

/* Pairs, then pairs of pairs; a last odd one goes up unpaired. */
static double
tree_sum(fsdp_dtype_t t, const double *x, int n)
{
    double level[TWIN_MICROS];
    memcpy(level, x, (size_t)n * sizeof *x);
    for (int next; n > 1; n = next) {
        next = 0;
        for (int i = 0; i < n; i += 2)
            level[next++] =
                i + 1 < n ? add(t, level[i], level[i + 1]) : level[i];
    }
    return level[0];
}

/* Perfect trees of the sizes of a binary counter, the youngest joined first. */
static double
counter_sum(fsdp_dtype_t t, const double *x, int n)
{
    int half = 1;
    if (n == 1)
        return x[0];
    while (2 * half < n)
        half *= 2;
    return add(t, counter_sum(t, x, half), counter_sum(t, x + half, n - half));
}

static double
sum_over_ranks(const twin_reduction_t *r, fsdp_dtype_t t, const double *x,
               int n, int owner)
{
    if (r->order == FSDP_ORDER_TREE)
        return tree_sum(t, x, n);
    return left_sum(t, x, n, r->order == FSDP_ORDER_RING ? owner + 1 : 0);
}

static double
sum_over_micros(const twin_reduction_t *r, fsdp_dtype_t t, const double *x,
                int n)
{
    return r->order == FSDP_ORDER_TREE ? counter_sum(t, x, n)
                                       : left_sum(t, x, n, 0);
}

/* ---- one reduction ------------------------------------------------------- */

static double
all_ranks(const twin_reduction_t *r)
{
    return r->factor != 0 ? r->factor : (double)r->shard * r->replicas;
}

/* What the pre- and post-division split is made for. */
static bool
in_two_steps(const twin_reduction_t *r, fsdp_dtype_t t)
{
    return !r->force_sum &&
           (r->averaging == FSDP_PRE_POST || t == FSDP_FP16 || t == FSDP_FP64);
}

static double
pre_factor(const twin_reduction_t *r)
{
    double all = all_ranks(r), p = 1;
    while (fmod(all, p) == 0 && all / p > p)
        p *= 2;
    return p;
}

/* Up to where an all-reduce may be put off; x[S]. */
static double
scattered(const twin_reduction_t *r, fsdp_dtype_t t, double *x, int owner)
{
    bool mean = !r->force_sum && !in_two_steps(r, t);
    bool multiply = mean && r->averaging == FSDP_PREMULTIPLY;
    for (int s = 0; s < r->shard; s++) {
        if (in_two_steps(r, t))
            x[s] = divide(t, x[s], pre_factor(r));
        if (multiply)
            x[s] =
                times_one_over(t, x[s], r->factor != 0 ? r->factor : r->shard);
    }
    double sum = sum_over_ranks(r, t, x, r->shard, owner);
    if (mean && !multiply && r->factor == 0)
        sum = divide(t, sum, r->shard);
    return sum;
}

/* The rest; x[R]. */
static double
reduced(const twin_reduction_t *r, fsdp_dtype_t t, double *x)
{
    bool mean = !r->force_sum && !in_two_steps(r, t);
    for (int q = 0; q < r->replicas; q++)
        if (mean && r->averaging == FSDP_PREMULTIPLY && r->factor == 0)
            x[q] = times_one_over(t, x[q], r->replicas);
    double sum = sum_over_ranks(r, t, x, r->replicas, 0);
    if (r->force_sum)
        return divide(t, sum, all_ranks(r));
    if (in_two_steps(r, t))
        return divide(t, sum, all_ranks(r) / pre_factor(r));
    if (r->averaging == FSDP_PREMULTIPLY)
        return sum;
    return divide(t, sum, r->factor != 0 ? r->factor : r->replicas);
}

/* ---- several micro-batches ----------------------------------------------- */

/* terms[j][q] of those j that have any; how many. */
static int
collect(const twin_t *twin, int p, size_t i, const twin_reduction_t *r,
        fsdp_dtype_t t, double terms[TWIN_MICROS][TWIN_RANKS])
{
    int ranks = r->shard * r->replicas, count = 0;
    for (int j = 0; j < r->micros; j++) {
        bool any = r->unused && twin->param[p]->requires_grad;
        for (int q = 0; q < ranks; q++) {
            const double *grad = twin->grad[p][j * ranks + q];
            any |= grad != NULL;
            terms[count][q] = grad != NULL ? twin_round(t, grad[i]) : 0;
        }
        count += any;
    }
    return count;
}

static double
reduce_once(const twin_reduction_t *r, fsdp_dtype_t t, double *x, int owner)
{
    double over[TWIN_RANKS] = {0};
    for (int q = 0; q < r->replicas; q++)
        over[q] = scattered(r, t, x + q * r->shard, owner);
    return reduced(r, t, over);
}

static double
reduce_deferred(const twin_reduction_t *r, fsdp_dtype_t t,
                double terms[TWIN_MICROS][TWIN_RANKS], int count, int owner)
{
    double over[TWIN_RANKS] = {0}, of_micro[TWIN_MICROS] = {0};
    for (int q = 0; q < r->replicas; q++) {
        for (int j = 0; j < count; j++)
            of_micro[j] = scattered(r, t, terms[j] + q * r->shard, owner);
        over[q] = sum_over_micros(r, t, of_micro, count);
    }
    return reduced(r, t, over);
}

static double
reduce_sum(const twin_reduction_t *r, fsdp_dtype_t t,
           double terms[TWIN_MICROS][TWIN_RANKS], int count, int owner)
{
    double sum[TWIN_RANKS] = {0}, of_micro[TWIN_MICROS] = {0};
    for (int q = 0; q < r->shard * r->replicas; q++) {
        for (int j = 0; j < count; j++)
            of_micro[j] = terms[j][q];
        sum[q] = sum_over_micros(r, t, of_micro, count);
    }
    return reduce_once(r, t, sum, owner);
}

bool
twin_reduced(const twin_t *twin, int p, size_t i, int owner,
             const twin_reduction_t *r, double *out)
{
    double terms[TWIN_MICROS][TWIN_RANKS], of_micro[TWIN_MICROS];
    fsdp_dtype_t dtype = twin->dtype[p];
    fsdp_dtype_t t =
        r->reduce != FSDP_DTYPE_NONE ? r->reduce : twin->param[p]->dtype;
    int count = collect(twin, p, i, r, t, terms);
    if (count == 0)
        return false;
    if (r->how == TWIN_NO_SYNC) {
        *out = twin_round(dtype, reduce_sum(r, t, terms, count, owner));
    } else if (r->how == TWIN_DEFERRED) {
        *out = twin_round(dtype, reduce_deferred(r, t, terms, count, owner));
    } else {
        for (int j = 0; j < count; j++)
            of_micro[j] = twin_round(dtype, reduce_once(r, t, terms[j], owner));
        *out = sum_over_micros(r, dtype, of_micro, count);
    }
    return true;
}
