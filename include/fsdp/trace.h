/** \file trace.h  Floor 6, verify: recorded steps, of this library or another.
 *
 *  A trace is a folder that anyone can write (python/trace_format.md): what was
 *  run, and for each step and rank the tensors that it met, in the order in
 *  which they happened.  Reading believes nothing: a fault of the folder is one
 *  message and FSDP_ERR_INPUT (or FSDP_ERR_IO), and no more memory than the
 *  files have bytes.  Any part may be missing; what is unknown says so.
 *
 *  Not collective: one process reads all ranks' files.
 */
#ifndef FSDP_TRACE_H
#define FSDP_TRACE_H

#include <math.h>
#include <stdint.h>

#include "fsdp/safetensors.h"
#include "fsdp/verify.h"

/** phase, its name in files; in the order in which a step meets them */
#define FSDP_TRACE_PHASE_LIST(X)                                               \
    X(FSDP_TRACE_INPUT, "input")                                               \
    X(FSDP_TRACE_GATHERED_PARAMETER, "gathered_parameter")                     \
    X(FSDP_TRACE_UNIT_INPUT, "unit_input")                                     \
    X(FSDP_TRACE_UNIT_OUTPUT, "unit_output")                                   \
    X(FSDP_TRACE_LOSS, "loss")                                                 \
    X(FSDP_TRACE_OUTPUT_GRAD, "output_grad")                                   \
    X(FSDP_TRACE_INPUT_GRAD, "input_grad")                                     \
    X(FSDP_TRACE_UNREDUCED_GRAD, "unreduced_grad")                             \
    X(FSDP_TRACE_REDUCED_GRAD, "reduced_grad")                                 \
    X(FSDP_TRACE_GRAD, "grad")                                                 \
    X(FSDP_TRACE_NORM, "norm")                                                 \
    X(FSDP_TRACE_CLIPPED_GRAD, "clipped_grad")                                 \
    X(FSDP_TRACE_PARAMETER, "parameter")                                       \
    X(FSDP_TRACE_EXP_AVG, "state.exp_avg")                                     \
    X(FSDP_TRACE_EXP_AVG_SQ, "state.exp_avg_sq")                               \
    X(FSDP_TRACE_MOMENTUM_BUFFER, "state.momentum_buffer")                     \
    X(FSDP_TRACE_STATE_STEP, "state.step")

typedef enum fsdp_trace_phase {
#define FSDP_TRACE_PHASE_ENUM(phase, name) phase,
    FSDP_TRACE_PHASE_LIST(FSDP_TRACE_PHASE_ENUM)
#undef FSDP_TRACE_PHASE_ENUM
        FSDP_TRACE_PHASES
} fsdp_trace_phase_t;

/** "unit_output" for instance. */
const char *fsdp_trace_phase_name(fsdp_trace_phase_t phase);
/** The reverse; FSDP_TRACE_PHASES if there is none of that name. */
fsdp_trace_phase_t fsdp_trace_phase_from_name(const char *name);

/** What one rank has of a record. */
typedef struct fsdp_trace_piece {
    int rank;
    fsdp_dtype_t dtype;
    uint64_t numel; /**< of this piece; 0 is allowed                         */
    bool whole;     /**< all of it, in order                                 */
} fsdp_trace_piece_t;

/** One thing of one step, over all ranks that have some of it. */
typedef struct fsdp_trace_record {
    long step; /**< 0: before the first                                      */
    fsdp_trace_phase_t phase;
    int micro; /**< global micro-batch; -1: none                             */
    const char *name;   /**< parameter, or unit ("(root)", "h.0#1"), or input;
                           borrowed from the trace                           */
    fsdp_dtype_t dtype; /**< of the first piece                              */
    bool dtypes_differ; /**< pieces are of several types                     */
    int ndim;
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS]; /**< of the whole             */
    uint64_t numel;                            /**< of the whole             */
    int num_pieces;
    const fsdp_trace_piece_t *piece; /**< by rank; borrowed                  */
} fsdp_trace_record_t;

typedef struct fsdp_trace_step {
    long step;
    double lr; /**< NaN: unknown */
} fsdp_trace_step_t;

typedef struct fsdp_trace_parameter {
    const char *name;
    const char *unit;   /**< NULL: unknown                                   */
    fsdp_dtype_t dtype; /**< FSDP_DTYPE_NONE: unknown                        */
    int ndim;           /**< 0 and numel 0: unknown                          */
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS];
    uint64_t numel;
    /** The optimizer's for this parameter alone, and what its rate is the
     *  step's times; NaN: as for all. */
    double weight_decay, lr_factor;
} fsdp_trace_parameter_t;

