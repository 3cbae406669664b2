/** \file model_file.h  Floor 5, checkpoint: what saving and loading share. */
#ifndef FSDP_CHECKPOINT_MODEL_FILE_H
#define FSDP_CHECKPOINT_MODEL_FILE_H

#include "fsdp/comm.h"
#include "fsdp/dtype.h"
#include "fsdp/memory.h"
#include "fsdp/module.h"

/** Every parameter of a model, each once. */
typedef struct fsdp_parameter_list {
    fsdp_parameter_t **parameter; /**< owned list of borrowed parameters */
    size_t count;
} fsdp_parameter_list_t;

static inline fsdp_parameter_list_t
fsdp_parameter_list_of(fsdp_module_t *model)
{
    fsdp_parameter_list_t list = {.count =
                                      fsdp_module_parameters(model, NULL, 0)};
    list.parameter =
        fsdp_alloc(FSDP_MEM_OTHER, list.count * sizeof *list.parameter);
    fsdp_module_parameters(model, list.parameter, list.count);
    return list;
}

/** The agreement of all ranks; without a communicator this process's own. */
static inline fsdp_status_t
fsdp_agree_if_several(fsdp_comm_t *comm, fsdp_status_t mine)
{
    return comm != NULL ? fsdp_comm_agree(comm, mine) : mine;
}

/** Parameters to one file, each in the type of `dtypes` (NULL: its own); see
 *  fsdp_model_save().  Collective over `comm`. */
fsdp_status_t fsdp_model_write_file(fsdp_parameter_t *const *parameters,
                                    const fsdp_dtype_t *dtypes, size_t count,
                                    fsdp_comm_t *comm, const char *path,
                                    const char *const (*metadata)[2],
                                    size_t num_metadata);

#endif
