/** \file dropout_key.h  Floor 2, nn: which random numbers a dropout uses. */
#ifndef FSDP_NN_DROPOUT_KEY_H
#define FSDP_NN_DROPOUT_KEY_H

#include "fsdp/status.h"
#include "fsdp/tape.h"
#include "tensor/kernels.h"

/** From the tape's options; p is 0 unless the tape is training. */
static inline fsdp_dropout_key_t
fsdp_dropout_key(const fsdp_tape_t *tape, double p, uint32_t layer)
{
    const fsdp_tape_options_t *o = fsdp_tape_get_options(tape);
    FSDP_CHECK(p >= 0 && p < 1, "dropout with a probability of %g", p);
    return (fsdp_dropout_key_t){.p = o->training ? p : 0,
                                .seed = o->seed,
                                .step = o->step,
                                .first_sample = o->first_sample,
                                .layer = layer};
}

/** Of attention whose first head is head `first_head` of its layer. */
static inline fsdp_dropout_key_t
fsdp_dropout_head_key(const fsdp_tape_t *tape, double p, uint32_t layer,
                      size_t first_head)
{
    fsdp_dropout_key_t key = fsdp_dropout_key(tape, p, layer);
    key.first_head = (uint32_t)first_head;
    return key;
}

#endif