typedef enum fsdp_trace_optimizer {
    FSDP_TRACE_NO_OPTIMIZER, /**< unknown, or one that we do not have; then
                                  optimizer_name tells                       */
    FSDP_TRACE_SGD,
    FSDP_TRACE_ADAMW
} fsdp_trace_optimizer_t;

/** trace.json.  Unknown: NULL, NaN, or what the comment says.  Strings and lists
 *  are borrowed from the trace. */
typedef struct fsdp_trace_about {
    const char *producer, *api; /**< "PyTorch 2.13.0", "fsdp2"               */
    int world_size;             /**< always known, at least 1                */
    int num_ranks;
    const int *rank; /**< that recorded, ascending                           */
    int replicas, shards, tensor; /**< of the mesh; 0: unknown               */
    int micro_batches;            /**< per data-parallel rank, m; 0: unknown */
    int gradient_sync;            /**< fsdp_gradient_sync_t; -1: unknown     */
    int num_steps;
    const fsdp_trace_step_t *step; /**< ascending                            */
    const char *model_type;        /**< "gpt2", "llama", "mlp"               */
    const struct fsdp_json *model_config; /**< an object of base/json.h      */
    const char *loss;    /**< "cross_entropy", "mse"                         */
    long ignore_index;   /**< -100 if it is not said                         */
    const char *average; /**< "rank", "token"                                */
    double loss_scale;   /**< backward() began with this times the loss (times
                            the token weight); NaN: unknown                  */
    fsdp_trace_optimizer_t optimizer;
    const char *optimizer_name;
    /** lr of each is not set: see fsdp_trace_step_t. */
    fsdp_sgd_options_t sgd;
    fsdp_adamw_options_t adamw;
    double grad_clip; /**< 0: nothing is clipped; NaN: unknown               */
    double norm_type; /**< 2 if it is not said; INFINITY                     */
    fsdp_dtype_t dtype; /**< of parameters; FSDP_DTYPE_NONE: unknown         */
    bool has_precision; /**< the policy below is known                       */
    fsdp_mixed_precision_policy_t precision;
    int averaging;        /**< fsdp_averaging_t; -1: unknown                 */
    double divide_factor; /**< NaN: none, the averaging's own                */
    int reduce_order;     /**< fsdp_reduce_order_t; -1: unknown              */
    bool force_sum;       /**< collectives only sum; false if it is not said */
    double dropout;       /**< NaN: unknown                                  */
    int64_t seed; /**< of libfsdp's own dropout; -1: unknown                 */
    int num_parameters; /**< in model order; 0: unknown                    */
    const fsdp_trace_parameter_t *parameter;
    int num_units; /**< in forward order; 0: unknown                         */
    const char *const *unit;
} fsdp_trace_about_t;

typedef struct fsdp_trace fsdp_trace_t;

/** Opens the folder and checks all that can be checked without reading values.
 *  On failure *trace is NULL. */
fsdp_status_t fsdp_trace_open(const char *dir, fsdp_trace_t **trace);
void fsdp_trace_close(fsdp_trace_t **trace);

/** The folder, as given. */
const char *fsdp_trace_path(const fsdp_trace_t *trace);
const fsdp_trace_about_t *fsdp_trace_about(const fsdp_trace_t *trace);

/** All records, in the order in which they happened: steps in turn; within one,
 *  what a rank met earlier comes earlier, and what several ranks share (a reduced
 *  gradient) comes after all that any of them met before it. */
size_t fsdp_trace_count(const fsdp_trace_t *trace);
const fsdp_trace_record_t *fsdp_trace_record(const fsdp_trace_t *trace,
                                             size_t i);
/** NULL: there is none. */
const fsdp_trace_record_t *fsdp_trace_find(const fsdp_trace_t *trace, long step,
                                           fsdp_trace_phase_t phase, int micro,
                                           const char *name);
/** The place of a record in that order, for fsdp_trace_record(). */
size_t fsdp_trace_index(const fsdp_trace_t *trace,
                        const fsdp_trace_record_t *record);

/** Two ranks' copies of one element that are not the same. */
typedef struct fsdp_trace_conflict {
    bool found;
    uint64_t element;
    int rank[2];
    double value[2];
} fsdp_trace_conflict_t;

