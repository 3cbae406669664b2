/** \file option_table.h  Floor 7, cli: what can be said on the command line. */
#ifndef FSDP_CLI_OPTION_TABLE_H
#define FSDP_CLI_OPTION_TABLE_H

#include "cli/cli.h"

typedef enum cli_option_kind {
    CLI_COUNT,  /**< a long   */
    CLI_REAL,   /**< a double */
    CLI_TEXT,   /**< a string */
    CLI_FLAG,   /**< a bool, without a value */
    CLI_CHOICE, /**< an int: which of the words */
    CLI_MODEL   /**< the same, or a folder in model_folder */
} cli_option_kind_t;

/** What an option has a meaning with; given without it, it is refused. */
typedef enum cli_need {
    CLI_NEEDS_NOTHING,
    CLI_NEEDS_TEXT, /**< a model of text: gpt2 or llama */
    CLI_NEEDS_GPT2,
    CLI_NEEDS_LLAMA,
    CLI_NEEDS_MLP,
    CLI_NEEDS_SGD,
    CLI_NEEDS_ADAMW,
    CLI_NEEDS_PARAM_DTYPE,
    CLI_NEEDS_SCALER,
    CLI_NEEDS_FSDP2,
    CLI_NEEDS_FSDP1,
    CLI_NEEDS_RECORD,
    CLI_NEEDS_REPLAY,
    CLI_NEEDS_EXPERTS
} cli_need_t;

typedef struct cli_option_spec {
    const char *name;
    cli_option_kind_t kind;
    size_t offset;        /**< of the field in cli_options_t                 */
    double min, max;      /**< of a count or a real                          */
    const char *argument; /**< name of the value, or words separated by |    */
    unsigned commands;    /**< which take it: CLI_TRAIN | ...                */
    const char *help;     /**< with the default in parentheses               */
    cli_need_t needs;
} cli_option_spec_t;

extern const cli_option_spec_t cli_option_table[];
extern const int cli_option_count;

/** The values of options that are not given. */
cli_options_t cli_options_default(void);
/** Takes a value as the option's kind wants it; "" for a flag. */
fsdp_status_t cli_option_set(const cli_option_spec_t *spec, const char *text,
                             cli_options_t *options);

#endif
