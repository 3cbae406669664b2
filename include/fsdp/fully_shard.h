/** \file fully_shard.h  Floor 3, fsdp: the subject.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fully_shard.py, 2.13.
 *
 *  One call makes one *parameter group*: the module's parameters that no nested
 *  call has taken.  A group is gathered by one all-gather before its module
 *  runs, forward and backward, and its gradients are reduced by one
 *  reduce-scatter.  So call it bottom-up, the root last.  What can be done with
 *  a module afterwards is in fsdp_module.h.
 */
#ifndef FSDP_FULLY_SHARD_H
#define FSDP_FULLY_SHARD_H

#include "fsdp/events.h"
#include "fsdp/local.h"
#include "fsdp/mesh.h"
#include "fsdp/module.h"

/** reshard_after_forward: free the gathered parameters after the forward and
 *  gather them again for the backward?  Or K > 0: keep this rank's 1 / K of
 *  them, and gather them again from K neighbours.  K must divide the number of
 *  ranks; 1 is FALSE, the number of ranks is TRUE. */
enum {
    FSDP_RESHARD_AUTO = -2, /**< PyTorch's None: yes, but not the root */
    FSDP_RESHARD_TRUE = -1,
    FSDP_RESHARD_FALSE = 0
};

/** In which types a group works; FSDP_DTYPE_NONE: leave it as it is.
 *  PyTorch: MixedPrecisionPolicy. */
typedef struct fsdp_mixed_precision_policy {
    fsdp_dtype_t param_dtype;  /**< of gathered parameters, and so of the
                                    computation; shards keep their own         */
    fsdp_dtype_t reduce_dtype; /**< in which gradients are reduced, and added
                                    up without synchronisation                 */
    fsdp_dtype_t output_dtype; /**< to which floating outputs are cast        */
    bool cast_forward_inputs;  /**< floating inputs to param_dtype; true by
                                    default                                    */
} fsdp_mixed_precision_policy_t;

/** Where shards, gradients and optimizer states live.  PyTorch:
 *  CPUOffloadPolicy, whose place is the CPU's memory; ours is the disk. */
typedef struct fsdp_offload_policy {
    const char *directory; /**< NULL: in memory.  Borrowed                    */
} fsdp_offload_policy_t;

/** How one parameter is cut.  PyTorch: ShardPlacementResult. */
typedef struct fsdp_shard_placement {
    int dim;           /**< negative ones count from the end; dims other than
                            0 must be divisible by the number of ranks         */
    fsdp_mesh_t *mesh; /**< NULL: that of the options.  Parameters of one call
                            with other meshes make groups of their own         */
} fsdp_shard_placement_t;

/** How the mean is made of the sum (design C4). */
typedef enum fsdp_averaging {
    /** The sum, then one division: gloo's and MPI's AVG. */
    FSDP_SUM_THEN_DIVIDE,
    /** Each term times 1/n, rounded to the type, then the sum: NCCL's AVG and
     *  PREMUL_SUM. */
    FSDP_PREMULTIPLY,
    /** A division by about the root before the sum and another after it: FSDP1,
     *  and FSDP2 for float16. */
    FSDP_PRE_POST
} fsdp_averaging_t;

/** "sum-then-divide", "premultiply", "pre-post". */
const char *fsdp_averaging_name(fsdp_averaging_t averaging);
bool fsdp_averaging_from_name(const char *name, fsdp_averaging_t *averaging);

/** PyTorch's keyword arguments; start from fsdp_options_default(). */
typedef struct fsdp_options {
    fsdp_mesh_t *mesh;         /**< one dimension, or two (replicate, shard);
                                    borrowed; must be given                    */
    int reshard_after_forward; /**< FSDP_RESHARD_AUTO by default              */
    /** Called for each parameter of the call; NULL: dim 0, the options' mesh. */
    fsdp_shard_placement_t (*shard_placement_fn)(
        void *context, const fsdp_parameter_t *parameter);
    void *placement_context;
    fsdp_mixed_precision_policy_t mp_policy;
    fsdp_offload_policy_t offload_policy;
    fsdp_parameter_t *const *ignored_params; /**< left alone; borrowed during
                                                  the call                     */
    int num_ignored_params;
    bool defer_init; /**< true: shards have no storage before
                          fsdp_module_materialize() or
                          fsdp_module_broadcast_from_rank0() (PyTorch's meta
                          device); a forward before that is an error         */
    /* Not PyTorch's: */
    fsdp_reduce_order_t reduce_order; /**< FSDP_ORDER_TREE by default         */
    fsdp_averaging_t averaging;       /**< FSDP_SUM_THEN_DIVIDE by default    */
} fsdp_options_t;

fsdp_options_t fsdp_options_default(void);

/** Shards the parameters of `module`: allocates this rank's part only, and makes
 *  its initial values.  Errors (the same on all ranks): no mesh or one of more
 *  than two dimensions, a second call on the same module, a
 *  reshard_after_forward that does not divide, a parameter that is in another
 *  group or has whole storage, a dim that does not exist or cannot be cut
 *  evenly, trainable parameters of two types in one group, a policy's dtype
 *  that is no floating type.  Collective over the mesh. */
fsdp_status_t fully_shard(fsdp_module_t *module, const fsdp_options_t *options);
/** Several modules as one group, gathered when the first of them runs and freed
 *  after the last. */
fsdp_status_t fully_shard_list(fsdp_module_t *const *modules, int num_modules,
                               const fsdp_options_t *options);

#endif
