/** \file cli.h  Floor 7, cli: the program `fsdp`. */
#ifndef FSDP_CLI_CLI_H
#define FSDP_CLI_CLI_H

#include <stdio.h>

#include "fsdp.h"

/** Everything that can be said on the command line; see options.c. */
typedef struct cli_options {
    /* model */
    int model; /**< CLI_GPT2, CLI_LLAMA or CLI_MLP */
    long layers, heads, width, context, vocab_size;
    long kv_heads, intermediate_size; /**< 0: llama's own */
    const char *hidden; /**< "64,32" */
    bool untied, tied;
    double dropout;
    int dtype; /**< 0 float32, 1 float64 */
    /* data */
    const char *data;
    long label_column;
    long batch_size, micro_batch_size;
    long eval_every, eval_batches;
    /* training */
    long steps, warmup_steps, seed;
    int optimizer; /**< CLI_ADAMW or CLI_SGD */
    double lr, min_lr, weight_decay, grad_clip;
    double momentum, beta1, beta2, eps;
    bool nesterov;
    /* sharding */
    int reshard;      /**< 0 auto, 1 true, 2 false */
    int reduce_order; /**< as fsdp_reduce_order_t  */
    long threads;     /**< 0: choose               */
    double timeout;
    /* checking */
    int verify; /**< as fsdp_verify_level_t */
    const char *inject;
    int ledger; /**< 0: by --verify; else 1 + fsdp_ledger_mode_t */
    /* files */
    const char *save, *init, *log_file;
    /* generate */
    const char *model_file, *prompt;
    long tokens;
    double temperature;
} cli_options_t;

enum { CLI_GPT2, CLI_LLAMA, CLI_MLP };
enum { CLI_ADAMW, CLI_SGD };

typedef enum cli_command {
    CLI_TRAIN = 1,
    CLI_GENERATE = 2,
    CLI_DOCTOR = 4
} cli_command_t;

/** Reads the arguments after the command.  Messages are kept for
 *  fsdp_error_message().  FSDP_OK with *help set: --help was given. */
fsdp_status_t cli_options_parse(cli_command_t command, int argc, char **argv,
                                cli_options_t *options, bool *help);
void cli_print_command_help(cli_command_t command, FILE *out);

/** Each command; between fsdp_init() and fsdp_finalize(); collective.  The
 *  status is the same on all ranks. */
fsdp_status_t cli_train(const cli_options_t *options);
fsdp_status_t cli_generate(const cli_options_t *options);
fsdp_status_t cli_doctor(const cli_options_t *options);

/** Is this the rank that speaks? */
bool cli_speaks(void);
/** Ranks on the machine, threads and cores: sets the number of threads, and
 *  warns if they are too many. */
void cli_choose_threads(long asked);

/** Every block and the root, or every layer and the root, become units.
 *  `divide` is their gradient divide factor; 0: leave the default. */
fsdp_status_t cli_shard(fsdp_module_t *model, const fsdp_options_t *options,
                        double divide);

#endif
