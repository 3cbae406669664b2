/** \file model_folder.h  Floor 7, cli: models in Hugging Face's folders. */
#ifndef FSDP_CLI_MODEL_FOLDER_H
#define FSDP_CLI_MODEL_FOLDER_H

#include "checkpoint/hf_folder.h"
#include "cli/task.h"

/** --model FOLDER: what its config.json says becomes the values of the options
 *  of a model, none of which may be given besides. */
fsdp_status_t cli_folder_fill(cli_options_t *options);
/** Its configuration, with --dtype, --dropout and --seed. */
fsdp_status_t cli_folder_settle(const cli_options_t *options,
                                fsdp_hf_config_t *config);

/** Is --save's value a folder: one that is there, or a name that ends in "/"? */
bool cli_is_save_folder(const char *path);
/** Can --save's folder be written? */
fsdp_status_t cli_folder_check_save(const cli_options_t *options);
/** Before a model is made: the files that it comes from, in whose types it goes
 *  back, and which must fit its config.json; NULL if it comes from none. */
fsdp_status_t cli_folder_open_original(const cli_options_t *options,
                                       fsdp_weights_t **weights);
/** Writes it.  Collective. */
fsdp_status_t cli_folder_save(const cli_task_t *task,
                              const fsdp_weights_t *original,
                              fsdp_module_t *model, fsdp_comm_t *comm);

#endif
