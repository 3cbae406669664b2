/** \file llama_internal.h  Floor 2, nn: the parts of Llama. */
#ifndef FSDP_NN_LLAMA_INTERNAL_H
#define FSDP_NN_LLAMA_INTERNAL_H

#include "fsdp/llama.h"

/** The rotation of all blocks: tables are made when first used, in each type
 *  that is used, for the positions that are.  Hugging Face:
 *  LlamaRotaryEmbedding. */
typedef struct llama_rotary {
    size_t positions, head_dim;
    double theta;
    struct llama_table *longest[2]; /**< float32, float64; NULL: not used yet */
} llama_rotary_t;

/** `owner`, a module, frees it when it goes. */
llama_rotary_t *llama_rotary_create(fsdp_module_t *owner, size_t positions,
                                    size_t head_dim, double theta);
/** A table for values of a type and at least so many positions.  Borrowed. */
const fsdp_tensor_t *llama_rotary_table(llama_rotary_t *rotary,
                                        fsdp_dtype_t dtype, size_t positions);

/** "model.layers.I": norm, attention, norm, MLP, each pair added to what came
 *  in.  x [B,T,C] -> [B,T,C].  `config` is complete; `rotary` is borrowed.
 *  Hugging Face: LlamaDecoderLayer. */
fsdp_module_t *fsdp_llama_block_create(const char *name,
                                       const fsdp_llama_config_t *config,
                                       llama_rotary_t *rotary);

/** The key heads of a LlamaAttention, and leaving it those of one of `parts`
 *  equal parts, with the heads that read them. */
size_t fsdp_llama_attention_heads(const fsdp_module_t *attention);
void fsdp_llama_attention_keep_heads(fsdp_module_t *attention, int part,
                                     int parts);

#endif
