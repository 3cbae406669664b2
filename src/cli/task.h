/** \file task.h  Floor 7, cli: what `fsdp train` trains, on what.
 *
 *  task.c           the model's shape, the data
 *  open_data.c      --data
 *  task_batch.c     micro-batches and losses
 *  task_held_out.c  held-out figures
 *  task_metadata.c  what a saved model says of itself
 */
#ifndef FSDP_CLI_TASK_H
#define FSDP_CLI_TASK_H

#include "cli/cli.h"
#include "cli/metadata.h"

/** Not collective; every rank has one. */
typedef struct cli_task {
    const cli_options_t *options; /**< borrowed */
    fsdp_dtype_t dtype;
    fsdp_dataset_t *data;              /**< owned; NULL with a trace */
    const struct trace_source *source; /**< --replay; borrowed; else NULL */
    fsdp_gpt2_config_t gpt2;           /**< the one that --model asks for */
    fsdp_llama_config_t llama;
    fsdp_mlp_config_t mlp;
    bool failed; /**< build() could not load --init; see fsdp_error_message() */
} cli_task_t;

/** Opens the data and settles the model's shape.  `source` is the trace of
 *  --replay, or NULL. */
fsdp_status_t cli_task_open(cli_task_t *task, const cli_options_t *options,
                            const struct trace_source *source);
/** The same, where a text may be missing: then there is no data. */
fsdp_status_t cli_task_open_shape(cli_task_t *task,
                                  const cli_options_t *options);
void cli_task_close(cli_task_t *task);

/** open_data.c: opens --data, as text or tokens, or as rows. */
fsdp_status_t cli_open_text_data(cli_task_t *task);
fsdp_status_t cli_open_table_data(cli_task_t *task);
/** --tokenizer, or that of the model's folder, or NULL; the caller frees. */
char *cli_tokenizer_path(const cli_options_t *options);
/** Warns if bytes of a text were not UTF-8. */
void cli_say_replaced(const char *path, size_t replaced);

/** A model without values; --init is not looked at. */
fsdp_module_t *cli_task_model(const cli_task_t *task);
/** Samples `number[0..rows)` of a split: the model's input and the targets. */
fsdp_values_t cli_task_rows(const cli_task_t *task, fsdp_tape_t *tape,
                            fsdp_split_t split, const size_t *number,
                            size_t rows);
/** A global micro-batch: the model's input and the targets. */
fsdp_values_t cli_task_batch(const cli_task_t *task, fsdp_tape_t *tape,
                             long step, int micro);
/** The mean over the targets of a batch. */
fsdp_tensor_t *cli_task_mean(const cli_task_t *task, fsdp_tape_t *tape,
                             fsdp_module_t *model, fsdp_values_t batch);
/** The mean times `weight`: what the backward begins with. */
fsdp_tensor_t *cli_task_weigh(fsdp_tape_t *tape, fsdp_tensor_t *mean,
                              double weight);
/** What every mean is multiplied by before the backward: 1, but for a trace. */
double cli_task_scale(const cli_task_t *task);
/** How many targets of it count. */
double cli_task_targets(const cli_task_t *task, long step, int micro);
/** The callbacks that training and verification share; `task` is borrowed. */
fsdp_task_t cli_task_callbacks(cli_task_t *task);

/** Held-out figures, of micro-batch `index` of `count` in all. */
typedef struct cli_held_out {
    double loss;    /**< mean over the micro-batch's samples                 */
    double correct; /**< CSV: rows whose likeliest class is theirs           */
    double rows;    /**< samples in the micro-batch                          */
} cli_held_out_t;
long cli_task_held_out_count(const cli_task_t *task);
cli_held_out_t cli_task_held_out(const cli_task_t *task, fsdp_module_t *model,
                                 long index);

/** The metadata for --save: pairs of strings, valid as long as the task. */
void cli_task_metadata(const cli_task_t *task, cli_metadata_t *metadata);

#endif
