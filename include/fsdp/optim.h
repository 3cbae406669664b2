/** \file optim.h  Floor 4, optim: optimizers on shards, schedules, clipping.
 *
 *  PyTorch: torch/optim/sgd.py, adamw.py; torch/nn/utils/clip_grad.py.
 *
 *  An optimizer keeps state for this rank's rows only.  Build it after
 *  fully_shard().  Parameters without a gradient are left alone.
 *
 *  Parameters that are bfloat16 or float16 themselves have states of their type,
 *  and each of PyTorch's tensor operations rounds once, as in its vector loops.
 */
#ifndef FSDP_OPTIM_H
#define FSDP_OPTIM_H

#include "fsdp/fully_shard.h"

typedef struct fsdp_optimizer fsdp_optimizer_t;

typedef struct fsdp_sgd_options {
    double lr; /**< 1e-3 by default, as PyTorch's */
    double momentum, dampening, weight_decay;
    bool nesterov;
} fsdp_sgd_options_t;

typedef struct fsdp_adamw_options {
    double lr;           /**< 1e-3 */
    double beta1, beta2; /**< 0.9, 0.999 */
    double eps;          /**< 1e-8 */
    double weight_decay; /**< 0.01 */
} fsdp_adamw_options_t;

fsdp_sgd_options_t fsdp_sgd_options_default(void);
fsdp_adamw_options_t fsdp_adamw_options_default(void);

/** NULL after a usage error (a negative rate, Nesterov without momentum or with
 *  dampening, ...): see fsdp_error_message().  The model must outlive it. */
fsdp_optimizer_t *fsdp_sgd_create(fsdp_module_t *model,
                                  const fsdp_sgd_options_t *options);
fsdp_optimizer_t *fsdp_adamw_create(fsdp_module_t *model,
                                    const fsdp_adamw_options_t *options);
void fsdp_optimizer_destroy(fsdp_optimizer_t **optimizer);

void fsdp_optimizer_step(fsdp_optimizer_t *optimizer);
/** Gradients become None. */
void fsdp_optimizer_zero_grad(fsdp_optimizer_t *optimizer);
void fsdp_optimizer_set_lr(fsdp_optimizer_t *optimizer, double lr);
double fsdp_optimizer_get_lr(const fsdp_optimizer_t *optimizer);

/** Names of the state tensors that each parameter has: SGD with momentum:
 *  "momentum_buffer"; AdamW: "exp_avg", "exp_avg_sq".  NULL past the last. */
const char *fsdp_optimizer_state_name(const fsdp_optimizer_t *optimizer,
                                      int i);
/** This rank's rows of state i, [padded_numel] of the parameter's dtype with
 *  zero padding; NULL if the parameter has had no step yet. */
void *fsdp_optimizer_state(fsdp_optimizer_t *optimizer,
                           const fsdp_parameter_t *parameter, int i);

/** Steps in which the parameter had a gradient; what bias correction counts. */
long fsdp_optimizer_steps_of(const fsdp_optimizer_t *optimizer,
                             const fsdp_parameter_t *parameter);
/** As if it had had `steps` of them: makes the states (zeros), for a checkpoint to
 *  fill; 0 takes them away. */
void fsdp_optimizer_restore(fsdp_optimizer_t *optimizer,
                            fsdp_parameter_t *parameter, long steps);

/** Linear warm-up from 0 over `warmup_steps`, then a cosine down to min_lr at
 *  total_steps; warmup_steps = total_steps = 0: constant. */
typedef struct fsdp_schedule {
    double lr, min_lr;
    long warmup_steps, total_steps;
} fsdp_schedule_t;
/** The rate of step `step`, counted from 1. */
double fsdp_schedule_lr(const fsdp_schedule_t *schedule, long step);

/** The norm over all gradients of the model: p = 1, 2 or INFINITY.  For 1 and 2
 *  the sum is exact and rounded once, so it does not depend on how the model
 *  is cut.  The result is rounded to the gradients' dtype.  Collective
 *  over the world. */
fsdp_status_t fsdp_grad_norm(fsdp_module_t *model, double norm_type,
                             double *total_norm);
/** The same, then every gradient times min(1, max_norm / (total + 1e-6)),
 *  computed in the gradients' dtype.  `total_norm` may be NULL.
 *  PyTorch: torch.nn.utils.clip_grad_norm_(). */
fsdp_status_t fsdp_clip_grad_norm_type(fsdp_module_t *model, double max_norm,
                                       double norm_type, double *total_norm);
/** p = 2. */
fsdp_status_t fsdp_clip_grad_norm(fsdp_module_t *model, double max_norm,
                                  double *total_norm);

#endif
