/** \file fsdp_param.h  Floor 3, fsdp: one parameter under fully_shard().
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, FSDPParam.
 */
#ifndef FSDP_FSDP_PARAM_H
#define FSDP_FSDP_PARAM_H

#include "fsdp/fsdp_common.h"
#include "fsdp/grad_sum.h"

typedef struct fsdp_param {
    fsdp_managed_t managed; /**< so that parameter->managed is this          */
    fsdp_parameter_t *parameter; /**< borrowed                               */
    struct fsdp_param_group *group; /**< borrowed                            */
    fsdp_shard_t shard;
    int rank;
    fsdp_sharded_state_t sharded_state;
    void *sharded_data;    /**< [S_p], this rank's chunk, zero padding; owned */
    void *unsharded_data;  /**< [W, S_p], begins with the whole parameter;
                                NULL while SHARDED; owned                    */
    fsdp_grad_sum_t grad;  /**< this rank's rows, padded like sharded_data   */
    void *fault_data;      /**< what an injected fault remembers; owned      */
    void *fault_grad;      /**< the same                                     */
} fsdp_param_t;

/** Cuts the parameter and makes this rank's initial values.
 *  PyTorch: FSDPParam._init_sharded_param(). */
fsdp_param_t *fsdp_param_create(fsdp_parameter_t *parameter,
                                struct fsdp_param_group *group, int rank,
                                int world_size);
void fsdp_param_destroy(fsdp_param_t **param);

/** Makes room for the gathered parameter.
 *  PyTorch: FSDPParam.alloc_all_gather_outputs(). */
void fsdp_param_alloc_unsharded(fsdp_param_t *param);
/** The registered parameter becomes the gathered one.
 *  PyTorch: FSDPParam.to_unsharded(). */
void fsdp_param_to_unsharded(fsdp_param_t *param);
/** Frees the gathered one.  PyTorch: FSDPParam.to_sharded(). */
void fsdp_param_to_sharded(fsdp_param_t *param);

/** The fsdp_param of a parameter that fully_shard() manages. */
static inline fsdp_param_t *
fsdp_param_of(const fsdp_parameter_t *parameter)
{
    return (fsdp_param_t *)parameter->managed;
}

/** S_p */
size_t fsdp_param_padded_numel(const fsdp_param_t *param);

#endif
