/* Where nothing of theirs leads to a tensor and the step cannot be run again, ours
 * is all there is to compare with.  The bound is gamma~ of all terms of all
 * products that come before, times the largest element, as if each error went
 * on undiminished and unamplified: a supposition, and called one. */

#include <math.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"
#include "verify/verdict/spread.h"

/* Terms of a product within a unit: the longest dimension of a parameter, or the
 * rows of a batch, which are the terms of a weight's gradient. */
double
verdict_longest_sum(const judging_t *j)
{
    double longest = 1;
    for (size_t i = 0; i < j->verdict.num_tensors; i++) {
        const record_t *r = j->tensor[i].theirs;
        double rows = 1;
        for (int d = 0; d < r->ndim; d++) {
            if (verdict_is_of_parameter(r->phase))
                longest = fmax(longest, (double)r->shape[d]);
            else if (d < r->ndim - 1)
                rows *= (double)r->shape[d];
        }
        longest = fmax(longest, rows);
    }
    return longest;
}

/* The coarsest type of either side. */
static double
coarsest(const judging_t *j)
{
    double u = 0x1p-53;
    for (size_t i = 0; i < j->verdict.num_tensors; i++) {
        const record_t *both[] = {j->tensor[i].theirs, j->tensor[i].ours};
        for (int k = 0; k < 2; k++)
            if (both[k] != NULL && value_is_floating(both[k]->dtype))
                u = fmax(u, value_roundoff(both[k]->dtype));
    }
    return u;
}

/* How far Adam may go with gradients whose signs are only rounding. */
static double
drift(const judging_t *j, const record_t *record)
{
    double way = 0;
    if (record->phase != FSDP_TRACE_PARAMETER ||
        j->their_about->optimizer != FSDP_TRACE_ADAMW)
        return 0;
    for (int i = 0; i < j->their_about->num_steps; i++)
        if (j->their_about->step[i].step <= record->step)
            way += 2 * fabs(j->their_about->step[i].lr);
    return isfinite(way) ? way : 0;
}

static void
judge_weakly(judging_t *j, fsdp_verdict_tensor_t *tensor, double error)
{
    const record_t *record = tensor->theirs;
    double *ours = verdict_read_ours(j, record), largest = 0;
    expected_t e;
    if (ours == NULL)
        return;
    expected_make(&e, record,
                  "ours, by a bound that supposes more than it "
                  "derives");
    e.weak = true;
    for (uint64_t i = 0; i < record->numel; i++)
        if (isfinite(ours[i]))
            largest = fmax(largest, fabs(ours[i]));
    for (uint64_t i = 0; i < record->numel; i++) {
        e.value[i] = ours[i];
        e.bound[i] = error * largest + drift(j, record);
    }
    fsdp_free(ours);
    verdict_judge(j, tensor, &e);
}

void
verdict_weak(judging_t *j)
{
    double terms = 2 * verdict_longest_sum(j) * (j->their_about->num_units + 1);
    double u = coarsest(j);
    for (size_t i = 0; i < j->verdict.num_tensors && j->status == FSDP_OK;
         i++) {
        fsdp_verdict_tensor_t *tensor = &j->tensor[i];
        double k = terms * (double)(tensor->theirs->step + 1);
        if (tensor->kind == FSDP_VERDICT_UNCHECKED)
            judge_weakly(
                j, tensor,
                verdict_gamma_random(k, u, (double)tensor->theirs->numel));
    }
}
