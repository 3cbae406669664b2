/** \file trainer.h  A small training loop under verification, as a user of the
 *  library would write it.
 */
#ifndef TESTS_VERIFY_TRAINER_H
#define TESTS_VERIFY_TRAINER_H

#include "fsdp/verify.h"

enum { TRAINER_STEPS = 3 };

/** What is changed behind the verifier's back, at step 2 on one rank, by as little
 *  as possible: the last rank that has rows of the first parameter. */
typedef enum tamper {
    TAMPER_NOTHING,
    TAMPER_LOSS, /**< of its last micro-batch                            */
    TAMPER_MEAN_LOSS,
    TAMPER_GRADIENT,      /**< the last element of that parameter        */
    TAMPER_LOST_GRADIENT, /**< it becomes None                           */
    TAMPER_NORM,
    TAMPER_CLIPPED,   /**< the gradient after clipping                   */
    TAMPER_PARAMETER, /**< after the optimizer                           */
    TAMPER_STATE,     /**< the last of the optimizer's                   */
    TAMPER_PADDING    /**< on the last rank, of the first parameter that
                           has some there                                */
} tamper_t;

typedef struct trainer {
    bool gpt2; /**< else an MLP of widths 5, 7, 6, 3 */
    fsdp_dtype_t dtype;
    fsdp_reduce_order_t order;
    fsdp_verify_level_t level;
    int micros;       /**< m */
    bool adamw;       /**< else SGD with momentum and weight decay */
    double dampening; /**< 0: Nesterov's momentum */
    double clip;      /**< 0: no clipping */
    double dropout;
    int replicas; /**< 0: no replicas; the last rank tampers then           */
    tamper_t tamper;
    bool other_seed; /**< the run's initial values are not the baseline's */
} trainer_t;

typedef struct trainer_result {
    fsdp_verify_report_t step[TRAINER_STEPS], total;
    /** from the shapes: */
    size_t values, padding; /**< of the parameters; of their shards, summed */
    bool tampered; /**< was there something to tamper with?              */
    int tamperer;  /**< that rank                                        */
} trainer_result_t;

trainer_result_t trainer_run(const trainer_t *trainer);

#endif
