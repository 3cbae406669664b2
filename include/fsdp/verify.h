/** \file verify.h  Floor 6, verify: is the sharded run the unsharded one?
 *
 *  Rank 0 trains the same model a second time: whole, in one process, with
 *  nothing of src/comm or src/fsdp, one micro-batch after another, adding the
 *  gradients in the order and the types that the contract names (the
 *  micro-batch-ordered baseline, design C1).  After each step, or at each phase of it, everything is
 *  compared bit by bit; with the order `mpi` by a derived bound.
 */
#ifndef FSDP_VERIFY_H
#define FSDP_VERIFY_H

#include "fsdp/checkpoint.h"
#include "fsdp/fully_sharded_data_parallel.h"
#include "fsdp/grad_scaler.h"
#include "fsdp/optim.h"

/** What is trained; the run and the baseline both ask it. */
typedef struct fsdp_task {
    void *context;
    /** A new model, not sharded, with its initial values; the caller owns it.
     *  The verification calls this and `loss` on rank 0 only: not collective. */
    fsdp_module_t *(*build)(void *context);
    /** The loss of global micro-batch `micro` of step `step` (from 1), a scalar. */
    fsdp_tensor_t *(*loss)(void *context, fsdp_tape_t *tape,
                           fsdp_module_t *model, long step, int micro);
    /** What the tape must know for it (dropout); NULL: nothing. */
    fsdp_tape_options_t (*tape_options)(void *context, long step, int micro);
} fsdp_task_t;

typedef enum fsdp_verify_level {
    FSDP_VERIFY_OFF,
    FSDP_VERIFY_STEP, /**< losses, gradients, norm, parameters, states        */
    FSDP_VERIFY_PHASE /**< and gathered parameters, units' outputs and input
                           gradients, reduced gradients, where they happen    */
} fsdp_verify_level_t;

/** When gradients of several micro-batches are brought together over ranks. */
typedef enum fsdp_gradient_sync {
    FSDP_SYNC_EACH, /**< after each backward                                  */
    /** after the last; set_requires_gradient_sync(false) before              */
    FSDP_SYNC_LAST,
    /** reduce-scattered after each, all-reduced over the replicas after the
     *  last; set_requires_all_reduce(false) before                           */
    FSDP_SYNC_LAST_ALL_REDUCE
} fsdp_gradient_sync_t;

/** The global index, in the step, of the j-th micro-batch of a data-parallel
 *  rank (replica x shards + shard).  It is chosen such that the order `tree` adds
 *  up one and the same tree over the index, whoever adds when. */
int fsdp_global_micro_batch(fsdp_gradient_sync_t sync, int replicas, int shards,
                            int micro_batches, int rank, int j);

typedef struct fsdp_verify_options {
    fsdp_verify_level_t level;
    fsdp_task_t task;
    fsdp_module_t *model; /**< the sharded one; borrowed                   */
    fsdp_optimizer_t *optimizer; /**< of it; borrowed                         */
    fsdp_mesh_t *mesh;           /**< of the data-parallel ranks, as in
                                  fsdp_options_t                              */
    int expert_ranks; /**< P ranks, neighbours, among which experts are shared
                           out (fsdp/moe.h): parameters in parts are theirs and
                           are sharded over S / P; 0 or 1: nothing is          */
    fsdp_reduce_order_t reduce_order;
    int micro_batches; /**< per rank and step                           */
    fsdp_gradient_sync_t gradient_sync;
    fsdp_averaging_t averaging;
    double divide_factor; /**< as given to the units; 0: none              */
    bool force_sum;       /**< as given to the units                       */
    /** That of the units, output_dtype of the root alone; all zero
     *  (FSDP_DTYPE_NONE): none. */
    fsdp_mixed_precision_policy_t mp_policy;
    bool fsdp1; /**< the units are FSDP1's: they cast the root's inputs only,
                     average as FSDP_PRE_POST in every type, and add up without
                     synchronisation in the type of the backward              */
    const fsdp_grad_scaler_options_t *grad_scaler; /**< NULL: none; borrowed
                                                        during the call       */
    long good_steps; /**< in a row, that the scaler has seen already          */
    /** The run goes on from it: the baseline's parameters, optimizer states and
     *  numbers of updates are read from it whole, by rank 0 alone.  NULL: both
     *  begin with the task's initial values.  Borrowed during the call. */
    const fsdp_checkpoint_t *checkpoint;
    double clip_norm; /**< 0: the norm is taken, nothing is clipped    */
    bool adamw;       /**< else SGD                                    */
    fsdp_sgd_options_t sgd;
    fsdp_adamw_options_t adam;
} fsdp_verify_options_t;

