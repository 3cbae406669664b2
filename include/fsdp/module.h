/** \file module.h  Floor 2, nn: modules and their hooks.
 *
 *  PyTorch: torch.nn.Module.
 *
 *  A module has a full name ("" is the root's), children and parameters in the
 *  order of registration, and a forward made of operators and of its children.
 *  It may be used several times in one graph; a parameter may belong to several
 *  modules (tied), be frozen, or not be used at all.
 */
#ifndef FSDP_MODULE_H
#define FSDP_MODULE_H

#include "fsdp/tape.h"

typedef struct fsdp_module fsdp_module_t;

/** What may be done around a module; each may be NULL.  Several sets of hooks
 *  run in the order in which they were added. */
typedef struct fsdp_module_hooks {
    void *context;
    /** Before the forward; may replace the inputs. */
    fsdp_values_t (*pre_forward)(void *context, fsdp_module_t *module,
                                 fsdp_tape_t *tape, fsdp_values_t inputs);
    /** After the forward; may replace the outputs. */
    fsdp_values_t (*post_forward)(void *context, fsdp_module_t *module,
                                  fsdp_tape_t *tape, fsdp_values_t outputs);
    /** When the gradient of an output is complete; once per such output. */
    void (*pre_backward)(void *context, fsdp_tape_t *tape);
    /** When the gradients of the inputs are known.  Does not run if no input
     *  needs a gradient. */
    void (*post_backward)(void *context, fsdp_tape_t *tape);
    void (*free_context)(void *context); /**< with the module */
} fsdp_module_hooks_t;

typedef fsdp_values_t (*fsdp_forward_fn_t)(fsdp_module_t *self,
                                           fsdp_tape_t *tape,
                                           fsdp_values_t inputs);

struct fsdp_module {
    char *name;          /**< full name, owned                               */
    const char *kind;    /**< "Linear"; a literal                            */
    fsdp_forward_fn_t forward;
    fsdp_forward_fn_t recomputed; /**< the forward that was there before
                                       fsdp_checkpoint_wrapper(), or NULL    */
    void *config;        /**< the module's own; freed with fsdp_free()       */
    fsdp_module_t **child;
    int num_children;    /**< owned, except those marked shared              */
    fsdp_parameter_t **parameter;
    bool *parameter_shared; /**< true: owned by another module               */
    int num_parameters;
    fsdp_module_hooks_t *hooks;
    int num_hooks;
    struct fsdp_state *fsdp_state; /**< of fully_shard(); borrowed           */
};

/** `config_bytes` bytes of `config` are copied (NULL and 0 for none).  The
 *  caller owns the module until it is given to a parent. */
fsdp_module_t *fsdp_module_create(const char *name, const char *kind,
                                  fsdp_forward_fn_t forward,
                                  const void *config, size_t config_bytes);
/** Frees the module, its children and the parameters that it owns; nulls. */
void fsdp_module_destroy(fsdp_module_t **module);

/** The parent owns the child from now on; returns it. */
fsdp_module_t *fsdp_module_add_child(fsdp_module_t *parent,
                                     fsdp_module_t *child);
/** The module owns the parameter from now on; returns it. */
fsdp_parameter_t *fsdp_module_add_parameter(fsdp_module_t *module,
                                            fsdp_parameter_t *parameter);
/** Registers a parameter that another module of the same tree owns. */
void fsdp_module_tie_parameter(fsdp_module_t *module,
                               fsdp_parameter_t *parameter);
void fsdp_module_add_hooks(fsdp_module_t *module,
                           const fsdp_module_hooks_t *hooks);
void fsdp_module_remove_hooks(fsdp_module_t *module, const void *context);

/** Runs the module: pre-forward hooks, forward, post-forward hooks. */
fsdp_values_t fsdp_module_call(fsdp_module_t *module, fsdp_tape_t *tape,
                               fsdp_values_t inputs);
/** The same with another function of the module in place of its forward, so that
 *  it runs under the same hooks.  PyTorch: register_fsdp_forward_method(). */
fsdp_values_t fsdp_module_call_method(fsdp_module_t *module,
                                      fsdp_forward_fn_t method,
                                      fsdp_tape_t *tape, fsdp_values_t inputs);
/** fsdp_module_call() for one input and one output. */
fsdp_tensor_t *fsdp_module_call1(fsdp_module_t *module, fsdp_tape_t *tape,
                                 fsdp_tensor_t *input);

/** Parameters of the module and its descendants in PyTorch's order (own ones
 *  first, then child by child), each once; fills up to `max` and returns how
 *  many there are.  PyTorch: Module.named_parameters(). */
size_t fsdp_module_parameters(fsdp_module_t *module, fsdp_parameter_t **out,
                              size_t max);
/** The module and its descendants, parents first; as above. */
size_t fsdp_module_modules(fsdp_module_t *module, fsdp_module_t **out,
                           size_t max);
/** Looks a module or parameter up by full name; NULL if there is none. */
fsdp_module_t *fsdp_module_find(fsdp_module_t *module, const char *name);
fsdp_parameter_t *fsdp_module_find_parameter(fsdp_module_t *module,
                                             const char *name);
/** requires_grad of all parameters below. */
void fsdp_module_set_requires_grad(fsdp_module_t *module, bool requires_grad);
size_t fsdp_module_num_elements(fsdp_module_t *module);

#endif
