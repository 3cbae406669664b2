/** \file fsdp_init.h  Floor 3, fsdp: which parameters a call takes, and how.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_init.py
 */
#ifndef FSDP_FSDP_INIT_H
#define FSDP_FSDP_INIT_H

#include "fsdp/fully_shard.h"

/** What one call takes: its parameters, and how each is cut. */
typedef struct fsdp_managed_states {
    fsdp_parameter_t **parameter; /**< owned list                            */
    int *dim;                     /**< along which it is cut; owned          */
    fsdp_mesh_t **mesh;           /**< over which; owned list, borrowed      */
    int count;
} fsdp_managed_states_t;

/** The parameters of the modules and what is below them, without the ignored
 *  ones and those of modules that have a fully_shard() of their own: children
 *  before parents, each parameter once.  To be freed.
 *  PyTorch: _get_managed_modules(), _get_managed_states(). */
fsdp_managed_states_t fsdp_get_managed_states(fsdp_module_t *const *modules,
                                              int num_modules,
                                              const fsdp_options_t *options);
void fsdp_managed_states_free(fsdp_managed_states_t *states);

/** Refuses what cannot be: see fully_shard().  The first looks at the call
 *  itself, the second at what it takes. */
fsdp_status_t fsdp_check_call(fsdp_module_t *const *modules, int num_modules,
                              const fsdp_options_t *options);
fsdp_status_t fsdp_check_managed_states(const fsdp_managed_states_t *states,
                                        const fsdp_options_t *options);

#endif
