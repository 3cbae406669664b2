/** \file fsdp_faults.h  Floor 3, fsdp: where injected faults bite.
 *
 *  Without a chosen fault (fsdp/fault.h) each of these does nothing or returns
 *  what it was given.
 */
#ifndef FSDP_FSDP_FAULTS_H
#define FSDP_FSDP_FAULTS_H

#include "fsdp/fault.h"
#include "fsdp/fsdp_collectives.h"

/** stale-shard: the shard that the all-gather takes. */
const void *fsdp_fault_shard_to_gather(fsdp_param_t *param);
/** unreduced-replica: changes this rank's gathered copy of one bias. */
void fsdp_fault_after_gather(fsdp_param_t *const *params, int num_params);
/** drop-tail, shift-chunk: which rows a chunk has. */
void fsdp_fault_cut(const fsdp_param_t *param, size_t *begin, size_t *rows);
/** wrong-order */
fsdp_reduce_order_t fsdp_fault_order(fsdp_reduce_order_t order);
/** skip-rank, reuse-buffer: changes the reduction's input; and remembers
 *  gradients for skip-bias-reduce and unreduced-replica.  The gradients are
 *  still there. */
void fsdp_fault_before_reduce(fsdp_comm_t *comm,
                              const fsdp_unsharded_grad_t *grads, int num_grads,
                              void *input, size_t bytes);
/** sum-not-mean 0, mean-not-sum 2, else 1. */
int fsdp_fault_divisions(void);
/** skip-bias-reduce: this rank's own gradient instead of the sum, divided as if
 *  it were alone.  `factor` as in fsdp_reduce_options_t. */
void fsdp_fault_after_reduce(fsdp_param_t *param, void *grad, double factor);

/** replicas-twice, skip-post-divide, divide-early: changes the divisions. */
void fsdp_fault_divide_plan(fsdp_divide_plan_t *plan, const fsdp_param_t *param,
                            int replicas);
/** reduce-low: the type in which a parameter's gradient is reduced. */
fsdp_dtype_t fsdp_fault_reduce_dtype(const fsdp_param_t *param);
/** low-grad: rounds numel elements of the reduced gradient. */
void fsdp_fault_round_grad(const fsdp_param_t *param, void *grad, size_t numel);
/** lose-partial, lose-accumulated: forgets the sum of earlier micro-batches. */
void fsdp_fault_lose(fsdp_fault_kind_t kind, fsdp_grad_sum_t *sum);
/** accumulate-low: rounds the unsharded accumulator. */
void fsdp_fault_round_accumulated(fsdp_param_t *param);
/** strided-as-plain: the element with which the o-th run of a chunk begins. */
size_t fsdp_fault_run_begin(const fsdp_shard_t *shard, size_t o, size_t begin,
                            size_t rows);
/** swap-neighbours: whose piece the r-th of n is taken for. */
int fsdp_fault_neighbour(int r, int n);
/** stale-prefetch: what is gathered from now on is prefetched, or not. */
void fsdp_fault_prefetching(bool on);

/** Frees what faults remember between calls; after the last model. */
void fsdp_fault_forget(void);

#endif
