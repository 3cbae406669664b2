/** \file llama.h  Floor 7, cli: Llama's shape, from options and from files. */
#ifndef FSDP_CLI_LLAMA_H
#define FSDP_CLI_LLAMA_H

#include "cli/metadata.h"

/** From the options of `fsdp train`; what --init tells and no option says (the
 *  base of the rotation, the norms' eps) from there. */
fsdp_status_t cli_llama_settle(const cli_options_t *options, fsdp_dtype_t dtype,
                               fsdp_llama_config_t *config);
/** Hugging Face's names of everything that the tensors' shapes do not tell, and
 *  of some that they do. */
void cli_llama_metadata(const fsdp_llama_config_t *config,
                        cli_metadata_t *metadata);
/** From a file with such metadata, whose tensors must bear it out. */
fsdp_status_t cli_llama_read(const fsdp_safetensors_t *file, const char *path,
                             fsdp_llama_config_t *config);

#endif
