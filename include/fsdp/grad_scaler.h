/** \file grad_scaler.h  Floor 4, optim: a loss scale for float16 gradients.
 *
 *  PyTorch: torch.amp.GradScaler; torch/distributed/fsdp/sharded_grad_scaler.py,
 *  ShardedGradScaler.
 *
 *      fsdp_backward(tape, fsdp_grad_scaler_scale(scaler, tape, loss));
 *      fsdp_grad_scaler_unscale(scaler, optimizer);   to clip, else not needed
 *      fsdp_clip_grad_norm(model, 1.0, NULL);
 *      fsdp_grad_scaler_step(scaler, optimizer, NULL);
 *      fsdp_grad_scaler_update(scaler);
 *
 *  An infinity or a NaN in one element of one rank's gradients makes every rank
 *  skip the step, so replicas and shards stay those of one model.  All functions
 *  must be called on all ranks alike.  Usage errors are the same on all ranks.
 */
#ifndef FSDP_GRAD_SCALER_H
#define FSDP_GRAD_SCALER_H

#include "fsdp/comm.h"
#include "fsdp/optim.h"
#include "fsdp/tape.h"

typedef struct fsdp_grad_scaler fsdp_grad_scaler_t;

/** PyTorch's keyword arguments; start from fsdp_grad_scaler_options_default(). */
typedef struct fsdp_grad_scaler_options {
    double init_scale;     /**< 2^16, as all scales a float32                */
    double growth_factor;  /**< 2, above 1                                   */
    double backoff_factor; /**< 1/2, in (0, 1)                               */
    long growth_interval;  /**< 2000: steps in a row without a skipped one   */
    bool enabled;          /**< true; false: losses and steps pass unchanged */
    fsdp_comm_t *comm;     /**< NULL: all ranks, replicas too; borrowed.
                                PyTorch: process_group                       */
} fsdp_grad_scaler_options_t;

/** What a checkpoint keeps.  PyTorch: state_dict(). */
typedef struct fsdp_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    long growth_interval;
    long growth_tracker; /**< steps in a row so far */
} fsdp_grad_scaler_state_t;

fsdp_grad_scaler_options_t fsdp_grad_scaler_options_default(void);
/** NULL after a usage error.  NULL options: the default ones. */
fsdp_grad_scaler_t *
fsdp_grad_scaler_create(const fsdp_grad_scaler_options_t *options);
/** Nulls; NULL is allowed. */
void fsdp_grad_scaler_destroy(fsdp_grad_scaler_t **scaler);

/** loss times the scale, of the loss's type (a float16 loss overflows with the
 *  default scale: make it a float32 one with fsdp_cast()).  PyTorch: scale(). */
fsdp_tensor_t *fsdp_grad_scaler_scale(fsdp_grad_scaler_t *scaler,
                                      fsdp_tape_t *tape, fsdp_tensor_t *loss);
/** Multiplies the gradients of the optimizer's parameters by the scale's
 *  reciprocal (rounded to float32; one more rounding to the gradient's type) and
 *  looks for infinities and NaNs.  Errors: no loss was scaled yet; a second call
 *  for the same optimizer, or one after its step, before update().  Collective
 *  over the communicator.  PyTorch: unscale_(). */
fsdp_status_t fsdp_grad_scaler_unscale(fsdp_grad_scaler_t *scaler,
                                       fsdp_optimizer_t *optimizer);
/** Unscales unless that was done, and steps the optimizer if all gradients of
 *  all ranks are finite; `*stepped` (may be NULL) tells.  Errors: no loss was
 *  scaled yet; a second step before update().  Collective unless the gradients
 *  were unscaled before.  PyTorch: step(). */
fsdp_status_t fsdp_grad_scaler_step(fsdp_grad_scaler_t *scaler,
                                    fsdp_optimizer_t *optimizer, bool *stepped);
/** After the steps of all optimizers: scale x backoff_factor if one of them
 *  found an infinity, else scale x growth_factor if that is the
 *  growth_interval-th time in a row; a product that is too large or too small
 *  for float32 leaves the scale as it is.  Error: no
 *  gradients were unscaled since the last one.  Not collective.
 *  PyTorch: update(). */
fsdp_status_t fsdp_grad_scaler_update(fsdp_grad_scaler_t *scaler);
/** Ends the iteration with this scale instead.  Errors as for the
 *  options.  PyTorch: update(new_scale). */
fsdp_status_t fsdp_grad_scaler_update_to(fsdp_grad_scaler_t *scaler,
                                         double new_scale);

/** 1 if not enabled.  PyTorch: get_scale(). */
double fsdp_grad_scaler_get_scale(const fsdp_grad_scaler_t *scaler);
bool fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler_t *scaler);
/** Did the last unscale of this optimizer since update() find one, on any rank?
 *  PyTorch: _found_inf_per_device(). */
bool fsdp_grad_scaler_found_inf(const fsdp_grad_scaler_t *scaler,
                                const fsdp_optimizer_t *optimizer);

fsdp_grad_scaler_state_t
fsdp_grad_scaler_get_state(const fsdp_grad_scaler_t *scaler);
/** Errors as for the options.  Does nothing if not enabled. */
fsdp_status_t fsdp_grad_scaler_set_state(fsdp_grad_scaler_t *scaler,
                                         const fsdp_grad_scaler_state_t *state);

#endif