/** Where the two runs first part. */
typedef struct fsdp_divergence {
    bool found;
    long step;
    char phase[32]; /**< "gathered parameter", "unit output", "input gradient",
                         "reduced gradient", "loss", "gradient", "norm",
                         "clipped gradient", "parameter", "exp_avg", ...,
                         "padding", "initial parameter"; "replica": a rank
                         has not what another one has                         */
    char what[32];  /**< of a replica: which of those it is a copy of         */
    char unit[96];  /**< the group, "(root)" for the root's                   */
    char name[96];  /**< the parameter; "" for losses, norms, activations     */
    int micro;      /**< global micro-batch; -1: none                         */
    size_t element; /**< row-major index in the whole tensor                  */
    int rank;       /**< who owns it                                          */
    double ours, expected;
    double ulps; /**< apart; INFINITY if not both finite                   */
    fsdp_dtype_t our_type, expected_type; /**< if it is the types that differ,
                                               else FSDP_DTYPE_NONE           */
} fsdp_divergence_t;

typedef struct fsdp_verify_report {
    uint64_t compared, differing; /**< values, so far or in one step          */
    double bound_ratio; /**< order `mpi`: largest |difference| / bound        */
    double largest_difference; /**< order `mpi`: of those within the bound    */
    fsdp_divergence_t first;   /**< of the whole run                       */
} fsdp_verify_report_t;

typedef struct fsdp_verifier fsdp_verifier_t;

/** All of this is collective over the mesh, and called in this order:
 *    begin_step, for each micro-batch: micro_batch (after its backward, before
 *    the tape is destroyed), gradients (before clipping), norm, update (after the
 *    optimizer), end_step. */
fsdp_verifier_t *fsdp_verifier_create(const fsdp_verify_options_t *options);
void fsdp_verifier_destroy(fsdp_verifier_t **verifier);
void fsdp_verifier_begin_step(fsdp_verifier_t *verifier, long step);
/** Our j-th micro-batch of the step gave `loss`. */
void fsdp_verifier_micro_batch(fsdp_verifier_t *verifier, int j, double loss);
/** `loss` is the mean over all micro-batches, as reported.  With a gradient
 *  scaler the gradients are still scaled. */
void fsdp_verifier_gradients(fsdp_verifier_t *verifier, double loss);
/** With a gradient scaler, after its unscale: the scale that losses had, and
 *  whether infinities were found. */
void fsdp_verifier_unscale(fsdp_verifier_t *verifier, double scale,
                           bool found_inf);
void fsdp_verifier_norm(fsdp_verifier_t *verifier, double norm);
/** `lr` is the rate that the step used. */
void fsdp_verifier_update(fsdp_verifier_t *verifier, double lr);
/** The counts of this step, the same on all ranks. */
fsdp_verify_report_t fsdp_verifier_end_step(fsdp_verifier_t *verifier);
/** Over all steps. */
fsdp_verify_report_t fsdp_verifier_total(const fsdp_verifier_t *verifier);

/** "first divergence: step 3, reduced gradient of ..., element ..." */
void fsdp_divergence_format(const fsdp_divergence_t *divergence, char *text,
                            size_t size);

/** The mean of the losses of all micro-batches, all_losses[micro], summed as a
 *  balanced tree over the index (`tree`), or left to right; in `dtype`. */
double fsdp_mean_loss(const double *losses, int count, fsdp_dtype_t dtype,
                      fsdp_reduce_order_t order);

#endif
