/** \file moe.h  Floor 2, nn: a mixture of experts, which may live on other ranks.
 *
 *  PyTorch: none; Hugging Face's MixtralSparseMoeBlock, torchtitan's MoE and its
 *  ExpertParallel.
 *
 *  N tokens of C channels, E experts, each a two-layer perceptron with H hidden
 *  channels, of which a token goes to K; P expert ranks with E / P experts each.
 *
 *      logits[N,E] = x W_gate^T, their softmax p, the K largest of each row
 *      (of equal ones the first expert's), weights w = p, or p / (sum of the K)
 *      rows[N K,C]: a token's row once for each of its experts, sorted by expert
 *      --all-to-all--> each row to the rank that has its expert
 *      --experts-->    down(silu(gate(row)) up(row)), or down(gelu(up(row)))
 *      --all-to-all--> and back to its own rank
 *      y = sum over k, in descending order of p, of w_k row_k
 *
 *  No expert has a capacity: no token is dropped, and an expert may get none.
 *  Forward and dx of a row do not depend on the rows beside it, so their bits
 *  are those of one process with all experts.
 *
 *  The expert ranks are data-parallel: each has a batch of its own.  An expert's
 *  gradient on its rank is the sum over the P batches: of each batch one term,
 *  0 if the expert gets none of its rows, rounded to the type of the data; the
 *  terms added in `reduce_order` (the tree over the expert rank, else left to
 *  right), each addition rounded.  So it is P times what a mean over the P
 *  ranks would be: reduce it over the other data ranks with the divide factor W,
 *  the number of all data ranks (fsdp_module_set_gradient_divide_factor()).
 *  One process that runs the W batches one after another gets the same by adding
 *  each P neighbours' gradients first; if W / P or P is 1, or P a power of two
 *  and the order the tree, that is the order over all W.
 */
#ifndef FSDP_MOE_H
#define FSDP_MOE_H

#include "fsdp/comm.h"
#include "fsdp/module.h"

typedef enum fsdp_expert_kind {
    FSDP_EXPERT_SWIGLU, /**< experts.w1, w3 [E, H, C] and w2 [E, C, H]        */
    FSDP_EXPERT_GELU    /**< experts.w1 [E, H, C] and w2 [E, C, H]            */
} fsdp_expert_kind_t;

typedef struct fsdp_moe_config {
    size_t channels, hidden, num_experts, top_k; /**< C, H, E, K              */
    fsdp_expert_kind_t kind;
    bool norm_topk_prob; /**< weights add up to 1, as Mixtral's               */
    double router_aux_loss_coef; /**< 0: no auxiliary loss                    */
    double std, down_std; /**< of gate, w1, w3; of w2                         */
    fsdp_dtype_t dtype;
    uint64_t seed;
    fsdp_comm_t *comm; /**< the P expert ranks; NULL: this one has all
                            experts.  Borrowed, as long as the module lives   */
    fsdp_reduce_order_t reduce_order; /**< FSDP_ORDER_TREE: 0                 */
} fsdp_moe_config_t;

/** SwiGLU, top 2 of 8, normalised, no auxiliary loss, std 0.02, float32; C and H
 *  are 0. */
fsdp_moe_config_t fsdp_moe_config_default(void);

/** Why a configuration is refused: a sentence that the caller frees with
 *  fsdp_free(), or NULL if it is sound. */
char *fsdp_moe_config_fault(const fsdp_moe_config_t *config);

/** x [..., C] -> y [..., C]; and, if router_aux_loss_coef is not 0, a second
 *  output, the scalar (of the type of the arithmetic: float32 for 16-bit x)
 *
 *      coef E sum over e of f_e P_e
 *
 *  where f_e is the number of rows that expert e gets over N, and P_e the mean
 *  of p over the tokens (Switch Transformer; Mixtral's
 *  load_balancing_loss_func() of one layer).
 *
 *  Children: "NAME.gate", a Linear with NAME.gate.weight [E, C], and
 *  "NAME.experts" with parameters of which each expert rank has part_dim 0's
 *  part.  Ends the program with fsdp_moe_config_fault() if there is one.
 *  Running it is collective over `comm`, forward and backward. */
fsdp_module_t *fsdp_moe_create(const char *name,
                               const fsdp_moe_config_t *config);
/** "NAME.experts": a unit for fully_shard() over the ranks that have the same
 *  experts. */
fsdp_module_t *fsdp_moe_experts(fsdp_module_t *moe);

/* ---- its operators ------------------------------------------------------- */

/** Which of `experts` experts each token goes to.  Its tensors are int32 and
 *  belong to the tape. */
typedef struct fsdp_routing {
    fsdp_tensor_t *expert; /**< [N, K]                                        */
    fsdp_tensor_t *origin; /**< [N K]: n K + k of the rows sorted by expert,
                                then by token                                 */
    fsdp_tensor_t *counts; /**< [1, E]: rows of each expert                   */
    fsdp_tensor_t *weight; /**< [N, K] of the logits' type, differentiable    */
    fsdp_tensor_t *aux;    /**< a scalar; NULL if coef is 0                   */
} fsdp_routing_t;

/** Softmax, top k and weights of logits[N, E], and the auxiliary loss. */
fsdp_routing_t fsdp_route(fsdp_tape_t *tape, fsdp_tensor_t *logits,
                          size_t top_k, bool normalize, double aux_coef);
/** x[N, C] -> rows[N K, C] in the order of `origin`. */
fsdp_tensor_t *fsdp_dispatch(fsdp_tape_t *tape, fsdp_tensor_t *x,
                             const fsdp_routing_t *routing);
/** rows[N K, C] back to y[N, C], the weighted sum over each token's rows. */
fsdp_tensor_t *fsdp_combine(fsdp_tape_t *tape, fsdp_tensor_t *rows,
                            const fsdp_routing_t *routing);
/** counts[1, E] of each rank -> [P, E / P], the rows that this one gets from
 *  each rank for each of its experts.  Collective. */
fsdp_tensor_t *fsdp_exchange_counts(fsdp_tape_t *tape,
                                    const fsdp_tensor_t *counts,
                                    fsdp_comm_t *comm, const char *unit);
/** rows[R, C] to other ranks: those that `sent`, [1, E] cut in P equal pieces,
 *  counts, for those that `received` [P, E / P] counts; or, if `back`, the way
 *  of the answers.  `unit` is borrowed until the backward.  Collective, forward
 *  and backward. */
fsdp_tensor_t *fsdp_exchange_rows(fsdp_tape_t *tape, fsdp_tensor_t *rows,
                                  const fsdp_tensor_t *sent,
                                  const fsdp_tensor_t *received, bool back,
                                  fsdp_comm_t *comm, const char *unit);
/** x[R, I] -> [R, O]: rows of source s and expert e, counts[P, E'] of them, one
 *  block after another, times weight[E', O, I] of e, transposed.  The gradient
 *  of the weight is the sum over the sources that fsdp/moe.h defines. */
fsdp_tensor_t *fsdp_grouped_linear(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                   fsdp_parameter_t *weight,
                                   const fsdp_tensor_t *counts,
                                   fsdp_reduce_order_t order);

#endif
