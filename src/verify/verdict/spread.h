/** \file spread.h  Floor 6, verify: how far rounding gets in a step.
 *
 *  A step is run again in float64 (the centre), and then several times with
 *  every parameter, input, unit's output and gradient moved by about its
 *  rounding.  What comes out differs from the centre as a correct run does.
 *  tutorials/verdict.md has the derivation.
 */
#ifndef FSDP_VERIFY_VERDICT_SPREAD_H
#define FSDP_VERIFY_VERDICT_SPREAD_H

#include "verify/verdict/internal.h"

/** What the runs gave for one tensor. */
typedef struct spread_tensor {
    fsdp_verdict_tensor_t *tensor;
    const record_t *record; /**< in the trace that is run                   */
    double *centre;         /**< [numel]; NULL: the run did not show it     */
    double *square;         /**< [numel], sums of squares of what it moved  */
    double *of_run;         /**< [runs], the same over all elements         */
} spread_tensor_t;

/** The loss of a micro-batch, in the centre. */
typedef struct spread_loss {
    long step;
    int micro;
    double loss;
} spread_loss_t;

typedef struct spread {
    judging_t *j;
    fsdp_trace_t *trace; /**< that is run: theirs or ours */
    const char *rule;
    spread_tensor_t *tensor; /**< by record, for a search */
    size_t count;
    spread_loss_t *loss; /**< in the order in which the run shows them */
    size_t num_losses;
    int run; /**< 0: the centre, then 1 ... runs */
    uint64_t seed;
} spread_t;

/** Runs the steps from first to last of `spread->trace` and judges all of its
 *  tensors that it shows.  Fails as fsdp_trace_replay() does. */
fsdp_status_t spread_run(spread_t *spread, long first, long last);
void spread_free(spread_t *spread);

/** Terms of the longest sum within a unit of theirs. */
double verdict_longest_sum(const judging_t *j);

#endif
