/** \file wrap.h  Floor 3, fsdp: which modules FSDP1 makes units of.
 *
 *  PyTorch: torch/distributed/fsdp/wrap.py.
 *
 *  Types of modules are told by their `kind` ("Linear", "GPT2Block").
 */
#ifndef FSDP_WRAP_H
#define FSDP_WRAP_H

#include "fsdp/module.h"
#include "fsdp/status.h"

struct fsdp1_options;

typedef enum fsdp_wrap_policy_kind {
    FSDP_WRAP_NONE,
    FSDP_WRAP_SIZE_BASED, /**< size_based_auto_wrap_policy()                  */
    FSDP_WRAP_MODULE, /**< ModuleWrapPolicy, transformer_auto_...() */
    FSDP_WRAP_LAMBDA, /**< lambda_auto_wrap_policy()                      */
    FSDP_WRAP_ALWAYS, /**< always_wrap_policy()                           */
    FSDP_WRAP_CUSTOM  /**< CustomPolicy                                   */
} fsdp_wrap_policy_kind_t;

/** Plain data; what it points to is borrowed during the call that applies it.
 *  The module that is given to fsdp_fully_sharded_data_parallel() becomes a
 *  unit whatever the policy says of it. */
typedef struct fsdp_wrap_policy {
    fsdp_wrap_policy_kind_t kind;
    size_t min_num_params;           /**< SIZE_BASED                          */
    const char *const *module_kinds; /**< MODULE                              */
    int num_module_kinds;
    bool (*lambda_fn)(void *context, fsdp_module_t *module); /**< LAMBDA      */
    /** CUSTOM: `options` are the root's and may be changed for this module. */
    bool (*custom_fn)(void *context, fsdp_module_t *module,
                      struct fsdp1_options *options);
    void *context;
} fsdp_wrap_policy_t;

/** A module of which at least min_num_params elements are in no unit below it
 *  (0: PyTorch's 100,000,000).  Kinds "ModuleList" and "ModuleDict" are never
 *  units, and nothing below a "MultiheadAttention" is. */
fsdp_wrap_policy_t fsdp_size_based_auto_wrap_policy(size_t min_num_params);
/** Modules of these kinds. */
fsdp_wrap_policy_t fsdp_module_wrap_policy(const char *const *module_kinds,
                                           int num_module_kinds);
/** The same, under the name by which it is known for blocks. */
fsdp_wrap_policy_t
fsdp_transformer_auto_wrap_policy(const char *const *module_kinds,
                                  int num_module_kinds);
/** Modules for which `fn` says so. */
fsdp_wrap_policy_t
fsdp_lambda_auto_wrap_policy(bool (*fn)(void *context, fsdp_module_t *module),
                             void *context);
/** All modules. */
fsdp_wrap_policy_t fsdp_always_wrap_policy(void);
/** As fn says, which may change the options of that module. */
fsdp_wrap_policy_t fsdp_custom_policy(bool (*fn)(void *context,
                                                 fsdp_module_t *module,
                                                 struct fsdp1_options *options),
                                      void *context);

/** From here to fsdp_disable_wrap(), fsdp_wrap() makes units with these
 *  options (copied): so a constructor can mark its large modules, and works
 *  without FSDP too.  An error if it is on already.  PyTorch: enable_wrap(), a
 *  context. */
fsdp_status_t fsdp_enable_wrap(const struct fsdp1_options *options);
void fsdp_disable_wrap(void);
/** fsdp_fully_sharded_data_parallel() between the two, nothing elsewhere;
 *  `override` NULL: those of fsdp_enable_wrap().  PyTorch: wrap(). */
fsdp_status_t fsdp_wrap(fsdp_module_t *module,
                        const struct fsdp1_options *override);

#endif
