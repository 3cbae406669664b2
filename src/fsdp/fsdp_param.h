/** \file fsdp_param.h  Floor 3, fsdp: one parameter under fully_shard().
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, FSDPParam.
 *
 *                     orig dtype                    data dtype
 *      SHARDED        sharded_data [S_p]   --gather-->  unsharded_data [W, S_p]
 *      SHARDED_POST_FORWARD       post_forward_data [W S_p / K]  <--keep--'
 *
 *  The data dtype is the policy's param_dtype, if it has one.
 */
#ifndef FSDP_FSDP_PARAM_H
#define FSDP_FSDP_PARAM_H

#include "fsdp/fsdp_common.h"
#include "fsdp/grad_sum.h"
#include "fsdp/offload.h"

typedef struct fsdp_param {
    fsdp_managed_t managed; /**< so that parameter->managed is this          */
    fsdp_parameter_t *parameter; /**< borrowed                               */
    struct fsdp_param_group *group; /**< borrowed                            */
    fsdp_shard_t shard;
    int rank;
    fsdp_dtype_t param_dtype, reduce_dtype; /**< after PyTorch's clamps; NONE:
                                                 no cast                      */
    fsdp_sharded_state_t sharded_state;
    void *sharded_data; /**< this rank's chunk, zero padding; owned; NULL while
                               its initial values are put off                */
    void *unsharded_data;    /**< begins with the whole parameter; NULL while
                               SHARDED; owned                                */
    void *post_forward_data; /**< this rank's 1 / K of it; owned             */
    fsdp_grad_sum_t grad;    /**< of the shard, in its dtype, padded likewise */
    fsdp_grad_sum_t unsharded_accumulated_grad; /**< whole, without
                                                     synchronisation, in the
                                                     reduce dtype             */
    void *fault_data; /**< what an injected fault remembers; owned      */
    void *fault_grad; /**< the same                                     */
} fsdp_param_t;

/** Cuts the parameter along `dim` and, unless that is put off, makes this rank's
 *  initial values.  PyTorch: FSDPParam._init_sharded_param(). */
fsdp_param_t *fsdp_param_create(fsdp_parameter_t *parameter,
                                struct fsdp_param_group *group, int dim);
void fsdp_param_destroy(fsdp_param_t **param);
/** Storage for the shard, filled with initial values. */
void fsdp_param_materialize(fsdp_param_t *param);
/** PyTorch: FSDPParam.init_dtype_attrs(). */
void fsdp_param_init_dtype_attrs(fsdp_param_t *param,
                                 const fsdp_mixed_precision_policy_t *policy);

/** Of gathered parameters and of their gradients. */
fsdp_dtype_t fsdp_param_data_dtype(const fsdp_param_t *param);
/** In which this parameter's gradients are reduced. */
fsdp_dtype_t fsdp_param_reduce_dtype(const fsdp_param_t *param);

/** Makes room for the gathered parameter.
 *  PyTorch: FSDPParam.alloc_all_gather_outputs(). */
void fsdp_param_alloc_unsharded(fsdp_param_t *param);
/** The registered parameter becomes the gathered one.
 *  PyTorch: FSDPParam.to_unsharded(). */
void fsdp_param_to_unsharded(fsdp_param_t *param);
/** Frees the gathered one.  PyTorch: FSDPParam.to_sharded(). */
void fsdp_param_to_sharded(fsdp_param_t *param);
/** Keeps slice `rank` of `k` of the padded gathered one, frees the rest.
 *  PyTorch: FSDPParam.to_sharded_post_forward(). */
void fsdp_param_to_sharded_post_forward(fsdp_param_t *param, int rank, int k);

/** Moves the gradient of this backward, if there is one, into the unsharded
 *  accumulator.  PyTorch: accumulate_unsharded_grad_if_needed(),
 *  to_accumulated_grad_if_needed(). */
void fsdp_param_accumulate_unsharded_grad(fsdp_param_t *param);

/** S_p */
size_t fsdp_param_padded_numel(const fsdp_param_t *param);
/** W S_p */
size_t fsdp_param_gathered_numel(const fsdp_param_t *param);

/** The fsdp_param of a parameter that fully_shard() manages; NULL for others. */
fsdp_param_t *fsdp_param_of(const fsdp_parameter_t *parameter);

#endif
