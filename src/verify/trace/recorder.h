/** \file recorder.h  Floor 6, verify: a recording's insides.
 *
 *  recorder.c        its life
 *  recorder_hooks.c  what happens inside a micro-batch
 *  recorder_step.c   what stands at the end of a step
 */
#ifndef FSDP_VERIFY_TRACE_RECORDER_H
#define FSDP_VERIFY_TRACE_RECORDER_H

#include "fsdp/trace.h"
#include "verify/trace/writer.h"

enum { RECORDER_MAX_COMMS = 4 };

/** A unit of the model. */
typedef struct recorded_unit {
    fsdp_trace_recorder_t *recorder; /**< borrowed                           */
    fsdp_module_t *module;           /**< borrowed                           */
    const char *name;                /**< "(root)"; borrowed                 */
    bool is_root;
    int calls; /**< of this micro-batch                                      */
} recorded_unit_t;

typedef struct recorded_parameter {
    fsdp_parameter_t *parameter; /**< borrowed                               */
    size_t shape[FSDP_MAX_DIMS]; /**< of the whole, larger tensor            */
    fsdp_layout_t local, whole;  /**< this rank's part; when it is gathered  */
} recorded_parameter_t;

/** A unit's call whose gradients are to come. */
typedef struct recorded_call {
    recorded_unit_t *unit;
    int number; /**< from 1                                                  */
    fsdp_tensor_t *input, *output; /**< floating ones; NULL: none. Borrowed  */
    struct recorded_call *next;
} recorded_call_t;

struct fsdp_trace_recorder {
    fsdp_trace_recorder_options_t options;
    fsdp_comm_t *comm; /**< our own, so that the run's traffic is its own    */
    int rank, size, data_parallel_rank, replicas, shards;
    recorded_unit_t *unit; /**< parents first                                */
    int num_units;
    recorded_parameter_t *param; /**< in PyTorch's order of the model        */
    int num_params;
    const char **order; /**< [num_units] units as they were done; borrowed   */
    int num_ordered;
    fsdp_trace_step_t *step; /**< those that were recorded                   */
    int num_steps;
    size_t room;
    trace_writer_t *writer; /**< of this step; NULL: it is not recorded      */
    recorded_call_t *calls; /**< of this micro-batch                         */
    fsdp_comm_t *watched[RECORDER_MAX_COMMS]; /**< of the mesh; borrowed     */
    uint64_t seen[RECORDER_MAX_COMMS]; /**< length of its ledger so far      */
    int num_watched;
    long now;     /**< the step                                              */
    int j, micro; /**< ours of this step; which that is of all               */
    fsdp_status_t status; /**< of what was written before the first step     */
};

/** Hooks units and observes parameters; and the reverse. */
void recorder_watch(fsdp_trace_recorder_t *recorder);
void recorder_unwatch(fsdp_trace_recorder_t *recorder);
void recorder_forget_calls(fsdp_trace_recorder_t *recorder);

/** Adds this rank's part of all parameters and, if there are some, of the
 *  optimizer's states. */
void recorder_add_state(fsdp_trace_recorder_t *recorder,
                        trace_writer_t *writer);
/** Adds this rank's part of a parameter-like thing. */
void recorder_add_local(trace_writer_t *writer,
                        const recorded_parameter_t *param,
                        fsdp_trace_phase_t phase, int micro, const void *data);
/** The collectives since the last call. */
void recorder_add_ledger(fsdp_trace_recorder_t *recorder);
void recorder_skip_ledger(fsdp_trace_recorder_t *recorder);

#endif
