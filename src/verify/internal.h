/** \file internal.h  Floor 6, verify: what the files of this room share.
 *
 *  Letters:
 *      W    ranks
 *      S    ranks that parameters are cut over
 *      R    replicas, 1 without hybrid sharding
 *      N    S R, ranks with micro-batches of their own: rank d = r S + s of the
 *           data-parallel ones is shard s of replica r
 *      P    neighbours among which experts are shared out, 1 without
 *      m    micro-batches per rank and step
 *      g    the global index of a micro-batch, fsdp_global_micro_batch()
 *
 *  Everything here is allocated under fsdp_memory_override(FSDP_MEM_BASELINE).
 */
#ifndef FSDP_VERIFY_INTERNAL_H
#define FSDP_VERIFY_INTERNAL_H

#include "fsdp/verify.h"
#include "verify/averaging.h"
#include "verify/records.h"
#include "verify/term_sum.h"

/** One parameter, in the run and (on rank 0) in the baseline. */
typedef struct verified {
    fsdp_parameter_t *run, *base; /**< borrowed                             */
    const char *unit;    /**< "(root)" for the root's; borrowed              */
    fsdp_dtype_t dtype;  /**< of shards, gradients of the step, states       */
    fsdp_dtype_t lent;   /**< in which it is computed with                   */
    fsdp_dtype_t summed; /**< in which gradients are reduced                 */
    size_t numel;        /**< of the whole, larger tensor                    */
    size_t local_numel, local_padded_numel; /**< of this rank\'s buffer */
    size_t buffer_numel; /**< the longest buffer of any rank, with padding   */
    fsdp_layout_t *layout; /**< [W], on rank 0                              */
    bool *first; /**< [W], on rank 0: no rank before it keeps the same  */
    size_t *padded_numel; /**< [W], on rank 0: of its buffer               */

    /* The baseline's, on rank 0. */
    void *low; /**< the copy that it computes with; NULL: its own data       */
    int neighbours; /**< P, ranks whose gradients come as one sum, else 1     */
    int shards;     /**< S / P: ranks that it is cut over                     */
    averaging_t averaging;
    term_sum_t over_neighbours; /**< in the type of the backward              */
    term_sum_t over_shards, over_replicas;
    term_sum_t
        *delayed; /**< [N / P] sums over j before they are reduced (or [R]
                              before the all-reduce); NULL: none             */
    term_sum_t over_micros; /**< of the step                                 */
    int *destination;       /**< [numel] order `ring`: which rank gets it    */
    int *destination_replica;
    void *reduced;  /**< of this j, divided; level phase only, NULL: none     */
    void *grad;     /**< of the step; NULL: none                              */
    void *state[2]; /**< momentum_buffer, or exp_avg and exp_avg_sq          */
    long updates;   /**< that it has had                                      */
    /* With the order `mpi`: sums of |terms| in double. */
    double *magnitude_of_j, *magnitude;
    bool was_reduced; /**< in this j                                         */
} verified_t;

/** A unit of the run, and its module in the baseline (on rank 0). */
typedef struct unit {
    fsdp_module_t *run, *base; /**< borrowed                                */
    const char *name;          /**< "(root)"; borrowed                      */
    bool is_root;
    fsdp_verifier_t *verifier; /**< for hooks; borrowed                     */
    watch_t watch, base_watch; /**< level phase                             */
} unit_t;

/** The baseline's loss scale. */
typedef struct baseline_scaler {
    bool on, found_inf; /**< in this step */
    double scale, growth, backoff;
    long interval, good_steps;
} baseline_scaler_t;

struct fsdp_verifier {
    fsdp_verify_options_t options;
    fsdp_comm_t *comm; /**< our own, so that the run's traffic is its own    */
    int rank, size;    /**< W                                                */
    int shards, replicas;
    int *dp_rank; /**< [W], which data-parallel rank a rank is               */
    fsdp_dtype_t dtype;
    verified_t *param; /**< in PyTorch's order of the model                 */
    int num_params;
    unit_t *unit; /**< parents first                                        */
    int num_units;
    long step;
    int micro; /**< j                                                       */
    recorder_t recorder, *recorder_now; /**< of the run                     */

    /* On rank 0. */
    fsdp_module_t *baseline;
    recorder_t *base_recorder, *base_recorder_now; /**< [N]                  */
    baseline_scaler_t scaler;
    double *losses; /**< [m N]                                               */
    uint64_t key;   /**< of the candidate                                    */
    /** Replays look at each micro-batch's gradients; NULL: nobody does. */
    void (*after_backward)(void *context);
    void *after_context;
    fsdp_divergence_t candidate; /**< earliest divergence of the phase       */

