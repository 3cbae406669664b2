/** \file fsdp_param_group.h  Floor 3, fsdp: parameters that travel together.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
 *
 *  A group's parameters are SHARDED, SHARDED_POST_FORWARD or UNSHARDED together.
 *  What streams are in Python is a pair here: unshard() starts the all-gather,
 *  wait_for_unshard() ends it.
 */
#ifndef FSDP_FSDP_PARAM_GROUP_H
#define FSDP_FSDP_PARAM_GROUP_H

#include "fsdp/fsdp_collectives.h"

struct fsdp_param_group;

/** What all groups below one root share.  PyTorch: FSDPCommContext and
 *  FSDPStateContext. */
typedef struct fsdp_comm_ctx {
    int users; /**< states that hold it                                      */
    struct fsdp_param_group **post_forward_order; /**< owned list, borrowed
                                                       groups                */
    size_t num_post_forward, post_forward_room;
    fsdp_reduce_scatter_state_t *reduce_scatter_state; /**< in flight        */
    struct fsdp_state *root;              /**< whose lazy init made it       */
    struct fsdp_state *iter_forward_root; /**< of the forward that runs now  */
    bool post_backward_final_callback_queued;
    bool is_last_backward;
} fsdp_comm_ctx_t;

typedef struct fsdp_param_group {
    char *module_fqn; /**< "layers.0", or "layers.0, layers.1"; owned         */
    const struct fsdp_state *state; /**< whose group it is; borrowed          */
    int index, num_groups; /**< among the groups of that state                */
    fsdp_param_t **fsdp_params;
    int num_params;
    fsdp_mesh_t *mesh; /**< borrowed                                         */
    fsdp_comm_t *comm, *replicate_comm; /**< of the mesh; the second may be
                                             NULL                            */
    int replicate_rank;
    fsdp_comm_ctx_t *comm_ctx; /**< borrowed; set by lazy init               */
    fsdp_training_state_t training_state;

    /* How the forward leaves it. */
    bool reshard_after_forward; /**< settled by lazy init                    */
    fsdp_comm_t *post_forward_comm; /**< to these K ranks; NULL: to all      */

    /* What a user may set: see fsdp_module.h. */
    bool reduce_grads, all_reduce_grads, reshard_after_backward,
        unshard_in_backward, reduce_scatter_unused_params, force_sum;
    double gradient_divide_factor; /**< 0: the number of ranks               */
    fsdp_custom_comm_t custom;
    void (*all_reduce_hook)(void *context, fsdp_dtype_t dtype, void *output,
                            size_t numel);
    void *hook_context;

    fsdp_mixed_precision_policy_t mp_policy;
    fsdp_reduce_order_t reduce_order;
    fsdp_averaging_t averaging;
    fsdp_offload_t *offload; /**< owned hold; NULL: in memory                */
    bool defer_init;

    fsdp_all_gather_result_t *all_gather_result; /**< in flight              */
    fsdp_partial_reduce_output_t partial_reduce_output;
    size_t *post_forward_indices; /**< owned                                 */
    size_t num_indices, index_room;
} fsdp_param_group_t;

/** `dim[i]` is that along which parameters[i] is cut over `mesh`. */
fsdp_param_group_t *fsdp_param_group_create(const char *module_fqn,
                                            fsdp_mesh_t *mesh,
                                            fsdp_parameter_t *const *parameters,
                                            const int *dim, int num_params,
                                            const fsdp_options_t *options);
void fsdp_param_group_destroy(fsdp_param_group_t **group);
/** `k` is FSDP_RESHARD_TRUE, FSDP_RESHARD_FALSE or a number of ranks.
 *  Collective if that is new. */
void fsdp_param_group_set_reshard_after_forward(fsdp_param_group_t *group,
                                                int k);
/** PyTorch: FSDPParamGroup.lazy_init(): what must be so before a forward. */
void fsdp_param_group_lazy_init(fsdp_param_group_t *group);

fsdp_sharded_state_t
fsdp_param_group_sharded_state(const fsdp_param_group_t *group);

/** Tells the event hook. */
void fsdp_param_group_emit(const fsdp_param_group_t *group,
                           fsdp_event_kind_t kind);

/* The runtime, in the order in which PyTorch's file has it. */
void fsdp_param_group_unshard(fsdp_param_group_t *group);
void fsdp_param_group_wait_for_unshard(fsdp_param_group_t *group);
/** Frees the gathered parameters, in the forward only if the policy says so. */
void fsdp_param_group_reshard(fsdp_param_group_t *group);
/** Gives up what a forward or backward has left. */
void fsdp_param_group_reset_iter_state(fsdp_param_group_t *group);

void fsdp_param_group_pre_forward(fsdp_param_group_t *group);
/** `record`: is there to be a backward?  `recomputing`: a checkpoint's second
 *  forward, which leaves the parameters gathered. */
void fsdp_param_group_post_forward(fsdp_param_group_t *group, bool record,
                                   bool recomputing);
void fsdp_param_group_pre_backward(fsdp_param_group_t *group,
                                   bool default_prefetch);
void fsdp_param_group_post_backward(fsdp_param_group_t *group);
/** The end of a whole backward. */
void fsdp_param_group_finalize_backward(fsdp_param_group_t *group);
/** Starts the all-gather of a group that is needed soon, in the forward or in
 *  the backward.  PyTorch: _prefetch_unshard(). */
void fsdp_param_group_prefetch_unshard(fsdp_param_group_t *target,
                                       fsdp_training_state_t state);

#endif
