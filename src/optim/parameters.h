/** \file parameters.h  Floor 4, optim: all parameters of a model in a list. */
#ifndef FSDP_OPTIM_PARAMETERS_H
#define FSDP_OPTIM_PARAMETERS_H

#include "fsdp/memory.h"
#include "fsdp/module.h"

/** Each parameter once; the caller frees the list. */
static inline fsdp_parameter_t **
fsdp_parameters_of(fsdp_module_t *model, size_t *count)
{
    *count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, *count * sizeof *list);
    fsdp_module_parameters(model, list, *count);
    return list;
}

#endif
