/** \file fsdp_state.h  Floor 3, fsdp: the hooks that make a module sharded.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_state.py, FSDPState.
 */
#ifndef FSDP_FSDP_STATE_H
#define FSDP_FSDP_STATE_H

#include "fsdp/fsdp_param_group.h"

/** States whose groups are gathered ahead of their time. */
typedef struct fsdp_state_list {
    struct fsdp_state **state; /**< owned list, borrowed states              */
    int count;
} fsdp_state_list_t;

typedef struct fsdp_state {
    fsdp_module_t **modules; /**< those of one fully_shard() call; borrowed   */
    int num_modules;
    int modules_alive; /**< not destroyed yet                          */
    fsdp_param_group_t **groups; /**< one per mesh, none without parameters;
                                      owned                                  */
    int num_groups;
    int reshard_after_forward; /**< as it was asked for                      */
    fsdp_mixed_precision_policy_t mp_policy;
    bool is_last_backward; /**< the root's, until lazy init shares it        */
    fsdp_comm_ctx_t *comm_ctx; /**< NULL before lazy init                    */
    struct fsdp_state **all_states; /**< the root's: parents first; owned    */
    int num_states;
    fsdp_training_state_t training_state;
    fsdp_state_list_t forward_prefetch, backward_prefetch;
    bool *to_run_forward; /**< [num_modules] of a list: still to be called in
                               this forward; owned                           */
    int num_to_run;       /**< 0: between forwards                           */
} fsdp_state_t;

/** Makes the state and hooks it on the modules, whose last one to be destroyed
 *  frees it.  The groups and their list are owned from now on. */
fsdp_state_t *fsdp_state_create(fsdp_module_t *const *modules, int num_modules,
                                fsdp_param_group_t **groups, int num_groups,
                                const fsdp_options_t *options);

/** What must be known before the first forward: the root, and what all states
 * below it share.  Does nothing the second time.
 *  PyTorch: FSDPState._lazy_init(). */
void fsdp_state_lazy_init(fsdp_state_t *state);
/** Puts the state's hooks on its modules; `free_context` is called once by each
 *  module as it goes. */
void fsdp_state_hook(fsdp_state_t *state, void (*free_context)(void *context));

/** Gives up the iteration that runs: waits for what is on its way and throws it
 *  away.  The root's.  PyTorch: FSDPState._reset_iter_state(). */
void fsdp_state_reset_iter(fsdp_state_t *root);

#endif
