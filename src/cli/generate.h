/** \file generate.h  Floor 7, cli: the model that `fsdp generate` writes with. */
#ifndef FSDP_CLI_GENERATE_H
#define FSDP_CLI_GENERATE_H

#include "cli/cli.h"

/** A model of text; tokenizer NULL: tokens are bytes. */
typedef struct language {
    bool is_llama;
    fsdp_tokenizer_t *tokenizer; /**< owned */
    fsdp_gpt2_config_t gpt2;
    fsdp_llama_config_t llama;
} language_t;

/** From --model FILE or FOLDER, with its tokenizer or --tokenizer; not its
 *  values. */
fsdp_status_t language_read(const cli_options_t *options, language_t *language);
/** A model without values. */
fsdp_module_t *language_create(const language_t *language);
/** How many tokens there are, and the model knows all of them. */
size_t language_tokens(const language_t *language);
size_t language_positions(const language_t *language);

#endif
