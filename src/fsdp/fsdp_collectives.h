/** \file fsdp_collectives.h  Floor 3, fsdp: one collective for a whole group.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py
 */
#ifndef FSDP_FSDP_COLLECTIVES_H
#define FSDP_FSDP_COLLECTIVES_H

#include "fsdp/fsdp_module.h"
#include "fsdp/fsdp_param.h"

/** "(root)" for the root's group, whose name is empty. */
const char *fsdp_ledger_unit(const char *unit);

/* ---- all-gather: fsdp_all_gather.c -------------------------------------- */

/** An all-gather on its way.  PyTorch: AllGatherResult. */
typedef struct fsdp_all_gather_result {
    fsdp_work_t *work;
    char *output; /**< a row of bytes per rank, owned; NULL when W = 1    */
    size_t row_bytes;
    int num_rows; /**< W, or K                                            */
    bool from_post_forward; /**< a row holds slices of the padded parameters  */
} fsdp_all_gather_result_t;

/** Starts gathering all parameters of a group.
 *
 *      shards --cast, copy in--> this rank's row of [W, S] --all-gather--> [W, S]
 *
 *  Parameters that are SHARDED_POST_FORWARD give the slices that they kept, and
 *  `comm` has K ranks.  W = 1 moves nothing and calls no collective.  If the
 *  types differ the rows are bytes.  Collective over `comm`.
 *  PyTorch: foreach_all_gather(). */
fsdp_all_gather_result_t *
fsdp_foreach_all_gather(fsdp_comm_t *comm, const char *unit,
                        fsdp_param_t *const *params, int num_params,
                        const fsdp_custom_comm_t *custom);
/** Waits, and spreads the rows over the parameters, each of which is then whole:
 *  cut along dim 0 it is its chunks one after another, padding at the end.
 *  PyTorch: foreach_all_gather_copy_out(). */
void fsdp_foreach_all_gather_copy_out(fsdp_all_gather_result_t **result,
                                      fsdp_param_t *const *params,
                                      int num_params);
/** Waits, and throws the result away (a wrong prefetch); NULL is allowed. */
void fsdp_all_gather_discard(fsdp_all_gather_result_t **result);

/* ---- how a mean is made: fsdp_divide.c ----------------------------------- */

/** What is done to the elements at each point of a reduction; 1: nothing. */
typedef struct fsdp_divide_plan {
    double multiply_input, divide_input; /**< before the reduce-scatter       */
    double divide_scattered;   /**< its output                               */
    double multiply_scattered; /**< before the all-reduce over replicas      */
    double divide_reduced;     /**< after the collectives, before the hook   */
    double divide_output;      /**< after the hook                           */
} fsdp_divide_plan_t;

/** `factor` 0: W R, as PyTorch's None.
 *  PyTorch: _get_gradient_divide_factors(). */
fsdp_divide_plan_t fsdp_get_divide_plan(int shard_size, int replicas,
                                        fsdp_dtype_t reduce_dtype,
                                        fsdp_averaging_t averaging,
                                        double factor, bool force_sum);

/* ---- reduction: fsdp_reduce.c ------------------------------------------- */

/** Reduce-scattered gradients that still wait for their all-reduce. */
typedef struct fsdp_partial_reduce_output {
    fsdp_grad_sum_t sum;
    size_t numel; /**< S, while there is one */
} fsdp_partial_reduce_output_t;

/** How a group reduces. */
typedef struct fsdp_reduce_options {
    const char *unit; /**< borrowed                                 */
    fsdp_comm_t *shard_comm;
    fsdp_comm_t *replicate_comm; /**< NULL: no replicas                      */
    fsdp_reduce_order_t order;
    fsdp_averaging_t averaging;
    double divide_factor; /**< 0: the number of ranks                        */
    bool force_sum;
    bool all_reduce; /**< false: the sum over replicas is put off            */
    fsdp_partial_reduce_output_t *partial; /**< where it is kept; borrowed   */
    fsdp_custom_comm_t custom;
    void (*all_reduce_hook)(void *context, fsdp_dtype_t dtype, void *output,
                            size_t numel);
    void *hook_context;
    fsdp_offload_t *offload; /**< where sharded gradients live; NULL: memory */
} fsdp_reduce_options_t;

/** A whole gradient that is to be reduced. */
typedef struct fsdp_unsharded_grad {
    fsdp_param_t *param;
    const void *data; /**< NULL: zeros                                       */
    fsdp_dtype_t dtype;
} fsdp_unsharded_grad_t;

/** A reduction on its way.  PyTorch: ReduceScatterState. */
typedef struct fsdp_reduce_scatter_state {
    fsdp_reduce_options_t options;
    fsdp_divide_plan_t plan;
    fsdp_work_t *work;
    void *input;           /**< [W, S], owned                                */
    void *output;          /**< [S], owned; NULL when W = 1                  */
    size_t numel;          /**< S                                            */
    fsdp_param_t **params; /**< those that had a gradient; owned list        */
    int num_params;
    fsdp_dtype_t dtype;
} fsdp_reduce_scatter_state_t;

/** Starts reducing gradients, which are no longer needed afterwards.
 *
 *      whole gradients --cast, copy in--> [W, S] --reduce-scatter--> [S]
 *
 *  Collective over the shard_comm.  PyTorch: foreach_reduce(), first half. */
fsdp_reduce_scatter_state_t *
fsdp_foreach_reduce(const fsdp_reduce_options_t *options,
                    const fsdp_unsharded_grad_t *grads, int num_grads);
/** Waits, sums over replicas, makes the mean, casts to the parameter's type and
 *  adds each parameter's part to its sharded gradient.  Frees; nulls; NULL is
 *  allowed.  Collective over the replicate_comm.
 *  PyTorch: foreach_reduce(), second half. */
void fsdp_foreach_reduce_finish(fsdp_reduce_scatter_state_t **state);

/** Waits for what is on its way, and throws it away; NULL is allowed. */
void fsdp_foreach_reduce_discard(fsdp_reduce_scatter_state_t **state);

/** Writes every rank's chunk of every gradient side by side in `dtype`, zeros
 *  where a chunk is short.  `out` is [W, S].
 *  PyTorch: foreach_reduce_scatter_copy_in(), torch._chunk_cat(). */
void fsdp_foreach_reduce_scatter_copy_in(const fsdp_unsharded_grad_t *grads,
                                         int num_grads, fsdp_dtype_t dtype,
                                         void *out);

#endif
