/** \file fully_sharded_data_parallel.h  Floor 3, fsdp: FSDP1.
 *
 *  PyTorch: torch/distributed/fsdp/fully_sharded_data_parallel.py and api.py,
 *  the class FullyShardedDataParallel, 2.13.
 *
 *  One call makes one *unit*: the parameters of the module that no nested unit
 *  has are laid one after another in one *flat parameter*, which is cut into W
 *  equal ranges without regard to where parameters begin.  So call it
 *  bottom-up, the root last, or give the root a policy (wrap.h).  A unit is
 *  gathered by one all-gather and its gradient reduced by one reduce-scatter,
 *  as in FSDP2, but the reduction begins when the gradients of all its
 *  parameters have come, and once a backward, however often the module was
 *  used.  Where some of a unit's trainable parameters got a gradient, the
 *  others get zeros.
 *
 *  The gradient, cast to the reduce type, is divided before the sum and after
 *  it, for every type: with N ranks (all of them, S R with replicas), p = 1,
 *  while N % p == 0 and N / p > p: p *= 2,
 *      x /= p;  sum over shard ranks;  sum over replicas;  x /= N / p
 *  in the reduce type; a division by 1 is skipped.  Then it is cast to the
 *  parameter's type and added to that of earlier backwards.  (Older releases
 *  had the rule for each dimension of a hybrid mesh.)
 *
 *  A module is in FSDP1 or in fully_shard(), not in both.  What optimizers,
 *  norms and checkpoints see of a parameter is in local.h: its elements within
 *  this rank's range, maybe none.
 *
 *  Not here: cpu_offload and device_id (there is one device, the CPU); buffers,
 *  which no module of this library has; StateDictType (checkpoints read
 *  local.h).
 */
#ifndef FSDP_FULLY_SHARDED_DATA_PARALLEL_H
#define FSDP_FULLY_SHARDED_DATA_PARALLEL_H

#include "fsdp/events.h"
#include "fsdp/local.h"
#include "fsdp/mesh.h"
#include "fsdp/wrap.h"

/** PyTorch: ShardingStrategy.  On one rank every strategy is NO_SHARD. */
typedef enum fsdp_sharding_strategy {
    FSDP_FULL_SHARD,    /**< parameters, gradients and optimizer state are cut;
                             freed after the forward (but the root's)         */
    FSDP_SHARD_GRAD_OP, /**< parameters stay whole from forward to backward   */
    FSDP_NO_SHARD,      /**< nothing is cut; gradients are all-reduced        */
    FSDP_HYBRID_SHARD,  /**< FULL_SHARD within a row of the mesh (replicate,
                             shard), all-reduce over the replicas             */
    FSDP_HYBRID_SHARD_ZERO2 /**< SHARD_GRAD_OP within a row                   */
} fsdp_sharding_strategy_t;

/** "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
 *  "_HYBRID_SHARD_ZERO2". */
const char *fsdp_sharding_strategy_name(fsdp_sharding_strategy_t strategy);
/** Also without the underscore; false if `name` is none of them. */
bool fsdp_sharding_strategy_from_name(const char *name,
                                      fsdp_sharding_strategy_t *strategy);
/** HYBRID_SHARD or _HYBRID_SHARD_ZERO2: needs a mesh of two dimensions. */
bool fsdp_sharding_strategy_is_hybrid(fsdp_sharding_strategy_t strategy);

/** When the all-gather of the unit that the backward needs next begins. */
typedef enum fsdp_backward_prefetch {
    FSDP_BACKWARD_PRE,  /**< before the gradients of the current unit         */
    FSDP_BACKWARD_POST, /**< after them, before their reduction               */
    FSDP_BACKWARD_PREFETCH_NONE
} fsdp_backward_prefetch_t;

/** "BACKWARD_PRE", "BACKWARD_POST", "NONE". */
const char *fsdp_backward_prefetch_name(fsdp_backward_prefetch_t prefetch);
bool fsdp_backward_prefetch_from_name(const char *name,
                                      fsdp_backward_prefetch_t *prefetch);

/** In which types a unit works; FSDP_DTYPE_NONE: its own.
 *  PyTorch: MixedPrecision. */
typedef struct fsdp_mixed_precision {
    fsdp_dtype_t param_dtype;  /**< of gathered parameters, and so of the
                                    computation                               */
    fsdp_dtype_t reduce_dtype; /**< of the reduction; none: param_dtype       */
    fsdp_dtype_t buffer_dtype; /**< there are no buffers: refused if given    */
    bool keep_low_precision_grads; /**< after a backward the reduced gradient
                                        is kept in param_dtype (rounded to it,
                                        and widened where it is read); NO_SHARD
                                        keeps it in reduce_dtype              */
    bool cast_forward_inputs; /**< floating inputs of the unit to param_dtype;
                                   false by default                           */
    bool cast_root_forward_inputs; /**< the same of the root; true by default */
} fsdp_mixed_precision_t;

