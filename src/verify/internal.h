/** \file internal.h  Floor 6, verify: what the files of this room share.
 *
 *  Letters:
 *      W    ranks
 *      m    micro-batches per rank and step
 *      g    j W + r, the global index of rank r's j-th micro-batch
 *
 *  Everything here is allocated under fsdp_memory_override(FSDP_MEM_BASELINE).
 */
#ifndef FSDP_VERIFY_INTERNAL_H
#define FSDP_VERIFY_INTERNAL_H

#include "fsdp/verify.h"
#include "verify/records.h"
#include "verify/term_sum.h"

/** One parameter, in the run and (on rank 0) in the baseline. */
typedef struct verified {
    fsdp_parameter_t *run, *base; /**< borrowed                             */
    bool managed;
    const char *unit; /**< "(root)" for the root's; borrowed              */
    fsdp_dtype_t dtype;
    size_t numel;       /**< of the whole                                   */
    size_t local_numel; /**< this rank's rows                               */
    size_t chunk_numel; /**< a padded shard                                 */

    /* The baseline's, on rank 0. */
    term_sum_t over_ranks;  /**< of one j                                   */
    term_sum_t over_micros; /**< of the step                                */
    void *reduced;  /**< of this j, divided; level phase only, NULL: none     */
    void *grad;     /**< of the step; NULL: none                              */
    void *state[2]; /**< momentum_buffer, or exp_avg and exp_avg_sq          */
    long updates;   /**< that it has had                                      */
    /* With the order `mpi`: sums of |terms| in double. */
    double *magnitude_of_j, *magnitude;
} verified_t;

struct fsdp_verifier {
    fsdp_verify_options_t options;
    fsdp_comm_t *comm; /**< our own, so that the run's traffic is its own    */
    int rank, size;    /**< W                                                */
    fsdp_dtype_t dtype;
    verified_t *param;
    int num_params;
    long step;
    int micro; /**< j                                                */

    watch_t *watch; /**< on the run's units                               */
    int num_watches;
    recorder_t recorder, *recorder_now; /**< of the run                      */

    /* On rank 0. */
    fsdp_module_t *baseline;
    watch_t *base_watch;
    recorder_t *base_recorder, *base_recorder_now; /**< [W]                  */
    double *losses; /**< [m W]                                            */
    uint64_t key;   /**< of the candidate                                 */
    fsdp_divergence_t candidate; /**< earliest divergence of the phase       */

    fsdp_verify_report_t of_step, total;
};

/* ---- compare.c ---------------------------------------------------------- */

/** What is compared, and how it is told. */
typedef struct place {
    const char *phase, *unit, *name;
    int micro;          /**< -1: none                                       */
    int rank;           /**< who owns it, if chunk_numel is 0               */
    size_t chunk_numel; /**< else element i is of rank i / chunk_numel      */
    uint64_t key;       /**< when it happened, within one call              */
    fsdp_dtype_t ulp_dtype; /**< FSDP_DTYPE_NONE: that of the values         */
    const double *bound; /**< per element; NULL: bits                        */
} place_t;

/** Rank 0: compares n values; `ours` or `expected` may be NULL: there is none,
 *  which is told as NaN. */
void verifier_compare(fsdp_verifier_t *verifier, const place_t *place,
                      fsdp_dtype_t dtype, const void *ours,
                      const void *expected, size_t n);
/** Rank 0: the phase is over; the earliest divergence in it counts. */
void verifier_settle(fsdp_verifier_t *verifier);
/** Distance in units in the last place; INFINITY if one is not finite. */
double verify_ulps(fsdp_dtype_t dtype, double a, double b);

/* ---- collect.c: all collective over the verifier's communicator ---------- */

/** On rank 0 the whole parameter-like thing whose padded rows are `local` (NULL:
 *  this rank has none), [W, chunk_numel] with the padding at the end; the caller
 *  frees.  NULL elsewhere. */
void *verifier_gather_rows(fsdp_verifier_t *verifier, const verified_t *param,
                           const void *local);
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

/* ---- baseline.c: on rank 0 ----------------------------------------------- */

void baseline_create(fsdp_verifier_t *verifier);
void baseline_destroy(fsdp_verifier_t *verifier);
/** Rank r's j-th micro-batch: forward, backward, gradients into the sums. */
void baseline_run(fsdp_verifier_t *verifier, int j, int r);
/** All ranks' j-th are done: sums over the ranks, divides. */
void baseline_reduce(fsdp_verifier_t *verifier);
/** All micro-batches are done: the gradients of the step. */
void baseline_gradients(fsdp_verifier_t *verifier);
/** How far rounding may part two sums of the same n terms (each divided and
 *  added up further) whose magnitudes add up to magnitude[i]; [numel], the
 *  caller's. */
double *baseline_bound(const fsdp_verifier_t *verifier, const verified_t *param,
                       const double *magnitude, int roundings);
/** The step's gradients become the run's (order `mpi`). */
void baseline_adopt(verified_t *param, const void *grad);

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

/* ---- phases.c: collective ------------------------------------------------ */

/** Compares what one micro-batch recorded. */
void verifier_compare_records(fsdp_verifier_t *verifier);
/** The observer's. */
void verifier_on_gathered(void *context, fsdp_parameter_t *parameter,
                          const void *data);
void verifier_on_reduced(void *context, fsdp_parameter_t *parameter,
                         const void *grad);

#endif
