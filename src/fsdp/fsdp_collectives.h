/** \file fsdp_collectives.h  Floor 3, fsdp: one collective for a whole group.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py
 */
#ifndef FSDP_FSDP_COLLECTIVES_H
#define FSDP_FSDP_COLLECTIVES_H

#include "fsdp/fsdp_param.h"

/** An all-gather on its way.  PyTorch: AllGatherResult. */
typedef struct fsdp_all_gather_result {
    fsdp_work_t *work;
    void *output; /**< [W, S], owned; NULL when W = 1 */
} fsdp_all_gather_result_t;

/** Starts gathering all parameters of a group.
 *
 *      shards --copy in--> this rank's row of [W, S] --all-gather--> [W, S]
 *
 *  W = 1 moves nothing and calls no collective.  Collective over `comm`.
 *  PyTorch: foreach_all_gather(). */
fsdp_all_gather_result_t *
fsdp_foreach_all_gather(fsdp_comm_t *comm, const char *unit,
                        fsdp_param_t *const *params, int num_params);
/** Waits, and spreads [W, S] over the parameters; each is then whole, since
 *  row r of it is rank r's rows and padding comes only at the end.
 *  PyTorch: foreach_all_gather_copy_out(). */
void fsdp_foreach_all_gather_copy_out(fsdp_all_gather_result_t **result,
                                      fsdp_param_t *const *params,
                                      int num_params);
/** Waits, and throws the result away (a wrong prefetch). */
void fsdp_all_gather_discard(fsdp_all_gather_result_t **result);

/** A reduce-scatter on its way.  PyTorch: ReduceScatterState. */
typedef struct fsdp_reduce_scatter_state {
    fsdp_work_t *work;
    void *input;           /**< [W, S], owned                                */
    void *output;          /**< [S], owned                                   */
    fsdp_param_t **params; /**< those that had a gradient; owned list        */
    int num_params;
    fsdp_dtype_t dtype;
    fsdp_reduce_order_t order;
    double divide_factor;
} fsdp_reduce_scatter_state_t;

/** Starts reducing the gradients of `params`, each of which has one (whole, in
 *  parameter->grad), and frees those.
 *
 *      whole gradients --copy in--> [W, S] --reduce-scatter--> [S]
 *
 *  Collective over `comm`.  PyTorch: foreach_reduce(), first half. */
fsdp_reduce_scatter_state_t *
fsdp_foreach_reduce(fsdp_comm_t *comm, const char *unit,
                    fsdp_param_t *const *params, int num_params,
                    fsdp_reduce_order_t order, double divide_factor);
/** Waits, divides by the factor (sum-then-divide) and adds each parameter's part
 *  to its sharded gradient.  Frees; nulls; NULL is allowed.
 *  PyTorch: foreach_reduce(), second half. */
void fsdp_foreach_reduce_finish(fsdp_reduce_scatter_state_t **state);

/** Writes every rank's chunk of every gradient side by side, zeros where a
 *  chunk is short.  `out` is [W, S].
 *  PyTorch: foreach_reduce_scatter_copy_in(), torch._chunk_cat(). */
void fsdp_foreach_reduce_scatter_copy_in(fsdp_param_t *const *params,
                                         int num_params, void *out);

#endif
