/** \file llama.h  Floor 2, nn: Llama, as Hugging Face's LlamaForCausalLM.
 *
 *  Parameters have its names: model.embed_tokens.weight,
 *  model.layers.0.self_attn.q_proj.weight, ..., model.norm.weight, and, if the
 *  head is not tied, lm_head.weight.
 */
#ifndef FSDP_LLAMA_H
#define FSDP_LLAMA_H

#include "fsdp/module.h"

/** Field names are those of LlamaConfig; fill it from the default. */
typedef struct fsdp_llama_config {
    size_t vocab_size, hidden_size;
    size_t
        intermediate_size; /**< 0: 8/3 of hidden_size, made a multiple of 32 */
    size_t num_hidden_layers, num_attention_heads;
    size_t
        num_key_value_heads; /**< 0: as many as attention heads             */
    size_t head_dim;         /**< 0: hidden_size / num_attention_heads      */
    size_t max_position_embeddings;
    double rms_norm_eps, rope_theta;
    const char
        *rope_scaling; /**< NULL, Python's None; nothing else is known  */
    double attention_dropout;
    double initializer_range;
    bool tie_word_embeddings, attention_bias, mlp_bias;
    fsdp_dtype_t dtype;
    uint64_t seed;
} fsdp_llama_config_t;

/** 4 layers of 4 heads, 128 wide, 256 tokens, 128 positions, eps 1e-6, theta
 *  10000, head not tied, no biases, no dropout, float32. */
fsdp_llama_config_t fsdp_llama_config_default(void);

/** `config` with every field that is 0 where that makes no sense filled in. */
fsdp_llama_config_t
fsdp_llama_config_complete(const fsdp_llama_config_t *config);
/** Why a configuration is refused: a sentence that the caller frees with
 *  fsdp_free(), or NULL if it is sound.  Heads must divide hidden_size (unless
 *  head_dim is given), key heads the heads, and head_dim must be even. */
char *fsdp_llama_config_fault(const fsdp_llama_config_t *config);

/** Completes the configuration.  Ends the program with
 *  fsdp_llama_config_fault() if there is one. */
fsdp_module_t *fsdp_llama_create(const fsdp_llama_config_t *config);
/** Block i ("model.layers.I"): a unit for fully_shard(). */
fsdp_module_t *fsdp_llama_block(fsdp_module_t *llama, int i);
/** All fields have their final values. */
const fsdp_llama_config_t *fsdp_llama_get_config(const fsdp_module_t *llama);

/** Mean cross-entropy of predicting targets from tokens, both int32 [B, T]
 *  (targets already shifted).  A call of the root module with two inputs. */
fsdp_tensor_t *fsdp_llama_loss(fsdp_tape_t *tape, fsdp_module_t *llama,
                               fsdp_tensor_t *tokens, fsdp_tensor_t *targets);
/** Logits [B, V] of the last position, for tokens int32 [B, T].  A call of the
 *  root module with one input. */
fsdp_tensor_t *fsdp_llama_logits(fsdp_tape_t *tape, fsdp_module_t *llama,
                                 fsdp_tensor_t *tokens);

#endif
