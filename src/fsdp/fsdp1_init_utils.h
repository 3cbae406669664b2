/** \file fsdp1_init_utils.h  Floor 3, fsdp: making a unit of FSDP1.
 *
 *  PyTorch: torch/distributed/fsdp/_init_utils.py.
 */
#ifndef FSDP_FSDP1_INIT_UTILS_H
#define FSDP_FSDP1_INIT_UTILS_H

#include "fsdp/fsdp1_state.h"

/** What is wrong with the options alone. */
fsdp_status_t fsdp1_check_options(const fsdp1_options_t *options);
/** Is it one of ignored_states? */
bool fsdp1_is_ignored(const fsdp1_options_t *options,
                      const fsdp_parameter_t *parameter);
/** Makes `module` a unit with the strategy given, whatever the options say; no
 *  policy is applied. */
fsdp_status_t fsdp1_init_unit(fsdp_module_t *module,
                              fsdp_handle_strategy_t strategy,
                              const fsdp1_options_t *options);
/** The handle's strategy for that of the options. */
fsdp_handle_strategy_t fsdp1_handle_strategy(fsdp_sharding_strategy_t strategy);

/** Applies the options' policy to the modules below `root`, children first,
 *  each becoming a unit with `strategy`, or that of the options that a custom
 *  policy gave it.  PyTorch: _auto_wrap(). */
fsdp_status_t fsdp1_auto_wrap(fsdp_module_t *root,
                              fsdp_handle_strategy_t strategy,
                              const fsdp1_options_t *options);

#endif