/** PyTorch's keyword arguments; start from fsdp1_options_default(). */
typedef struct fsdp1_options {
    fsdp_mesh_t *mesh; /**< one dimension; two (replicate, shard) for the hybrid
                            strategies; borrowed; must be given               */
    fsdp_sharding_strategy_t sharding_strategy; /**< FULL_SHARD by default    */
    fsdp_wrap_policy_t auto_wrap_policy; /**< none by default                 */
    fsdp_backward_prefetch_t backward_prefetch; /**< BACKWARD_PRE by default  */
    fsdp_mixed_precision_t mixed_precision;
    fsdp_parameter_t *const *ignored_states; /**< left alone; borrowed during
                                                  the call                    */
    int num_ignored_states;
    /** Makes the initial values of elements [begin, begin + count) of the
     *  parameter, in its dtype, for a module whose values are not those that
     *  the parameter knows; a rank asks only for what it keeps.  NULL:
     *  fsdp_parameter_init_range(). */
    void (*param_init_fn)(void *context, const fsdp_parameter_t *parameter,
                          size_t begin, size_t count, void *out);
    void *param_init_context;
    bool
        sync_module_states; /**< all ranks begin with rank 0's values: rank r of
                                  the shard ranks gets its range from rank 0, a
                                  piece at a time                             */
    bool forward_prefetch;  /**< in a forward, begin the all-gather of the unit
                                  that came next in the first one             */
    bool limit_all_gathers; /**< at most two all-gathers in flight; true by
                                  default; the same for all units             */
    bool use_orig_params;   /**< parameters begin at multiples of 16 bytes of
                                  the gathered flat parameter, and may be frozen
                                  singly; the same for all units              */
    /* Not PyTorch's arguments: */
    bool
        check_execution_order; /**< PyTorch's debug level DETAIL: the ranks must
                                     run the units of the first forward in one
                                     order (else all end, with both orders'
                                     parameters named); a later forward in
                                     another order gets one warning           */
    double gradient_divide_factor; /**< 0: the number of ranks                */
    fsdp_reduce_order_t reduce_order; /**< FSDP_ORDER_TREE by default         */
} fsdp1_options_t;

fsdp1_options_t fsdp1_options_default(void);

/** Wraps `module`: applies the policy to the modules below, then makes a unit
 *  of what is left.  Allocates this rank's range only, and makes its initial
 *  values. Errors (the same on all ranks, and nothing was changed, but for
 *  nested units that a policy had made): no mesh, one of the wrong number of
 *  dimensions; a module that is wrapped already, or contains a wrapped one if
 *  there is a policy; a parameter that is in another unit or group, or has
 *  whole storage; parameters of several types, or of no floating type; some
 *  trainable and some frozen ones without use_orig_params; limit_all_gathers
 *  or use_orig_params other than those of units below; a dtype that is no
 *  floating type, a buffer_dtype; a negative factor. Collective over the mesh.
 *  PyTorch: FullyShardedDataParallel.__init__(). */
fsdp_status_t fsdp_fully_sharded_data_parallel(fsdp_module_t *module,
                                               const fsdp1_options_t *options);

/** Is it a unit of FSDP1? */
bool fsdp1_is_wrapped(const fsdp_module_t *module);
/** The strategy that the unit has in the end (see NO_SHARD on one rank). */
fsdp_sharding_strategy_t fsdp1_strategy(const fsdp_module_t *module);

/** False: backwards do not reduce; the whole gradients are added up on the
 *  rank in the type that the backward makes (param_dtype), until the first
 *  backward after it is set true again.  On the root, between steps; error for
 *  other modules.  PyTorch: no_sync(), whose context is begin (false) and end
 *  (true). */
fsdp_status_t fsdp1_set_requires_gradient_sync(fsdp_module_t *root,
                                               bool requires_sync);

/** What fsdp1_summon_full_params() was asked for. */
typedef struct fsdp1_summon_options {
    bool recurse;        /**< units below too; true by default                */
    bool writeback;      /**< changes are kept; true by default               */
    bool rank0_only;     /**< others have nothing; not with writeback         */
    bool offload_to_cpu; /**< parameters are there already: accepted, with
                              PyTorch's restrictions (sharded units only)     */
    bool with_grads;     /**< gradients too; needs use_orig_params, and not
                              offload_to_cpu                                  */
} fsdp1_summon_options_t;

fsdp1_summon_options_t fsdp1_summon_options_default(void);

/** Gathers the parameters whole, in their own types, whatever the precision
 *  policy, until fsdp1_release_full_params(): fsdp_parameter_data() gives
 *  them, and with_grads parameter->grad (of those that have one).  They may be
 *  written to.  No forward in between.  A module without units: nothing
 *  happens. Errors as PyTorch's (see the options), and inside a forward or
 *  backward, or when something is summoned already.  Collective over the mesh.
 *  PyTorch: summon_full_params(), a context. */
fsdp_status_t fsdp1_summon_full_params(fsdp_module_t *module,
                                       const fsdp1_summon_options_t *options);
/** Ends it: writes back what is this rank's, if that was asked for, and frees
 *  the rest.  An error if nothing is summoned. */
fsdp_status_t fsdp1_release_full_params(fsdp_module_t *module);

#endif