    fsdp_verify_report_t of_step, total;
};

/** The global micro-batch that rank r runs as its j-th. */
static inline int
verifier_micro(const fsdp_verifier_t *v, int r, int j)
{
    return fsdp_global_micro_batch(v->options.gradient_sync, v->replicas,
                                   v->shards, v->options.micro_batches,
                                   v->dp_rank[r], j);
}

/* ---- compare.c ---------------------------------------------------------- */

/** What is compared, and how it is told. */
typedef struct place {
    const char *phase, *what, *unit, *name;
    int micro;      /**< -1: none                                        */
    int rank;       /**< who owns it                                     */
    size_t element; /**< of the first value                              */
    uint64_t key;   /**< when it happened, within one call               */
    fsdp_dtype_t ulp_dtype; /**< FSDP_DTYPE_NONE: that of the values         */
    const double *bound; /**< per element of the tensor; NULL: bits          */
} place_t;

/** Rank 0: compares n values; `ours` or `expected` may be NULL: there is none,
 *  which is told as NaN. */
void verifier_compare(fsdp_verifier_t *verifier, const place_t *place,
                      fsdp_dtype_t dtype, const void *ours,
                      const void *expected, size_t n);
/** Rank 0: something has another type than it should: one value that differs. */
void verifier_compare_types(fsdp_verifier_t *verifier, const place_t *place,
                            fsdp_dtype_t ours, fsdp_dtype_t expected);
/** Rank 0: the phase is over; the earliest divergence in it counts. */
void verifier_settle(fsdp_verifier_t *verifier);
/** Distance in units in the last place; INFINITY if one is not finite. */
double verify_ulps(fsdp_dtype_t dtype, double a, double b);

/* ---- collect.c: all collective over the verifier's communicator ---------- */

/** Each rank's value; [W] on rank 0, NULL elsewhere. */
double *verifier_gather_value(fsdp_verifier_t *verifier, const char *what,
                              double value);
/** Compares a value that all ranks should have: rank 0's with `expected`, the
 *  others' with rank 0's. */
void verifier_compare_replicas(fsdp_verifier_t *verifier, const char *phase,
                               double value, double expected);
/** Which of its things some rank has: `pointer` gives this rank's, NULL if
 *  none.  The list, [num_params], is the caller's. */
typedef void *(*thing_of_t)(fsdp_verifier_t *verifier, verified_t *param,
                            int i);
bool *verifier_some_rank_has(fsdp_verifier_t *verifier, thing_of_t thing,
                             int i);

/* ---- parts.c: what ranks keep of a parameter ------------------------------ */

/** Tells rank 0 how the parameter is laid out.  Collective. */
void verifier_learn_layout(fsdp_verifier_t *verifier, verified_t *param);
/** On rank 0 the buffers of all ranks, [W, buffer_numel], of the parameter-like
 *  thing whose part here is `local` (NULL: this rank has none); the caller
 *  frees.  NULL elsewhere.  Collective. */
void *verifier_gather_parts(fsdp_verifier_t *verifier, const verified_t *param,
                            const void *local);
/** Rank 0: puts the parts together to [numel], which the caller frees. */
void *verifier_put_together(const fsdp_verifier_t *verifier,
                            const verified_t *param, const void *all);
/** Rank 0: each rank's elements against the whole `expected` (NULL: there is
 *  none), and against each other where several ranks keep the same. */
void verifier_compare_parts(fsdp_verifier_t *verifier, const verified_t *param,
                            const place_t *place, const void *all,
                            const void *expected);
/** Rank 0: that the buffers are zero behind the elements. */
void verifier_compare_padding(fsdp_verifier_t *verifier,
                              const verified_t *param, const void *all);
/** Rank 0: who keeps an element of the whole: one in the same replica as rank
 *  `near` if there is one. */
int verifier_owner(const fsdp_verifier_t *verifier, const verified_t *param,
                   size_t element, int near);
/** Rank 0: which elements of the whole are in rank r's gathered parameter. */
fsdp_layout_t verifier_gathered_layout(const verified_t *param, int r);

/* ---- baseline.c: on rank 0 ----------------------------------------------- */

void baseline_create(fsdp_verifier_t *verifier);
void baseline_destroy(fsdp_verifier_t *verifier);
/** Data-parallel rank d's j-th micro-batch: forward, backward, gradients. */
void baseline_run(fsdp_verifier_t *verifier, int j, int d);

/* ---- baseline_restore.c: on rank 0 ---------------------------------------- */

/** Parameters, states and numbers of updates of a checkpoint. */
void baseline_restore(fsdp_verifier_t *verifier,
                      const fsdp_checkpoint_t *checkpoint);

