/** \file optimizer.h  Floor 4, optim: what SGD and AdamW have in common.
 *
 *  PyTorch: torch/optim/optimizer.py, Optimizer.
 */
#ifndef FSDP_OPTIMIZER_H
#define FSDP_OPTIMIZER_H

#include "fsdp/optim.h"

enum { FSDP_OPTIMIZER_MAX_STATES = 2 };

/** One parameter and what the optimizer remembers of it.
 *  PyTorch: Optimizer.state[param]. */
typedef struct fsdp_slot {
    fsdp_parameter_t *parameter; /**< borrowed                              */
    long step;                   /**< steps that it has had a gradient in   */
    void *state[FSDP_OPTIMIZER_MAX_STATES]; /**< [S_p], zero padding; owned */
} fsdp_slot_t;

/** A kind of optimizer. */
typedef struct fsdp_optimizer_class {
    /** One step of some of this rank's elements: each by itself, since those in
     *  a file come in pieces.  slot->step counts it already, so the first is 1;
     *  states are zero then. */
    void (*update)(const fsdp_optimizer_t *optimizer, fsdp_slot_t *slot,
                   const fsdp_local_t *local);
    const char *state_name[FSDP_OPTIMIZER_MAX_STATES];
} fsdp_optimizer_class_t;

struct fsdp_optimizer {
    const fsdp_optimizer_class_t *kind;
    int num_states; /**< the first so many of state_name                    */
    double lr;
    union {
        fsdp_sgd_options_t sgd;
        fsdp_adamw_options_t adamw;
    } options; /**< as given; `lr` above is the present rate                */
    size_t num_slots;
    fsdp_slot_t *slot; /**< every parameter of the model once; owned        */
};

/** An optimizer of all parameters of `model`, each once, without states.  The
 *  caller fills in the options. */
fsdp_optimizer_t *fsdp_optimizer_create(const fsdp_optimizer_class_t *kind,
                                        int num_states, fsdp_module_t *model,
                                        double lr);

#endif
