/** \file replayer.h  Floor 6, verify: a replay's insides.
 *
 *  replay.c        the steps, by the baseline of a verification
 *  replay_setup.c  that baseline, made from a trace instead of a run
 *  replay_task.c   its model and inputs
 *  replay_hooks.c  what happens inside a micro-batch; perturbations
 */
#ifndef FSDP_VERIFY_TRACE_REPLAYER_H
#define FSDP_VERIFY_TRACE_REPLAYER_H

#include "verify/internal.h"
#include "verify/trace/replay.h"
#include "verify/trace/source.h"

struct replayer;

typedef struct replayed_unit {
    struct replayer *replayer; /**< borrowed                                 */
    unit_t *unit;              /**< borrowed                                 */
    int calls;                 /**< of this micro-batch                      */
} replayed_unit_t;

/** A unit's call; see recorder.h. */
typedef struct replayed_call {
    replayed_unit_t *unit;
    int number;
    fsdp_tensor_t *input, *output;
    struct replayed_call *next;
} replayed_call_t;

typedef struct replayer {
    const fsdp_replay_options_t *options; /**< borrowed */
    trace_source_t source;
    fsdp_verifier_t verifier; /**< the baseline alone: nothing is compared   */
    fsdp_module_t *shapes;    /**< the model, never with values              */
    replayed_unit_t *unit;    /**< [num_units]                               */
    replayed_call_t *calls;
    int micro;
    fsdp_dtype_t type, low; /**< of the trace: parameters; computation       */
    fsdp_status_t status;   /**< of loading                                  */
} replayer_t;

/** Where a value stands. */
typedef struct replay_place {
    fsdp_trace_phase_t phase;
    int micro;
    const char *name;
    int call; /**< from 1; 0: none                                           */
} replay_place_t;

/** Tells the caller of a replay. */
void replay_show(const replayer_t *replayer, const replay_place_t *place,
                 fsdp_dtype_t dtype, int ndim, const size_t *shape,
                 const void *data);
/** Multiplies n values by 1 + u e, e the roundoff of `type`; nothing without a
 *  perturbation. */
void replay_perturb(const replayer_t *replayer, const replay_place_t *place,
                    fsdp_dtype_t type, fsdp_dtype_t dtype, void *data,
                    size_t n);
/** The options of the baseline, as the trace's run had them. */
fsdp_status_t replay_choose_options(replayer_t *replayer);
/** Ranks, units and parameters that a verification would find in its run. */
void replay_list(replayer_t *replayer);
/** The optimizer states with which the first step begins. */
fsdp_status_t replay_load_states(replayer_t *replayer);
/** Borrows the replayer. */
fsdp_task_t replay_task(replayer_t *replayer);
/** What a verifier calls after each backward: `context` is the replayer. */
void replay_after_backward(void *context);
/** Hooks the baseline's units. */
void replay_watch(replayer_t *replayer);
void replay_forget_calls(replayer_t *replayer);

#endif
