/** \file fsdp_module_internal.h  Floor 3, fsdp: what the files of FSDPModule
 *  share.
 */
#ifndef FSDP_FSDP_MODULE_INTERNAL_H
#define FSDP_FSDP_MODULE_INTERNAL_H

#include "fsdp/fsdp_module.h"
#include "fsdp/fsdp_state.h"

typedef void (*fsdp_group_fn_t)(fsdp_param_group_t *group, void *value);

/** Calls fn(group, value) for the groups of the module, and of those below it;
 *  an error if there is no sharded one. */
fsdp_status_t fsdp_tell_groups(fsdp_module_t *module, bool recurse,
                               fsdp_group_fn_t fn, void *value);

#endif
