/** \file hf_config.h  Floor 5, checkpoint: Hugging Face's config.json.
 *
 *  GPT2Config and LlamaConfig, as transformers 4 and 5 write them.  A field that
 *  is missing has transformers' default; one that asks for something that is not
 *  computed here (another activation, scaled rotary embeddings) is refused.
 */
#ifndef FSDP_CHECKPOINT_HF_CONFIG_H
#define FSDP_CHECKPOINT_HF_CONFIG_H

#include "base/json.h"
#include "fsdp/gpt2.h"
#include "fsdp/llama.h"

typedef enum fsdp_hf_model { FSDP_HF_GPT2, FSDP_HF_LLAMA } fsdp_hf_model_t;

typedef struct fsdp_hf_config {
    fsdp_hf_model_t model;
    fsdp_gpt2_config_t gpt2; /**< of that model; dtype and seed are as in    */
    fsdp_llama_config_t
        llama;           /**< fsdp_gpt2_config_default(), ..._llama_...  */
    fsdp_dtype_t stored; /**< "dtype"; FSDP_DTYPE_NONE: it is not said   */
} fsdp_hf_config_t;

/** `config` is the object of the file; messages (FSDP_ERR_INPUT) begin with
 *  `name` and name the field. */
fsdp_status_t fsdp_hf_config_read(const char *name, const fsdp_json_t *config,
                                  fsdp_hf_config_t *result);
/** The object, such that transformers and fsdp_hf_config_read() make the same
 *  model of it. */
void fsdp_hf_config_write(const fsdp_hf_config_t *config,
                          fsdp_json_writer_t *writer);

#endif
