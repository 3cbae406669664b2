/** \file activation_checkpoint.h  Floor 2, nn: memory against computation.
 *
 *  PyTorch: torch/utils/checkpoint.py (use_reentrant=False);
 *  torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py.
 *
 *  A checkpointed forward keeps its inputs and outputs alone.  When the backward
 *  first needs something from inside, the forward runs once more on a tape of
 *  its own and hands over what it made; the graph, its hooks and the order in
 *  which gradients are added stay those of the first time.  So nothing changes
 *  but memory and time: all numbers have the same bits.
 *
 *      forward   x -> [ a, b, c ] -> y      kept: x, y
 *      backward  dy arrives: x -> [ a, b, c ] again, then as ever; then freed
 *
 *  The forward must do the same both times: the same operators on the same
 *  values (dropout does; its masks are drawn from the tape's options).  Tensors
 *  made inside are not readable afterwards, but for the outputs.
 */
#ifndef FSDP_ACTIVATION_CHECKPOINT_H
#define FSDP_ACTIVATION_CHECKPOINT_H

#include "fsdp/module.h"
#include "fsdp/status.h"

/** Checkpoints each run of the module's forward from now on.  The module's own
 *  hooks (those of fully_shard(), before or after this call) stay outside and run
 *  once; those of modules below run again with the forward, on a tape that
 *  fsdp_tape_is_recomputing().  Error: the module is checkpointed already.
 *  Not collective, but to be done alike on all ranks.
 *  PyTorch: checkpoint_wrapper(module, CheckpointImpl.NO_REENTRANT). */
fsdp_status_t fsdp_checkpoint_wrapper(fsdp_module_t *module);

typedef fsdp_values_t (*fsdp_checkpoint_fn_t)(void *context, fsdp_tape_t *tape,
                                              fsdp_values_t inputs);

/** Runs fn(context, tape, inputs) as one checkpoint.  `context` is borrowed and
 *  must stay as it is until the backward.  On a tape that records no gradients,
 *  or if nothing inside needs one, only the outputs are kept and `fn` does not
 *  run again.  Checkpoints may lie inside each other; the inner one is computed
 *  again only after the outer one.  Ends the program if the second run records
 *  other operators than the first.
 *  PyTorch: checkpoint(fn, *inputs, use_reentrant=False). */
fsdp_values_t fsdp_tape_checkpoint(fsdp_tape_t *tape, fsdp_checkpoint_fn_t fn,
                                   void *context, fsdp_values_t inputs);

#endif
