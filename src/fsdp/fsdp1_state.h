/** \file fsdp1_state.h  Floor 3, fsdp: what a unit of FSDP1 knows.
 *
 *  PyTorch: torch/distributed/fsdp/_common_utils.py, _FSDPState, and
 *  _exec_order_utils.py, _ExecOrderData.
 */
#ifndef FSDP_FSDP1_STATE_H
#define FSDP_FSDP1_STATE_H

#include "fsdp/flat_param.h"

/** A list of borrowed handles that grows. */
typedef struct fsdp_handle_list {
    fsdp_flat_param_handle_t **handle;
    int count;
    size_t room;
} fsdp_handle_list_t;

void fsdp_handle_list_add(fsdp_handle_list_t *list,
                          fsdp_flat_param_handle_t *handle);

/** PyTorch: _ExecOrderData. */
typedef struct fsdp_exec_order_data {
    fsdp_handle_list_t all_handles;
    fsdp_handle_list_t pre_forward_order;  /**< of the first iteration        */
    fsdp_handle_list_t post_forward_order; /**< of this one                   */
    long iter;
    bool checking_order;
    int current_order_index;
    bool warning, warned; /**< in this iteration; in an earlier one           */
    fsdp_comm_t *comm;    /**< whose ranks must agree; borrowed               */
} fsdp_exec_order_data_t;

enum { FSDP_MAX_INFLIGHT_ALL_GATHERS = 2 };

struct fsdp1_state;

/** A gradient whose reduction is under way. */
typedef struct fsdp1_reduction {
    fsdp_flat_param_handle_t *handle; /**< NULL: none; borrowed               */
    fsdp_training_state_t training_state; /**< that it began in               */
    void *input;  /**< [n] of reduce_dtype, owned                             */
    void *output; /**< [c] of reduce_dtype, owned; NULL: the input            */
    fsdp_work_t *work;
} fsdp1_reduction_t;

/** What the units under one root share. */
typedef struct fsdp1_shared {
    int users;
    struct fsdp1_state *root; /**< borrowed                                   */
    fsdp_exec_order_data_t exec_order_data;
    fsdp_handle_list_t in_flight; /**< all-gathers, oldest first              */
    fsdp1_reduction_t reduction;
    bool post_backward_callback_queued;
    bool sync_gradients;
} fsdp1_shared_t;

/** PyTorch: TrainingState. */
typedef enum fsdp1_training_state {
    FSDP1_IDLE,
    FSDP1_FORWARD_BACKWARD,
    FSDP1_SUMMON_FULL_PARAMS
} fsdp1_training_state_t;

typedef struct fsdp1_state {
    fsdp_module_t *module; /**< borrowed                                      */
    fsdp1_options_t options;
    fsdp_handle_strategy_t strategy;  /**< after the clamp                   */
    fsdp_flat_param_handle_t *handle; /**< NULL: no parameters; owned        */
    fsdp1_shared_t *shared;           /**< NULL before lazy init             */
    struct fsdp1_state **all_states;  /**< the root's: parents first; owned  */
    int num_states;
    fsdp1_training_state_t training_state;
    const fsdp_tape_t *marked_tape; /**< the last one that it ran forward on  */
    int marks_ahead;                /**< places there where it was unsharded
                                         that a backward has not passed       */
    /* fsdp1_summon_full_params() */
    void *summoned; /**< [n] of dtype; owned if it is a copy                  */
    bool summoned_copy, summoned_gradients;
    fsdp1_summon_options_t summon_options;
} fsdp1_state_t;

/** The state that the module was given, or NULL. */
fsdp1_state_t *fsdp1_state_of(const fsdp_module_t *module);
/** The states of the module and below, parents first; the caller frees. */
fsdp1_state_t **fsdp1_states_below(fsdp_module_t *module, int *count);

/** Hooks a new unit on its module, which frees it.  `handle` is owned from now
 *  on. */
fsdp1_state_t *fsdp1_state_create(fsdp_module_t *module,
                                  const fsdp1_options_t *options,
                                  fsdp_handle_strategy_t strategy,
                                  fsdp_flat_param_handle_t *handle);

/* ---- _exec_order_utils.py ------------------------------------------------ */

void fsdp_exec_order_init(fsdp_exec_order_data_t *data,
                          const fsdp1_state_t *root);
void fsdp_exec_order_destroy(fsdp_exec_order_data_t *data);
fsdp_flat_param_handle_t *fsdp_exec_order_get_handle_to_backward_prefetch(
    const fsdp_exec_order_data_t *data, const fsdp_flat_param_handle_t *handle);
fsdp_flat_param_handle_t *fsdp_exec_order_get_handle_to_forward_prefetch(
    const fsdp_exec_order_data_t *data, const fsdp_flat_param_handle_t *handle);
/** Collective if the order is checked. */
void fsdp_exec_order_record_pre_forward(fsdp_exec_order_data_t *data,
                                        fsdp_flat_param_handle_t *handle,
                                        bool is_training);
void fsdp_exec_order_record_post_forward(fsdp_exec_order_data_t *data,
                                         fsdp_flat_param_handle_t *handle);
void fsdp_exec_order_next_iter(fsdp_exec_order_data_t *data);

/* ---- _runtime_utils.py --------------------------------------------------- */

/** Makes `state` a root, unless it is below one. */
void fsdp1_lazy_init(fsdp1_state_t *state);
/** The hooks of a unit. */
fsdp_module_hooks_t fsdp1_runtime_hooks(fsdp1_state_t *state);
/** Starts its all-gather, if it needs one.  In a forward, the tape is told where
 *  the unit was unsharded. */
void fsdp1_unshard(fsdp1_state_t *state, fsdp_tape_t *tape);
void fsdp1_unshard_and_wait(fsdp1_state_t *state, fsdp_tape_t *tape);
/** PyTorch: _reshard(). */
void fsdp1_reshard(fsdp1_state_t *state, bool free_it);
void fsdp1_register_post_backward(fsdp1_state_t *state, fsdp_tape_t *tape);
/** PyTorch: _prefetch_handle(). */
void fsdp1_prefetch(fsdp1_state_t *state, fsdp_tape_t *tape);
/** Forgets an all-gather that nobody waits for any more. */
void fsdp1_forget_in_flight(fsdp1_shared_t *shared,
                            const fsdp_flat_param_handle_t *handle);
/** PyTorch: _post_backward_reshard(), _should_free_in_backward(). */
void fsdp1_post_backward_reshard(fsdp1_state_t *state, fsdp_tape_t *tape);
bool fsdp1_should_free_in_backward(const fsdp1_state_t *state);
/** Starts the reduction of a flat gradient (owned from now on), and ends the one
 *  before.  PyTorch: _reduce_grad(), _reduce_grad_no_shard(). */
void fsdp1_reduce_grad(fsdp1_state_t *state, void *grad);
void fsdp1_reduce_grad_finish(fsdp1_shared_t *shared);

#endif
