/** \file flat_param.h  Floor 3, fsdp: one flat parameter and its handle.
 *
 *  PyTorch: torch/distributed/fsdp/_flat_param.py, FlatParameter,
 *  FlatParamHandle.
 *
 *  Letters of this file:
 *      P    parameters of the unit
 *      n    elements of the flat parameter: the P parameters, what aligns them,
 *           and what makes n divisible by W
 *      W    ranks that it is cut over; 1 for NO_SHARD
 *      c    elements of a rank's chunk, n / W
 *
 *      flat    | p0 p0 p0 p0 p0 42 42 42 | p1 p1 p1 p1 | p2 p2 p2 .. |
 *      ranks   |  chunk of rank 0  |  chunk of rank 1  |  chunk of rank 2 |
 */
#ifndef FSDP_FLAT_PARAM_H
#define FSDP_FLAT_PARAM_H

#include "fsdp/fully_sharded_data_parallel.h"
#include "fsdp/grad_sum.h"

/** PyTorch: HandleShardingStrategy; and the stages of ZeRO that it lacks. */
typedef enum fsdp_handle_strategy {
    FSDP_HANDLE_FULL_SHARD,
    FSDP_HANDLE_SHARD_GRAD_OP,
    FSDP_HANDLE_NO_SHARD,
    FSDP_HANDLE_HYBRID_SHARD,
    FSDP_HANDLE_HYBRID_SHARD_ZERO2,
    FSDP_HANDLE_ZERO1, /**< parameters and gradients whole, optimizer cut */
    FSDP_HANDLE_ZERO2  /**< parameters whole                              */
} fsdp_handle_strategy_t;

/** One parameter's place.  parameter->managed points to it. */
typedef struct fsdp_flat_view {
    fsdp_managed_t managed;
    fsdp_parameter_t *parameter;           /**< borrowed                     */
    struct fsdp_flat_param_handle *handle; /**< borrowed                     */
    size_t offset, numel;                  /**< in the flat parameter        */
    bool is_grad_none; /**< zeroed since the last reduction, or had none      */
} fsdp_flat_view_t;

typedef struct fsdp_flat_param_handle {
    char *unit;                /**< the module's name; owned             */
    struct fsdp1_state *state; /**< borrowed; set by fsdp1_state         */
    fsdp_handle_strategy_t strategy;
    fsdp_comm_t *comm;      /**< over which gradients are reduced first, and
                                 parameters gathered; borrowed                */
    fsdp_comm_t *replicate; /**< then all-reduced over these; NULL; borrowed  */
    bool primary;           /**< this rank's replica counts (local.h)         */
    int rank, world_size;   /**< of the cut: 0 and 1 for NO_SHARD             */
    bool use_orig_params, keep_low_precision_grads;
    fsdp_reduce_order_t reduce_order;
    double predivide, postdivide;

    fsdp_flat_view_t *view; /**< [P]; owned                                   */
    int num_views;
    size_t numel, chunk; /**< n, c                                         */
    fsdp_dtype_t dtype, param_dtype, reduce_dtype;
    bool requires_grad; /**< of any parameter                             */

    void *local_shard;    /**< [c] of dtype: this rank's chunk.  Owned, but for
                            ZeRO-1 and 2 without param_dtype: within `whole`  */
    void *unsharded;      /**< [n] of param_dtype, NULL while there is none.
                            NO_SHARD without param_dtype: local_shard         */
    bool using_unsharded; /**< the parameters are the gathered ones           */
    fsdp_work_t *all_gather; /**< under way; NULL: none                       */
    bool gather_pending;     /**< nobody has waited for it                    */

    fsdp_grad_sum_t unsharded_grad; /**< [n] of param_dtype, without sync     */
    fsdp_grad_sum_t sharded_grad;   /**< [c] of dtype; ZeRO-1: [n]            */
    void *low_grad; /**< in place of sharded_grad: [c] of keep_dtype; owned   */
    bool gathered_since_update; /**< ZeRO-1 and 2: false after a reduction    */
    bool gather_forgotten;

    /* PyTorch's fields of the same names. */
    fsdp_training_state_t training_state;
    int handle_index, pre_forward_order_index, post_forward_index;
    bool needs_pre_forward_unshard, needs_pre_backward_unshard;
    bool prefetched, ran_pre_backward_hook;
} fsdp_flat_param_handle_t;

/** Lays the parameters out, cuts them, and makes this rank's initial values.
 *  `options`: the unit's; `strategy`: after the clamps.  Collective with
 *  sync_module_states.  PyTorch: FlatParamHandle.__init__(), shard(). */