/* ---- baseline_precision.c: on rank 0 -------------------------------------- */

/** Casts at the module's door, as the run's units do. */
void baseline_hook_casts(unit_t *unit);
/** In which types the parameter is lent and its gradient reduced. */
void baseline_choose_types(const fsdp_verifier_t *verifier, verified_t *param);
/** Lends the parameter in its type, and back. */
void baseline_lend(verified_t *param);
void baseline_take_back(verified_t *param);
/** The copies that are lent take the parameters' present values. */
void baseline_refresh(fsdp_verifier_t *verifier);

/* ---- baseline_reduce.c: on rank 0 ----------------------------------------- */

void baseline_prepare_sums(const fsdp_verifier_t *verifier, verified_t *param);
void baseline_free_sums(const fsdp_verifier_t *verifier, verified_t *param);
/** Takes over the gradient of rank d's micro-batch. */
void baseline_take_gradient(fsdp_verifier_t *verifier, verified_t *param,
                            int d);
/** All ranks' j-th are done: sums over the ranks, divides. */
void baseline_reduce(fsdp_verifier_t *verifier, int j);
/** All micro-batches are done: the gradients of the step. */
void baseline_gradients(fsdp_verifier_t *verifier);

/* ---- baseline_ring.c: on rank 0 ------------------------------------------- */

/** For each element at which of the added-up ranks the order `ring` ends. */
void baseline_find_destinations(const fsdp_verifier_t *verifier);

/* ---- baseline_bound.c: on rank 0, order `mpi` ----------------------------- */

/** How far rounding may part this gradient's two sums, of one j or (`of_step`)
 *  of the step; [numel], the caller's.  NULL: not at all. */
double *baseline_bound(const fsdp_verifier_t *verifier, const verified_t *param,
                       bool of_step);
/** A term's magnitude counts. */
void baseline_add_magnitude(verified_t *param, fsdp_dtype_t type,
                            const void *term);
/** The magnitudes of the j's that were reduced join those of the step. */
void baseline_end_micro_batch(fsdp_verifier_t *verifier);
void baseline_end_step(fsdp_verifier_t *verifier);
/** The step's gradients become the run's. */
void baseline_adopt(verified_t *param, const void *grad);

/* ---- baseline_scaler.c: on rank 0 ----------------------------------------- */

void baseline_create_scaler(fsdp_verifier_t *verifier);
/** The loss itself without a scaler. */
fsdp_tensor_t *baseline_scale_loss(const fsdp_verifier_t *verifier,
                                   fsdp_tape_t *tape, fsdp_tensor_t *loss);
/** The gradients of the step; true: there are infinities or NaNs among them. */
bool baseline_unscale(fsdp_verifier_t *verifier);
/** For the next step. */
void baseline_adapt_scale(fsdp_verifier_t *verifier);

/* ---- baseline_update.c: on rank 0 ---------------------------------------- */

double baseline_norm(const fsdp_verifier_t *verifier);
void baseline_clip(fsdp_verifier_t *verifier, double norm);
void baseline_update(fsdp_verifier_t *verifier, double lr);
/** The state of that name, "exp_avg" for instance; NULL if there is none. */
void *baseline_state(const fsdp_verifier_t *verifier, const verified_t *param,
                     const char *name);

/* ---- steps.c: collective ------------------------------------------------- */

/** All parameters, and that their padding is zero. */
void verifier_compare_parameters(fsdp_verifier_t *verifier, const char *phase);
/** All optimizer states. */
void verifier_compare_states(fsdp_verifier_t *verifier);

/* ---- phases_experts.c ---------------------------------------------------- */

/** Compares what experts who live on several ranks have recorded.
 *  \param at  [W], how far the records of that kind of each rank's baseline are
 *             read; on rank 0 only.  Collective. */
void verifier_compare_experts(fsdp_verifier_t *verifier, const record_t *record,
                              int *at);

/* ---- phases.c: collective ------------------------------------------------ */

/** The next record of that kind after the `*at`-th; NULL: there is none. */
const record_t *verifier_next_record(const recorder_t *recorder,
                                     record_kind_t kind, int *at);
/** Where a recorded activation is; the caller adds micro-batch and rank. */
place_t verifier_place_of(const record_t *record);

/** Compares what one micro-batch recorded. */
void verifier_compare_records(fsdp_verifier_t *verifier);
/** The observer's. */
void verifier_on_gathered(void *context, fsdp_parameter_t *parameter,
                          const void *data);
void verifier_on_reduced(void *context, fsdp_parameter_t *parameter,
                         const void *grad);

#endif
