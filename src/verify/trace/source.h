/** \file source.h  Floor 6, verify: a trace as the source of a training: model,
 *  initial values, micro-batches and rates of recorded steps.
 *
 *  source.c        which model, steps, loss
 *  source_check.c  whether the model can take the inputs
 *  source_load.c   parameters and states with which the first step begins
 *  source_batch.c  micro-batches and rates
 *
 *  Not collective: every rank has its own, and takes its part.
 */
#ifndef FSDP_VERIFY_TRACE_SOURCE_H
#define FSDP_VERIFY_TRACE_SOURCE_H

#include "verify/trace/model.h"

typedef struct trace_source {
    fsdp_trace_t *trace; /**< borrowed                                       */
    const fsdp_trace_about_t *about;
    const fsdp_trace_about_t *meant; /**< whose model and mean it is        */
    trace_model_t model;
    fsdp_dtype_t dtype;         /**< of parameters here                      */
    long first_step, last_step; /**< whose inputs are there                  */
    int ranks;  /**< data-parallel ones of the trace, N                      */
    int micros; /**< micro-batches of a step over all of them, M             */
    bool mse;   /**< else cross-entropy                                      */
    double scale; /**< the backward begins with this times the loss          */
} trace_source_t;

/** `meant` (NULL: the trace itself) says which model it is to be, and of what its
 *  loss is the mean.  `dtype` FSDP_DTYPE_NONE: that of the trace.  Steps 0: the first and the last of
 *  which there are inputs.  FSDP_ERR_INPUT with what is missing and how to record
 *  it.  Reads all inputs once, to check them.  To be closed, also after an
 *  error; must stay where it is. */
fsdp_status_t trace_source_open(fsdp_trace_t *trace,
                                const fsdp_trace_about_t *meant,
                                fsdp_dtype_t dtype, long first_step,
                                long last_step, trace_source_t *source);
void trace_source_close(trace_source_t *source);

/** "tokens" or "x". */
const char *trace_source_input_name(const trace_source_t *source);
/** NULL: there is none. */
const fsdp_trace_record_t *trace_source_input(const trace_source_t *source,
                                              long step, int micro,
                                              const char *name);
/** There are steps with inputs. */
fsdp_status_t trace_source_check_steps(const trace_source_t *source);
/** All inputs of the steps are there, of shapes and values that the model can
 *  take. */
fsdp_status_t trace_source_check_inputs(const trace_source_t *source);
/** The parameters with which the first step begins are those of the model, by
 *  name and shape; checked before anything of the model's size is made. */
fsdp_status_t trace_source_check_parameters(const trace_source_t *source);
/** This process's part of all parameters and (`optimizer` not NULL) of its states
 *  takes the values with which the first step begins. */
fsdp_status_t trace_source_load(const trace_source_t *source,
                                fsdp_module_t *model,
                                fsdp_optimizer_t *optimizer);
/** The whole state of a parameter as the first step finds it, [numel] in
 *  double, and how many steps it has had; false: there is none. */
bool trace_source_state(const trace_source_t *source, const char *state,
                        const char *parameter, double *values, long *steps);

/** NaN: unknown. */
double trace_source_lr(const trace_source_t *source, long step);
/** Input and targets of a global micro-batch.  Ends the program if the trace can
 *  no longer be read. */
fsdp_values_t trace_source_batch(const trace_source_t *source,
                                 fsdp_tape_t *tape, long step, int micro);
/** The mean over the targets of a batch. */
fsdp_tensor_t *trace_source_mean(const trace_source_t *source,
                                 fsdp_tape_t *tape, fsdp_module_t *model,
                                 fsdp_values_t batch);
/** How many targets of a batch count. */
double trace_source_targets(fsdp_values_t batch);

#endif
