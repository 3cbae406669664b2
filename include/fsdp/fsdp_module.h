/** \file fsdp_module.h  Floor 3, fsdp: what a sharded module can be told.
 *
 *  PyTorch: FSDPModule, the class that fully_shard() gives a module, in
 *  torch/distributed/fsdp/_fully_shard/_fully_shard.py.
 *
 *  All return an error if the module was not given to fully_shard() (those that
 *  recurse only need one below it).  Settings must be made alike on all ranks.
 *  `recurse`: also for the sharded modules below.
 */
#ifndef FSDP_FSDP_MODULE_H
#define FSDP_FSDP_MODULE_H

#include "fsdp/fully_shard.h"

/** An all-gather that was started by hand. */
typedef struct fsdp_unshard_handle fsdp_unshard_handle_t;

/** Gathers this module's parameters (not those of sharded modules below).  With
 *  async_op the all-gather is only started, and `handle` set; the module's own
 *  pre-forward waits if nobody has.  Collective.  PyTorch: unshard(). */
fsdp_status_t fsdp_module_unshard(fsdp_module_t *module, bool async_op,
                                  fsdp_unshard_handle_t **handle);
/** Ends it and nulls the handle; NULL is allowed.  PyTorch: UnshardHandle.wait(). */
void fsdp_unshard_handle_wait(fsdp_unshard_handle_t **handle);
/** Frees the gathered parameters.  PyTorch: reshard(). */
fsdp_status_t fsdp_module_reshard(fsdp_module_t *module);

/** False: backwards do not reduce; gradients are added up whole, in the
 *  reduce_dtype (PyTorch's no_sync()).  Set true again before the last backward
 *  of a step. */
fsdp_status_t fsdp_module_set_requires_gradient_sync(fsdp_module_t *module,
                                                     bool requires_sync,
                                                     bool recurse);
/** False: with replicas, backwards reduce-scatter and put the all-reduce off. */
fsdp_status_t fsdp_module_set_requires_all_reduce(fsdp_module_t *module,
                                                  bool requires_all_reduce,
                                                  bool recurse);
/** False: the end of a backward neither waits for reductions nor forgets the
 *  order of the forward; set on the root. */
fsdp_status_t fsdp_module_set_is_last_backward(fsdp_module_t *module,
                                               bool is_last_backward);
fsdp_status_t fsdp_module_set_reshard_after_forward(fsdp_module_t *module,
                                                    bool reshard, bool recurse);
fsdp_status_t fsdp_module_set_reshard_after_backward(fsdp_module_t *module,
                                                     bool reshard,
                                                     bool recurse);

/** Modules (sharded ones) whose all-gathers start after this module's own has
 *  been copied out, in the order given, in the forward or in the backward; the
 *  backward list replaces the default.  The list is copied.  Wrong ones do no
 *  harm. */
fsdp_status_t
fsdp_module_set_modules_to_forward_prefetch(fsdp_module_t *module,
                                            fsdp_module_t *const *modules,
                                            int num_modules);
fsdp_status_t
fsdp_module_set_modules_to_backward_prefetch(fsdp_module_t *module,
                                             fsdp_module_t *const *modules,
                                             int num_modules);
/** False: no all-gather in the backward (of an embedding, whose backward does
 *  not read its weight).  Not recursive. */
fsdp_status_t fsdp_module_set_unshard_in_backward(fsdp_module_t *module,
                                                  bool unshard);

/** Divides the module's reduced gradients by `factor` in place of the number of
 *  ranks.  Not recursive.  PyTorch: set_gradient_divide_factor(). */
fsdp_status_t fsdp_module_set_gradient_divide_factor(fsdp_module_t *module,
                                                     double factor);
/** True: only sums are asked of the collectives, divisions are made apart.
 *  Not recursive. */
fsdp_status_t
fsdp_module_set_force_sum_reduction_for_comms(fsdp_module_t *module,
                                              bool force);
/** True: a trainable parameter without a gradient counts as zeros, so that all
 *  ranks reduce the same although only some used it. */
fsdp_status_t fsdp_module_set_reduce_scatter_unused_params(fsdp_module_t *module,
                                                           bool enable,
                                                           bool recurse);

/** A custom all-gather or reduce-scatter: as the functions of comm.h, whose
 *  results it must have.  Not recursive.  PyTorch: set_custom_all_gather(),
 *  set_custom_reduce_scatter(). */
typedef struct fsdp_custom_comm {
    void *context;
    /** NULL: the library's */
    void (*all_gather)(void *context, fsdp_comm_t *comm, fsdp_dtype_t dtype,
                       const void *in, void *out, size_t count);
    void (*reduce_scatter)(void *context, fsdp_comm_t *comm, fsdp_dtype_t dtype,
                           const void *in, void *out, size_t count);
} fsdp_custom_comm_t;
fsdp_status_t fsdp_module_set_custom_comm(fsdp_module_t *module,
                                          const fsdp_custom_comm_t *comm);
/** `hook` sees (and may change) the output of the reduce-scatter, or of the
 *  all-reduce if there is one, [numel] of `dtype`, before the division that
 *  follows it.  NULL takes it away.  Not recursive. */
fsdp_status_t fsdp_module_set_all_reduce_hook(
    fsdp_module_t *module,
    void (*hook)(void *context, fsdp_dtype_t dtype, void *output, size_t numel),
    void *context);

/** Clears what a forward or backward that was given up has left, so that the
 *  next step starts clean; call it on the root.  PyTorch: reset_iter_state(). */
fsdp_status_t fsdp_module_reset_iter_state(fsdp_module_t *module);

/** Makes the initial values that fully_shard() put off, or makes them anew, from
 *  a seed.  PyTorch: to_empty() and reset_parameters() after meta init. */
fsdp_status_t fsdp_module_materialize(fsdp_module_t *module, uint64_t seed);
/** All parameters become what rank 0 has in `whole`: called once for each
 *  parameter, on rank 0 only, to fill [numel] elements.  Collective over the
 *  world.  PyTorch: set_model_state_dict(broadcast_from_rank0=True). */
fsdp_status_t fsdp_module_broadcast_from_rank0(
    fsdp_module_t *module,
    void (*whole)(void *context, const fsdp_parameter_t *parameter, void *out),
    void *context);

#endif
