/** \file update.h  Floor 6, verify: optimizers, one element at a time.
 *
 *  From what stands in their trace before the update; unknown things stop the
 *  questions that need them.  Bounds are twice the running error of PyTorch's
 *  formulas (running.h): any order of the same operations stays within it.
 */
#ifndef FSDP_VERIFY_VERDICT_UPDATE_H
#define FSDP_VERIFY_VERDICT_UPDATE_H

#include "verify/verdict/internal.h"
#include "verify/verdict/running.h"

/** How an update differs from the one that was meant, for the diagnosis; all
 *  zero: not at all. */
typedef struct update_variant {
    bool coupled;   /**< decay added to the gradient (AdamW)                */
    bool decoupled; /**< decay taken from the parameter (SGD)               */
    bool no_decay, decay_twice, decay_without_lr;
    bool no_correction1, no_correction2;
    bool eps_inside, eps_before_correction;
    bool betas_swapped;
    bool dampened, undampened, nesterov_other, no_momentum;
} update_variant_t;

/** An update of one parameter, and its constants. */
typedef struct update {
    const double *grad; /**< [numel], what the optimizer gets, before clipping
                             if that was not recorded                        */
    double coefficient, coefficient_error; /**< of that clipping            */
    const double *parameter; /**< before                                    */
    const double *state[2];  /**< before; NULL: zeros                       */
    const double *after[2];  /**< their states after it; NULL: not recorded */
    bool begins;  /**< it is the first                                 */
    double steps; /**< this one counted                                */
    double lr, weight_decay;
    bool careless; /**< 1 - beta may have been taken in the type itself      */
    rounding_t round;
    update_variant_t variant;
} update_t;

typedef enum update_what {
    UPDATE_PARAMETER,
    UPDATE_STATE_0, /**< exp_avg or momentum_buffer */
    UPDATE_STATE_1, /**< exp_avg_sq                 */
} update_what_t;

/** Sets decay and rate to those of the parameter's own group: what their script
 *  says of it counts, else what is meant for all.  u->lr is that of all. */
void update_choose_own(const fsdp_trace_about_t *meant,
                       const fsdp_trace_about_t *theirs, const char *name,
                       update_t *update);
/** Which of an update's results a phase is; false: none. */
bool update_what_of(fsdp_trace_phase_t phase, update_what_t *what);

running_t update_sgd(const fsdp_sgd_options_t *options, const update_t *update,
                     update_what_t what, uint64_t i);
running_t update_adamw(const fsdp_adamw_options_t *options,
                       const update_t *update, update_what_t what, uint64_t i);

/** The gradient, clipped. */
static inline running_t
update_gradient(const update_t *u, uint64_t i)
{
    running_t g = running_exact(u->grad[i]);
    if (u->coefficient == 1 && u->coefficient_error == 0)
        return g;
    return running_mul(u->round, g,
                       (running_t){u->coefficient, u->coefficient_error});
}

/** Its decay, as the variant has it. */
static inline double
update_decay(const update_t *u)
{
    return u->variant.no_decay      ? 0
           : u->variant.decay_twice ? 2 * u->weight_decay
                                    : u->weight_decay;
}

/** The gradient, clipped, with what coupled decay adds. */
static inline running_t
update_decayed_gradient(const update_t *u, uint64_t i)
{
    running_t g = update_gradient(u, i);
    if (update_decay(u) == 0)
        return g;
    running_t more =
        running_mul(u->round, running_constant(u->round, update_decay(u)),
                    running_exact(u->parameter[i]));
    return running_add(u->round, g, more);
}

/** The parameter, less what decoupled decay takes. */
static inline running_t
update_decayed_parameter(const update_t *u, uint64_t i)
{
    double rate = u->variant.decay_without_lr ? 1 : u->lr;
    return running_mul(u->round, running_exact(u->parameter[i]),
                       running_constant(u->round, 1 - rate * update_decay(u)));
}

static inline running_t
update_state(const update_t *u, int k, uint64_t i)
{
    return running_exact(u->state[k] != NULL ? u->state[k][i] : 0);
}

#endif
