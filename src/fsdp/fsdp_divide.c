/* How the mean is made of a sum.
 *
 *      reduce dtype       averaging          before      between     after
 *      float32, bfloat16  sum-then-divide                / W         / R
 *        with a factor f                                             / f
 *                         premultiply        * 1/W       * 1/R
 *        with a factor f                     * 1/f
 *      float16, float64, or pre-post         / p                     / (F / p)
 *      force-sum                                                     / F
 *
 *  F is the factor, or the number of ranks W R; p is about its root.  PyTorch
 *  2.13 divides once more in some cases with W = 1; its later test
 *  (singleton_copy_division) asks for one division, and so it is here. */
#include <math.h>

#include "fsdp/fault.h"
#include "fsdp/fsdp_collectives.h"

/* 1/n as an element of that type, NCCL's PREMUL_SUM. */
static double
reciprocal(fsdp_dtype_t dtype, double n)
{
    double exact = 1 / n, rounded = exact;
    unsigned char element[8];
    fsdp_convert(FSDP_FP64, &exact, dtype, element, 1);
    fsdp_convert(dtype, element, FSDP_FP64, &rounded, 1);
    return rounded;
}

/* The largest power of two that divides F and is not beyond its root by much:
 * sums of float16 then neither overflow nor lose small terms. */
static double
pre_factor(double factor)
{
    double pre = 1;
    while (fmod(factor, pre) == 0 && factor / pre > pre)
        pre *= 2;
    return pre;
}

static void
plan_premultiply(fsdp_divide_plan_t *plan, fsdp_dtype_t dtype, int shard_size,
                 int replicas, double factor)
{
    if (factor == 0 && shard_size * replicas == 1)
        return;
    if (factor == 0) {
        plan->multiply_input = reciprocal(dtype, shard_size);
        plan->multiply_scattered = reciprocal(dtype, replicas);
    } else {
        plan->multiply_input = reciprocal(dtype, factor);
    }
}

fsdp_divide_plan_t
fsdp_get_divide_plan(int shard_size, int replicas, fsdp_dtype_t reduce_dtype,
                     fsdp_averaging_t averaging, double factor, bool force_sum)
{
    fsdp_divide_plan_t plan = {1, 1, 1, 1, 1, 1};
    bool overflow_risk = reduce_dtype != FSDP_FP32 && reduce_dtype != FSDP_BF16;
    double all = factor != 0 ? factor : (double)shard_size * replicas;
    if (force_sum) {
        plan.divide_output = all;
    } else if (overflow_risk || averaging == FSDP_PRE_POST) {
        plan.divide_input = pre_factor(all);
        plan.divide_output = all / plan.divide_input;
    } else if (averaging == FSDP_PREMULTIPLY) {
        plan_premultiply(&plan, reduce_dtype, shard_size, replicas, factor);
    } else if (factor != 0) {
        plan.divide_reduced = factor;
    } else {
        plan.divide_scattered = shard_size;
        plan.divide_reduced = replicas;
    }
    return plan;
}
