/** \file gpt2.h  Floor 2, nn: GPT-2, as Hugging Face's GPT2LMHeadModel.
 *
 *  Parameters have its names: transformer.wte.weight, transformer.wpe.weight,
 *  transformer.h.0.ln_1.weight, ..., transformer.ln_f.bias, and, if the head is
 *  not tied, lm_head.weight.
 */
#ifndef FSDP_GPT2_H
#define FSDP_GPT2_H

#include "fsdp/moe.h"

/** Field names are those of GPT2Config; fill it from the default. */
typedef struct fsdp_gpt2_config {
    size_t n_layer, n_head, n_embd, vocab_size, n_positions;
    double resid_pdrop, embd_pdrop, attn_pdrop; /**< 0 here by default        */
    double layer_norm_epsilon;
    double initializer_range;
    bool tie_word_embeddings;
    fsdp_dtype_t dtype;
    uint64_t seed;
    /* Not GPT-2's: with n_experts > 0 a block has a mixture of GELU experts of
     * 4 n_embd hidden channels (fsdp/moe.h) in the place of its MLP, called
     * transformer.h.I.mlp like it; the loss has the auxiliary losses of all
     * blocks in it. */
    size_t n_experts, n_experts_per_tok; /**< 0: no experts; 2                */
    double router_aux_loss_coef;         /**< 0                               */
    fsdp_comm_t *expert_comm; /**< NULL: all experts on each rank             */
    fsdp_reduce_order_t expert_reduce_order;
} fsdp_gpt2_config_t;

/** 4 layers of 4 heads, 128 wide, 256 tokens, 128 positions, tied, no dropout,
 *  float32. */
fsdp_gpt2_config_t fsdp_gpt2_config_default(void);

/** Fields that are 0 where that makes no sense take their default.  Ends the
 *  program if n_head does not divide n_embd, or with fsdp_moe_config_fault(). */
fsdp_module_t *fsdp_gpt2_create(const fsdp_gpt2_config_t *config);
/** Block i ("transformer.h.I"): a unit for fully_shard(). */
fsdp_module_t *fsdp_gpt2_block(fsdp_module_t *gpt2, int i);
/** The experts of block i, a unit for fully_shard() over the ranks that have the
 *  same ones; NULL if it has none. */
fsdp_module_t *fsdp_gpt2_experts(fsdp_module_t *gpt2, int i);
const fsdp_gpt2_config_t *fsdp_gpt2_get_config(const fsdp_module_t *gpt2);

/** Mean cross-entropy of predicting targets from tokens, both int32 [B, T]
 *  (targets already shifted).  A call of the root module with two inputs. */
fsdp_tensor_t *fsdp_gpt2_loss(fsdp_tape_t *tape, fsdp_module_t *gpt2,
                              fsdp_tensor_t *tokens, fsdp_tensor_t *targets);
/** Logits [B, V] of the last position, for tokens int32 [B, T].  A call of the
 *  root module with one input. */
fsdp_tensor_t *fsdp_gpt2_logits(fsdp_tape_t *tape, fsdp_module_t *gpt2,
                                fsdp_tensor_t *tokens);

#endif
