/** \file fsdp_init.h  Floor 3, fsdp: which parameters a call takes.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_init.py
 */
#ifndef FSDP_FSDP_INIT_H
#define FSDP_FSDP_INIT_H

#include "fsdp/fully_shard.h"

/** The parameters of the modules and what is below them, without those of
 *  modules that have a fully_shard() of their own: children before parents,
 *  each parameter once.  Fills up to `max`, returns how many there are.
 *  PyTorch: _get_managed_modules(), _get_managed_states(). */
int fsdp_get_managed_parameters(fsdp_module_t *const *modules, int num_modules,
                                fsdp_parameter_t **out, int max);

#endif
