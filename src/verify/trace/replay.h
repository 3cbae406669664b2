/** \file replay.h  Floor 6, verify: the steps of a trace, run again here.
 *
 *  One process, nothing sharded: the baseline of a verification (verify.h),
 *  which stands for all ranks of the trace, with the trace's model, parameters,
 *  inputs, optimizer, rates, clipping, precision, order and averaging.  What
 *  it meets has the names that the trace has: a reduced gradient is shown whole,
 *  under the same global micro-batch.  Not collective.
 */
#ifndef FSDP_VERIFY_TRACE_REPLAY_H
#define FSDP_VERIFY_TRACE_REPLAY_H

#include "fsdp/mlp.h"
#include "fsdp/trace.h"
#include "verify/trace/other_attention.h"

/** Another model than the trace's; 0 and NULL: as it is.  In float64 only. */
typedef struct fsdp_replay_change {
    double norm_eps, rope_theta;
    size_t first_position; /**< of GPT-2's rows of position embeddings       */
    bool no_positions;     /**< neither those nor rotations                  */
    bool neighbour_pairs;  /**< rotated: elements 2 i and 2 i + 1 of a head  */
    const fsdp_mlp_activation_t *activation; /**< borrowed                   */
    attention_change_t attention;
} fsdp_replay_change_t;

/** Something that the replay met; valid during the call. */
typedef struct fsdp_replay_value {
    long step;
    fsdp_trace_phase_t phase;
    int micro;        /**< -1: none                                          */
    const char *name; /**< as in fsdp_trace_record_t                         */
    fsdp_dtype_t dtype;
    int ndim;
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS]; /**< of the whole             */
    uint64_t numel;
    const void *data; /**< [numel], all of it                                */
} fsdp_replay_value_t;

/** All zero: the trace's steps as they were. */
typedef struct fsdp_replay_options {
    /** FSDP_FP64: everything in it, whatever the policy says.  FSDP_DTYPE_NONE:
     *  in the types of the trace. */
    fsdp_dtype_t dtype;
    /** 0: from the first / to the last of which there are inputs.  Begins with the
     *  parameters and states that were recorded of the step before. */
    long first_step, last_step;
    /** Each initial parameter, floating input, unit's output, gradient of a
     *  unit's input and parameter's gradient of a micro-batch is multiplied by
     *  1 + u p e: u in [-1, 1] from Philox (seed; step, phase, micro-batch,
     *  name, element), p this, e the roundoff of the type that the trace's
     *  policy gives the value (2^-24 float32, 2^-8 bfloat16, 2^-11 float16,
     *  2^-53 float64), also when `dtype` makes it float64.  0: none. */
    double perturbation;
    uint64_t seed;
    /** Which model was meant, and of what its loss is the mean, if it is not that
     *  which the trace says of itself; NULL: it is. */
    const fsdp_trace_about_t *meant;
    const fsdp_replay_change_t *change; /**< NULL: none */
    void *context;
    /** NULL: nothing is shown.  In the order in which things happen, all
     *  micro-batches of one j before their reduction. */
    void (*show)(void *context, const fsdp_replay_value_t *value);
} fsdp_replay_options_t;

/** FSDP_ERR_INPUT with what is missing in the trace and how to record it. */
fsdp_status_t fsdp_trace_replay(fsdp_trace_t *trace,
                                const fsdp_replay_options_t *options);

#endif
