/** \file tensor_parallel.h  Floor 2, nn: layers that several ranks share.
 *
 *  PyTorch: torch.distributed.tensor.parallel (parallelize_module(),
 *  ColwiseParallel, RowwiseParallel, loss_parallel()).
 *
 *  T ranks, those of a mesh's "tp" dimension, run the same batch.  Each has a
 *  part of the large weights and all of the small ones:
 *
 *      column-parallel  W is cut along its outputs.  y_t = x W_t needs nothing
 *                       of the others; dx is the sum over t of dy_t W_t^T.
 *      row-parallel     W is cut along its inputs.  y is the sum over t of
 *                       x_t W_t, to which the bias is added once; dx_t = dy W_t^T.
 *      vocabulary       rows of an embedding are cut: each rank looks up what it
 *                       has, zero elsewhere, and the rows are added.  Of the
 *                       loss each rank has the logits of its own classes; a
 *                       row's maximum, sum of exponentials and target's logit
 *                       are combined, so that nobody ever has all logits.
 *      heads            attention over the rank's own heads
 *
 *  Sums over t run in `reduce_order`, each term and each addition rounded to the
 *  type of what is added (float32 for the loss of 16-bit logits).  Everything
 *  else is computed by all T ranks alike, with the same bits: so are the
 *  gradients of layer norms and of row-parallel biases, which nobody adds up.
 *
 *  With comm NULL one process does what the T ranks do, on whole weights: it
 *  cuts the sums above into the same terms and adds them in the same order, by
 *  code that has nothing in common with comm's.  It gives the same bits as the
 *  T ranks, and for T = 1 those of the model as it was.
 *
 *  A parameter that is cut is one part of a larger one (see parameter.h), and
 *  fully_shard() may cut it again over other ranks: first parallelize, then
 *  fully_shard() over the mesh's other dimensions.
 */
#ifndef FSDP_TENSOR_PARALLEL_H
#define FSDP_TENSOR_PARALLEL_H

#include "fsdp/comm.h"
#include "fsdp/module.h"

typedef struct fsdp_tensor_parallel {
    int degree;        /**< T                                                 */
    fsdp_comm_t *comm; /**< the T ranks; NULL: this process in their place.
                            Borrowed, for as long as the model lives          */
    fsdp_reduce_order_t reduce_order; /**< FSDP_ORDER_TREE: 0                 */
} fsdp_tensor_parallel_t;

typedef enum fsdp_parallel_style {
    FSDP_COLWISE_PARALLEL, /**< Linear, Conv1D; LMHead: its classes           */
    FSDP_ROWWISE_PARALLEL, /**< Linear, Conv1D; Embedding: its vocabulary     */
    FSDP_HEAD_PARALLEL     /**< GPT2Attention, LlamaAttention: their heads;
                                their projections have entries of their own   */
} fsdp_parallel_style_t;

/** What becomes of the modules with a name. */
typedef struct fsdp_parallel_plan {
    const char *module; /**< "layers.*.mlp": * stands for any characters      */
    fsdp_parallel_style_t style;
    int groups; /**< column-parallel: the outputs are so many pieces of one
                     length, each cut by itself (3 for q, k, v); 0: 1         */
} fsdp_parallel_plan_t;

/** Makes modules below `module` parallel as the first fitting entry of
 *  plan[n] says.  The parameters of all others are kept whole on each of the T
 *  ranks.  Errors (the same on all ranks; nothing is changed then): a size that
 *  T does not divide, a module that has no such style, a parameter that has
 *  storage or is managed already, an entry that fits no module.  Not collective,
 *  but all ranks of `comm` must do it. */
fsdp_status_t fsdp_parallelize_module(fsdp_module_t *module,
                                      const fsdp_tensor_parallel_t *tp,
                                      const fsdp_parallel_plan_t *plan, int n);

/** The plans of the models that come with the library.  MLP: layers 0, 2, ...
 *  column-parallel, those after them row-parallel; a last one without a partner
 *  stays whole.  GPT-2 and Llama: everything but norms and position
 *  embeddings. */
fsdp_status_t fsdp_tensor_parallel_mlp(fsdp_module_t *mlp,
                                       const fsdp_tensor_parallel_t *tp);
fsdp_status_t fsdp_tensor_parallel_gpt2(fsdp_module_t *gpt2,
                                        const fsdp_tensor_parallel_t *tp);
fsdp_status_t fsdp_tensor_parallel_llama(fsdp_module_t *llama,
                                         const fsdp_tensor_parallel_t *tp);

/* ---- operators of such layers, for models of one's own ------------------- */

/** x itself; its gradient is summed over the ranks.  `unit` (for the ledger) is
 *  borrowed until the backward.  Here and below: collective over tp->comm, in
 *  the forward, in the backward or both. */
fsdp_tensor_t *fsdp_copy_to_ranks(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                  const fsdp_tensor_parallel_t *tp,
                                  const char *unit);
/** The sum of the ranks' x; its gradient is each x's. */
fsdp_tensor_t *fsdp_sum_over_ranks(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                   const fsdp_tensor_parallel_t *tp,
                                   const char *unit);
/** The ranks' x[..., C] side by side, [..., T C], in rank order; each rank takes
 *  its own columns of the gradient. */
fsdp_tensor_t *fsdp_gather_columns(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                   const fsdp_tensor_parallel_t *tp,
                                   const char *unit);

#endif
