/** \file gpt2_internal.h  Floor 2, nn: the parts of GPT-2. */
#ifndef FSDP_NN_GPT2_INTERNAL_H
#define FSDP_NN_GPT2_INTERNAL_H

#include "fsdp/gpt2.h"

/** "transformer.h.I" for the name "transformer.h.I": layer norm, attention,
 *  layer norm, MLP, each pair added to what came in.  x [B,T,C] -> [B,T,C].
 *  With experts that have an auxiliary loss there is a second value, the sum of
 *  those of the blocks so far, which the first block does not get.
 *  Hugging Face: GPT2Block. */
fsdp_module_t *fsdp_gpt2_block_create(const char *name,
                                      const fsdp_gpt2_config_t *config);

/** The experts of a block that has some. */
fsdp_module_t *fsdp_gpt2_block_experts(fsdp_module_t *block);

/** The heads of a GPT2Attention, and leaving it those of one of `parts` equal
 *  parts. */
size_t fsdp_gpt2_attention_heads(const fsdp_module_t *attention);
void fsdp_gpt2_attention_keep_heads(fsdp_module_t *attention, int part,
                                    int parts);

/** The numbers that keep a dropout's masks apart from others', from its name in
 *  Hugging Face's model, "transformer.drop". */
uint32_t fsdp_gpt2_dropout_layer(const char *module, const char *dropout);

#endif
