/** \file variant.h  Floor 6, verify: an optimizer's step with one thing wrong. */
#ifndef FSDP_VERIFY_VARIANT_H
#define FSDP_VERIFY_VARIANT_H

#include "verify/diagnosis/hypothesis.h"
#include "verify/verdict/update.h"

/** How a step differs from the one that was meant; all zero: not at all. */
typedef struct variant {
    update_variant_t update;
    int more_steps; /**< counted                                             */
    bool unclipped;
    double lr; /**< in place of the meant one; 0: that                       */
} variant_t;

/** Theirs is what the optimizer that was meant would have made with that
 *  difference; the text is printed as in printf(). */
bool variant_explains(const symptom_t *symptom, cause_t *cause,
                      const variant_t *variant, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