fsdp_flat_param_handle_t *fsdp_flat_param_handle_create(
    const char *unit, fsdp_parameter_t *const *parameters, int num_parameters,
    fsdp_handle_strategy_t strategy, const fsdp1_options_t *options);
void fsdp_flat_param_handle_destroy(fsdp_flat_param_handle_t **handle);

/** Are parameters, gradients or the optimizer cut over ranks? */
bool
fsdp_flat_param_uses_sharded_strategy(const fsdp_flat_param_handle_t *handle);
/** ZeRO-1 or 2: parameters whole, the optimizer cut. */
bool fsdp_flat_param_keeps_whole(const fsdp_flat_param_handle_t *handle);
/** Is it freed after the forward? */
bool
fsdp_flat_param_reshards_after_forward(const fsdp_flat_param_handle_t *handle);
/** Does using the parameters need an all-gather now?  PyTorch:
 *  needs_unshard(). */
bool fsdp_flat_param_needs_unshard(const fsdp_flat_param_handle_t *handle);
/** Starts the all-gather if one is needed, else takes the parameters that are
 *  there (rounded to param_dtype for NO_SHARD).  PyTorch: pre_unshard(),
 *  unshard(). */
void fsdp_flat_param_unshard(fsdp_flat_param_handle_t *handle);
/** Ends it, and lends the parameters out. */
void fsdp_flat_param_wait(fsdp_flat_param_handle_t *handle);
/** PyTorch: reshard(), post_reshard(). */
void fsdp_flat_param_reshard(fsdp_flat_param_handle_t *handle, bool free_it);
/** ZeRO-1 and 2: all-gathers the chunks into the whole. */
void fsdp_flat_param_gather_updates(fsdp_flat_param_handle_t *handle);
/** [n] of dtype on every rank: the whole in its own type; the caller owns it.
 *  Collective if the parameters are cut. */
void *fsdp_flat_param_gather_full(fsdp_flat_param_handle_t *handle,
                                  const void *chunk);

/** Lends the parameters out of `whole`, which that made; out of what is gathered
 *  again (nothing, maybe). */
void fsdp_flat_param_lend_full(fsdp_flat_param_handle_t *handle, void *whole);
void fsdp_flat_param_lend_gathered(fsdp_flat_param_handle_t *handle);

/** Elements [begin, begin + count) of the view that rank's chunk has, and
 *  where they stand in it. */
void fsdp_flat_view_in_shard(const fsdp_flat_view_t *view, int rank,
                             size_t *begin, size_t *count, size_t *in_shard);
/** The view of a parameter that a flat parameter manages, or NULL. */
fsdp_flat_view_t *fsdp_flat_view_of(const fsdp_parameter_t *parameter);

/* ---- flat_param_grad.c --------------------------------------------------- */

/** What parameter->managed leads to. */
extern const fsdp_manager_t fsdp_flat_view_manager;

/** Moves the parameters' new gradients into one flat one, zeros where there is
 *  none, [n] of param_dtype; NULL if no parameter has any.  The caller owns
 *  it. */
void *fsdp_flat_param_take_grads(fsdp_flat_param_handle_t *handle);
/** Adds it (owned from now on) to what there is without synchronisation. */
void fsdp_flat_param_accumulate(fsdp_flat_param_handle_t *handle, void *grad);
/** All that was added, owned by the caller; NULL: nothing. */
void *fsdp_flat_param_take_accumulated(fsdp_flat_param_handle_t *handle);
/** Adds a reduced gradient (owned from now on), laid out as sharded_grad, to
 *  those of earlier backwards.  PyTorch: _accumulate_sharded_grad(). */
void fsdp_flat_param_add_reduced(fsdp_flat_param_handle_t *handle, void *grad);
/** The end of a backward with synchronisation.  PyTorch:
 *  prepare_gradient_for_optim(). */
void
fsdp_flat_param_prepare_gradient_for_optim(fsdp_flat_param_handle_t *handle);
/** In which type it keeps the gradients, with keep_low_precision_grads. */
fsdp_dtype_t fsdp_flat_param_keep_dtype(const fsdp_flat_param_handle_t *handle);
/** The reduced gradient, widened if it is kept narrow; NULL: none. */
void *fsdp_flat_param_reduced_grad(fsdp_flat_param_handle_t *handle);
/** Elements of a reduced gradient, and where this rank's chunk begins in it. */
size_t fsdp_flat_param_grad_numel(const fsdp_flat_param_handle_t *handle);
size_t fsdp_flat_param_grad_begin(const fsdp_flat_param_handle_t *handle);

#endif
