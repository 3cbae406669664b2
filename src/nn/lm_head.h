/** \file lm_head.h  Floor 2, nn: the head of a language model. */
#ifndef FSDP_NN_LM_HEAD_H
#define FSDP_NN_LM_HEAD_H

#include "fsdp/module.h"

/** "lm_head": x[.., C] -> logits [.., V]; with targets as a second input the
 *  mean cross-entropy, whose logits are never there all at once.  With
 *  `embedding` the weight is that parameter, under its name, as in PyTorch;
 *  without (NULL) it is lm_head.weight [V, C], normal(std). */
fsdp_module_t *fsdp_lm_head_create(fsdp_parameter_t *embedding, size_t vocab,
                                   size_t channels, double std,
                                   fsdp_dtype_t dtype, uint64_t seed);

/** The forward of a root whose children are a body and such a head: tokens ->
 *  logits of the last position; tokens, targets -> loss, to which a second
 *  output of the body (an auxiliary loss) is added. */
fsdp_values_t fsdp_lm_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                              fsdp_values_t inputs);
enum { FSDP_LM_BODY, FSDP_LM_HEAD };

#endif
