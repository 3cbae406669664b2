#include "verify/averaging.h"

#include <math.h>

/* The power of two by which the terms are divided before the sum, so that about
 * as much is left for after it. */
static double
before_the_sum(double factor)
{
    double p = 1;
    while (fmod(factor, p) == 0 && factor / p > p)
        p *= 2;
    return p;
}

static averaging_t
sum_then_divide(int shards, int replicas, double factor)
{
    averaging_t a = {1, 1, 1, 1, 1, 1};
    if (factor != 0) {
        a.over_all = factor;
        return a;
    }
    a.over_shards = shards;
    a.over_all = replicas;
    return a;
}

static averaging_t
premultiply(int shards, int replicas, double factor)
{
    averaging_t a = {1, 1, 1, 1, 1, 1};
    bool mean_over_shards = factor == 0 || factor == shards;
    a.times = 1 / (mean_over_shards ? (double)shards : factor);
    if (factor == 0)
        a.times_replica = 1 / (double)replicas;
    return a;
}

averaging_t
averaging_make(fsdp_averaging_t averaging, fsdp_dtype_t type, int shards,
               int replicas, double factor, bool force_sum)
{
    double all = factor != 0 ? factor : (double)shards * replicas;
    averaging_t a = {1, 1, 1, 1, 1, 1};
    bool narrow_or_wide = type == FSDP_FP16 || type == FSDP_FP64;
    if (force_sum) {
        a.over_all = all;
        return a;
    }
    if (averaging == FSDP_PRE_POST || narrow_or_wide) {
        a.over = before_the_sum(all);
        a.over_all = all / a.over;
        return a;
    }
    return averaging == FSDP_PREMULTIPLY
               ? premultiply(shards, replicas, factor)
               : sum_then_divide(shards, replicas, factor);
}

double
averaging_total(const averaging_t *averaging)
{
    return averaging->over * averaging->over_shards * averaging->over_replica *
           averaging->over_all / (averaging->times * averaging->times_replica);
}
