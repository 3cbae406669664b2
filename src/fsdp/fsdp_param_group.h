/** \file fsdp_param_group.h  Floor 3, fsdp: parameters that travel together.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
 *
 *  A group is SHARDED or UNSHARDED.  What streams are in Python is a pair here:
 *  unshard() starts the all-gather, wait_for_unshard() ends it.
 */
#ifndef FSDP_FSDP_PARAM_GROUP_H
#define FSDP_FSDP_PARAM_GROUP_H

#include "fsdp/fsdp_collectives.h"

struct fsdp_param_group;

/** What all groups below one root share.  PyTorch: FSDPCommContext. */
typedef struct fsdp_comm_ctx {
    int users; /**< states that hold it                                      */
    struct fsdp_param_group **post_forward_order; /**< owned list, borrowed
                                                       groups                */
    size_t num_post_forward, post_forward_room;
    fsdp_reduce_scatter_state_t *reduce_scatter_state; /**< in flight        */
    struct fsdp_state *root;              /**< whose lazy init made it       */
    struct fsdp_state *iter_forward_root; /**< of the forward that runs now  */
    bool post_backward_final_callback_queued;
} fsdp_comm_ctx_t;

typedef struct fsdp_param_group {
    char *module_fqn; /**< "layers.0", or "layers.0, layers.1"; owned         */
    fsdp_param_t **fsdp_params;
    int num_params;
    fsdp_comm_t *comm; /**< borrowed from the mesh                           */
    fsdp_comm_ctx_t *comm_ctx; /**< borrowed; set by lazy init               */
    fsdp_training_state_t training_state;
    bool reshard_after_forward; /**< settled by lazy init                    */
    fsdp_reduce_order_t reduce_order;
    double gradient_divide_factor; /**< 0: the number of ranks               */
    fsdp_all_gather_result_t *all_gather_result; /**< in flight              */
    size_t *post_forward_indices; /**< owned                                 */
    size_t num_indices, index_room;
} fsdp_param_group_t;

fsdp_param_group_t *fsdp_param_group_create(const char *module_fqn,
                                            fsdp_parameter_t *const *parameters,
                                            int num_params,
                                            const fsdp_options_t *options);
void fsdp_param_group_destroy(fsdp_param_group_t **group);

bool fsdp_param_group_is_unsharded(const fsdp_param_group_t *group);

/* The runtime, in the order in which PyTorch's file has it. */
void fsdp_param_group_unshard(fsdp_param_group_t *group);
void fsdp_param_group_wait_for_unshard(fsdp_param_group_t *group);
/** Frees the gathered parameters, in the forward only if the policy says so. */
void fsdp_param_group_reshard(fsdp_param_group_t *group);

void fsdp_param_group_pre_forward(fsdp_param_group_t *group);
/** `record`: is there to be a backward? */
void fsdp_param_group_post_forward(fsdp_param_group_t *group, bool record);
void fsdp_param_group_pre_backward(fsdp_param_group_t *group);
void fsdp_param_group_post_backward(fsdp_param_group_t *group);
/** The end of a whole backward. */
void fsdp_param_group_finalize_backward(fsdp_param_group_t *group);

#endif