/** Puts the pieces together.
 *  \param values    [numel]; NaN where nobody has the element
 *  \param owner     [numel], the lowest rank that has it, -1: nobody; or NULL
 *  \param conflict  the first element (by index) whose copies differ in a bit,
 *                   NaNs being alike; or NULL */
fsdp_status_t fsdp_trace_read(fsdp_trace_t *trace,
                              const fsdp_trace_record_t *record, double *values,
                              int *owner, fsdp_trace_conflict_t *conflict);

/** One rank's piece as it stands in its file.
 *  \param values    [piece.numel], or NULL
 *  \param element   [piece.numel], where each belongs in the whole; or NULL
 *  \param count     piece.numel; 0 if the rank has none */
fsdp_status_t fsdp_trace_read_rank(fsdp_trace_t *trace,
                                   const fsdp_trace_record_t *record, int rank,
                                   double *values, uint64_t *element,
                                   size_t *count);
/** The rank's piece; NULL: it has none. */
const fsdp_trace_piece_t *
fsdp_trace_find_piece(const fsdp_trace_record_t *record, int rank);

/** One collective of the ledger; strings are borrowed, NULL: unknown. */
typedef struct fsdp_trace_collective {
    long sequence;
    const char *kind, *unit, *dtype, *op, *group;
    uint64_t bytes;
} fsdp_trace_collective_t;

/** What the rank's ledger says of the step, in order; NULL and 0 if nothing was
 *  recorded. */
const fsdp_trace_collective_t *fsdp_trace_ledger(const fsdp_trace_t *trace,
                                                 long step, int rank,
                                                 size_t *count);

/** The data-parallel rank that `rank` said it was in this step; -1: unknown. */
int fsdp_trace_data_parallel_rank(const fsdp_trace_t *trace, long step,
                                  int rank);

/* ---- recording ------------------------------------------------------------ */

/** Writes what a sharded run meets, each rank its own files.  Not a bit of the
 *  run changes. */
typedef struct fsdp_trace_recorder fsdp_trace_recorder_t;

typedef struct fsdp_trace_recorder_options {
    const char *dir;      /**< must not hold a trace; is made if missing      */
    fsdp_module_t *model; /**< sharded; borrowed                              */
    fsdp_optimizer_t *optimizer; /**< of it; borrowed                         */
    fsdp_mesh_t *mesh; /**< all dimensions, for the ledger; borrowed          */
    int tensor;        /**< neighbouring ranks that share each batch          */
    long first_step, last_step; /**< that are recorded                        */
    /** What trace.json shall say; ranks, steps, parameters and units are filled
     *  in.  gradient_sync, micro_batches, replicas, shards and grad_clip count
     *  here too.  Borrowed, with its strings, until the end. */
    const fsdp_trace_about_t *about;
} fsdp_trace_recorder_options_t;

/** All of this is collective, and called in this order: begin_step, for each
 *  micro-batch: micro_batch, input for each, (the forward), loss, (the
 *  backward); gradients (before clipping), norm (after it), update (after the
 *  optimizer), end_step.  Steps that are not recorded cost nothing.  On failure
 *  *recorder is NULL. */
fsdp_status_t
fsdp_trace_recorder_create(const fsdp_trace_recorder_options_t *options,
                           fsdp_trace_recorder_t **recorder);
void fsdp_trace_recorder_begin_step(fsdp_trace_recorder_t *recorder, long step);
/** Our j-th of the step begins. */
void fsdp_trace_recorder_micro_batch(fsdp_trace_recorder_t *recorder, int j);
void fsdp_trace_recorder_input(fsdp_trace_recorder_t *recorder,
                               const char *name, const fsdp_tensor_t *tensor);
/** The mean over the micro-batch, before it is weighted or scaled. */
void fsdp_trace_recorder_loss(fsdp_trace_recorder_t *recorder,
                              const fsdp_tensor_t *loss);
void fsdp_trace_recorder_gradients(fsdp_trace_recorder_t *recorder);
void fsdp_trace_recorder_norm(fsdp_trace_recorder_t *recorder, double norm);
void fsdp_trace_recorder_update(fsdp_trace_recorder_t *recorder, double lr);
/** The step is on the disk, or the error (FSDP_ERR_IO) is told. */
fsdp_status_t fsdp_trace_recorder_end_step(fsdp_trace_recorder_t *recorder);
/** Writes trace.json, if a step was recorded and none failed; frees, nulls. */
fsdp_status_t fsdp_trace_recorder_finish(fsdp_trace_recorder_t **recorder);

#endif
