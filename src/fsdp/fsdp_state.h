/** \file fsdp_state.h  Floor 3, fsdp: the hooks that make a module sharded.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_state.py, FSDPState.
 */
#ifndef FSDP_FSDP_STATE_H
#define FSDP_FSDP_STATE_H

#include "fsdp/fsdp_param_group.h"

typedef struct fsdp_state {
    fsdp_module_t **modules; /**< those of one fully_shard() call; borrowed   */
    int num_modules;
    int modules_alive;       /**< not destroyed yet                          */
    fsdp_param_group_t *group; /**< NULL if there were no parameters; owned  */
    int reshard_after_forward; /**< as it was asked for                      */
    fsdp_comm_ctx_t *comm_ctx; /**< NULL before lazy init                    */
    struct fsdp_state **all_states; /**< the root's: parents first; owned    */
    int num_states;
    fsdp_training_state_t training_state;
    bool *to_run_forward; /**< [num_modules] called in this forward?; owned  */
    int num_to_run;       /**< 0: between forwards                           */
} fsdp_state_t;

/** Makes the state and hooks it on the modules, whose last one to be destroyed
 *  frees it.  `group` is owned from now on. */
fsdp_state_t *fsdp_state_create(fsdp_module_t *const *modules, int num_modules,
                                fsdp_param_group_t *group,
                                const fsdp_options_t *options);

#endif
