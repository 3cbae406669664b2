/** \file hf_folder.h  Floor 5, checkpoint: a model's folder as Hugging Face's
 *  save_pretrained() makes it and from_pretrained() reads it.
 *
 *      config.json                       hf_config.h
 *      model.safetensors                 or, if that would be too large,
 *      model-00001-of-00003.safetensors  ... and model.safetensors.index.json
 *      tokenizer.json, ...               copied from where the model came from
 *
 *  fsdp_model_load() reads the tensors.
 */
#ifndef FSDP_CHECKPOINT_HF_FOLDER_H
#define FSDP_CHECKPOINT_HF_FOLDER_H

#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "fsdp/comm.h"

#define FSDP_HF_CONFIG_FILE "config.json"

/** What to write, and how. */
typedef struct fsdp_hf_saving {
    const fsdp_hf_config_t *config;
    const char *from; /**< the folder that the model came from, or NULL: its
                       *   config.json and tokenizer are copied              */
    const char *tokenizer; /**< a file, copied as tokenizer.json; NULL: that
                            *   of `from`                                    */
    const fsdp_weights_t *like; /**< parameters get the types that they have
                                 *   there; NULL: their own                  */
    fsdp_dtype_t dtype;      /**< if not FSDP_DTYPE_NONE: this for all       */
    uint64_t max_shard_size; /**< bytes of tensors in a file                 */
    const char *const (*metadata)[2]; /**< of each file                      */
    size_t num_metadata;
} fsdp_hf_saving_t;

/** FOLDER/config.json.  Not collective. */
fsdp_status_t fsdp_hf_folder_read_config(const char *folder,
                                         fsdp_hf_config_t *config);
/** Do the tensors bear out the sizes of the configuration?  To be asked before
 *  anything of that size is made.  (All shapes are looked at when they are
 *  loaded.)  Not collective. */
fsdp_status_t fsdp_hf_folder_check_sizes(const char *folder,
                                         const fsdp_weights_t *weights,
                                         const fsdp_hf_config_t *config);
/** Why a model cannot be saved there: there is one already, or no file can be
 *  made.  (A folder that is missing is made, if its parent is there.)  Not
 *  collective. */
fsdp_status_t fsdp_hf_folder_check(const char *folder);
/** Writes it all, config.json last: a folder without one is no model.
 *  Collective over `comm`. */
fsdp_status_t fsdp_hf_folder_save(fsdp_module_t *model, fsdp_comm_t *comm,
                                  const char *folder,
                                  const fsdp_hf_saving_t *saving);

#endif
