/** \file variant.h  Floor 6, verify: an optimizer's step with one thing wrong. */
#ifndef FSDP_VERIFY_VARIANT_H
#define FSDP_VERIFY_VARIANT_H

#include "verify/diagnosis/hypothesis.h"

/** How a step differs from the one that was meant; all zero: not at all. */
typedef struct variant {
    bool coupled;   /**< decay added to the gradient (AdamW)              */
    bool decoupled; /**< decay taken from the parameter (SGD)             */
    bool no_decay, decay_twice, decay_without_lr;
    bool no_correction1, no_correction2;
    int more_steps; /**< counted                                              */
    bool eps_inside, eps_before_correction;
    bool betas_swapped;
    bool unclipped;
    double lr; /**< in place of the meant one; 0: that                   */
    bool dampened, undampened, nesterov_other, no_momentum;
} variant_t;

/** Theirs is what the optimizer that was meant would have made with that
 *  difference; the text is printed as in printf(). */
bool variant_explains(const symptom_t *symptom, cause_t *cause,
                      const variant_t *variant, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
