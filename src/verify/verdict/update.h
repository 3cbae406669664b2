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

/** An update of one parameter, and its constants. */
typedef struct update {
    double *grad; /**< [numel], what the optimizer gets, before clipping
                             if that was not recorded                        */
    double coefficient, coefficient_error; /**< of that clipping            */
    double *parameter; /**< before                                          */
    double *state[2];  /**< before; NULL: zeros                             */
    double *after[2];  /**< their states after it; NULL: not recorded       */
    bool begins;       /**< it is the first                                 */
    double steps;      /**< this one counted                                */
    double lr, weight_decay;
    bool careless; /**< 1 - beta may have been taken in the type itself      */
    rounding_t round;
} update_t;

typedef enum update_what {
    UPDATE_PARAMETER,
    UPDATE_STATE_0, /**< exp_avg or momentum_buffer */
    UPDATE_STATE_1, /**< exp_avg_sq                 */
} update_what_t;

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

static inline running_t
update_state(const update_t *u, int k, uint64_t i)
{
    return running_exact(u->state[k] != NULL ? u->state[k][i] : 0);
}

#endif
