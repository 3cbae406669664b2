/** \file plan_sim.h  Floor 7, cli: a step of training that is only counted.
 *
 *  `fsdp plan` walks through a step as the rules have it (forward, backward,
 *  gathers, reductions, the optimizer) and adds and drops bytes where the run
 *  would allocate and free.  Nothing is computed and nothing is asked of the
 *  code that it is about, so that a run can be held against it.
 *
 *      plan_memory.c   bytes by category, blocks, sums over micro-batches
 *      plan_model.c    units and parameters
 *      plan_ops.c      what each operator takes and keeps
 *      plan_ops_head.c     the head and its loss
 *      plan_ops_experts.c  those of a mixture of experts
 *      plan_parallel.c tensor parallelism
 *      plan_tape.c     the order of the backward; checkpoints
 *      plan_models.c   the operators of each model
 *      plan_fsdp2.c    fully_shard()
 *      plan_fsdp1.c    flat parameters, the stages of ZeRO
 *      plan_step.c     a step, an evaluation
 *
 *  Letters: S shard ranks, R replicas, c elements of a padded shard.
 */
#ifndef FSDP_CLI_PLAN_SIM_H
#define FSDP_CLI_PLAN_SIM_H

#include "fsdp.h"

/* ---- what is planned ----------------------------------------------------- */

typedef enum plan_model_kind {
    PLAN_GPT2,
    PLAN_LLAMA,
    PLAN_MLP
} plan_model_kind_t;

typedef enum plan_strategy {
    PLAN_FSDP2,
    PLAN_FULL_SHARD, /**< FSDP1, and ZeRO-3 */
    PLAN_SHARD_GRAD_OP,
    PLAN_NO_SHARD, /**< DDP too */
    PLAN_HYBRID_SHARD,
    PLAN_HYBRID_SHARD_ZERO2,
    PLAN_ZERO1,
    PLAN_ZERO2
} plan_strategy_t;

/** What the micro-batches of a step do before the last one. */
typedef enum plan_accumulation {
    PLAN_SYNC,            /**< reduce each time                              */
    PLAN_NO_SYNC,         /**< add up whole gradients                        */
    PLAN_DEFER_ALL_REDUCE /**< reduce-scatter; the replicas wait             */
} plan_accumulation_t;

typedef struct plan_config {
    plan_model_kind_t model;
    fsdp_gpt2_config_t gpt2;
    fsdp_llama_config_t llama;
    fsdp_mlp_config_t mlp;
    fsdp_dtype_t dtype; /**< of the parameters */
    /* the work */
    int64_t batch, context; /**< rows of a micro-batch, tokens of a row */
    int micros;             /**< micro-batches of a rank and step */
    double dropout;
    int threads;
    long eval_batches;  /**< micro-batches over all ranks; 0: none */
    int64_t eval_rows;  /**< mlp: rows over all of them */
    int64_t data_bytes; /**< that the data take in memory */
    /* the sharding */
    int shard, replicas, rank;
    plan_strategy_t strategy;
    int reshard; /**< FSDP_RESHARD_AUTO, _TRUE, _FALSE or K */
    fsdp_dtype_t param_dtype, reduce_dtype;
    fsdp_dtype_t output_dtype; /**< of the root */
    plan_accumulation_t accumulation;
    fsdp_reduce_order_t order;
    bool checkpoint, offload;
    int tp, tp_rank;  /**< T of tensor parallelism; rank: without it */
    int expert_parts; /**< P ranks share out the experts */
    int expert_load;  /**< rows that this rank's get: 0 as many as it sends, -1
                          none, 1 those of all P ranks (and its own are sent
                          away: nothing is more) */
    bool largest; /**< cut along the largest dim that can be, not the first */
    long forward_prefetch, backward_prefetch; /**< units; -1: the default   */
    fsdp_backward_prefetch_t backward_policy; /**< FSDP1 */
    int optimizer_states; /**< tensors beside each parameter */
} plan_config_t;

/* ---- what is counted ----------------------------------------------------- */

/** Besides the categories: their sum, and that of all but "other". */
enum { PLAN_ALL = FSDP_MEM_COUNT, PLAN_TENSORS, PLAN_SUMS };

typedef struct plan_memory {
    int64_t live[PLAN_SUMS], peak[PLAN_SUMS];
} plan_memory_t;

typedef struct plan_calls {
    int64_t calls[FSDP_COLLECTIVE_COUNT], bytes[FSDP_COLLECTIVE_COUNT];
} plan_calls_t;

/** The partial sums that are there at once: sizes and how many terms are in
 *  each (see grad_sum.h for the rule). */
typedef struct plan_sum {
    int count, level[64];
} plan_sum_t;

/** A block of memory; several tensors may share it. */
typedef struct plan_block {
    fsdp_memory_category_t category;
    int64_t bytes;
    int users;
} plan_block_t;

/* ---- the model ----------------------------------------------------------- */

typedef struct plan_param {
    const char *name; /**< borrowed from the module */
    int ndim;
    size_t shape[FSDP_MAX_DIMS];
    int dim;   /**< that is cut */
    int parts; /**< 1, or P: dim 0 is in so many, each over S / P ranks */
    int64_t numel, chunk; /**< of one part; chunk: c, padded */
    /* the whole gradient: of this backward's uses, and complete */
    int awaited;
    bool incoming, grad;
    bool gathered;
    plan_sum_t reduced, accumulated;
    bool has_states;
    int64_t state_numel;
} plan_param_t;

typedef enum plan_sharded {
    PLAN_SHARDED,
    PLAN_SHARDED_POST_FORWARD,
    PLAN_UNSHARDED
} plan_sharded_t;

typedef struct plan_unit {
    const char *name; /**< borrowed; "" is the root */
    plan_param_t *param;
    int num_params;
    bool is_root;
    int parts;            /**< as its parameters' */
    int64_t numel, chunk; /**< numel: all parts; chunk, padded: times its ranks
                               what a gather gives */
    /* as it runs */
    plan_sharded_t state;
    fsdp_training_state_t training;
    bool reshard_after_forward;
    int groups; /**< K, or 0 */
    bool pending;
    int64_t pending_bytes;
    int order;          /**< in this forward; -1: not yet, or prefetched from */
    plan_sum_t partial; /**< reduce-scattered, not all-reduced */
    /* FSDP1 */
    bool prefetched, needs_pre_backward, ran_pre_backward;
    int64_t flat; /**< n */
    plan_sum_t flat_grad, flat_reduced;
} plan_unit_t;

/* ---- the tape ------------------------------------------------------------ */

typedef enum plan_op {
    PLAN_LINEAR,
    PLAN_LAYER_NORM,
    PLAN_RMS_NORM,
    PLAN_ACTIVATION, /**< gelu, silu, relu */
    PLAN_DROPOUT,
    PLAN_ADD,
    PLAN_MULTIPLY,
    PLAN_CAST,
    PLAN_EMBEDDING,
    PLAN_POSITION,
    PLAN_ATTENTION,
    PLAN_GROUPED_ATTENTION,
    PLAN_ROTARY,
    PLAN_HEAD, /**< linear layer and cross-entropy in one */
    PLAN_CROSS_ENTROPY,
    PLAN_VIEW, /**< another shape of the same elements */
    PLAN_ROUTE,
    PLAN_DISPATCH,
    PLAN_GROUPED_LINEAR,
    PLAN_COMBINE,
    PLAN_EXCHANGE, /**< all-to-all */
    PLAN_TP_COPY,  /**< the same elements; gradients are summed */
    PLAN_TP_SUM,   /**< over the ranks of tensor parallelism */
    PLAN_ADD_BIAS,
    PLAN_AFTER_GRADS /**< the place of a hook */
} plan_op_t;

typedef struct plan_tensor {
    int64_t numel;
    fsdp_dtype_t dtype;
    plan_block_t *block; /**< NULL: freed */
    bool needs_grad;
    struct plan_node *maker;
} plan_tensor_t;

enum { PLAN_MAX_INPUTS = 3, PLAN_MAX_HOOKS = 3 };

typedef struct plan_node {
    plan_op_t op;
    plan_tensor_t *input[PLAN_MAX_INPUTS], *output;
    int num_inputs;
    plan_param_t *param[2];
    int64_t rows;     /**< of the input: what is not its last dimension */
    int64_t saved;    /**< bytes of activations beside inputs and outputs */
    int64_t returned; /**< PLAN_EXCHANGE: elements to others, in the backward */
    plan_block_t *grad, *head_grad;
    bool used, emptied;
    plan_unit_t *hook[PLAN_MAX_HOOKS]; /**< whose pre-backward hangs here */
    int num_hooks;
    int region; /**< -1: none */
} plan_node_t;

typedef struct plan_region {
    int begin, end; /**< nodes */
    int first_tensor;
} plan_region_t;

typedef struct plan_mark {
    plan_unit_t *unit;
    int position;
} plan_mark_t;

typedef struct plan_list {
    void **item;
    int count, room;
} plan_list_t;

typedef struct plan_tape {
    bool recording, training;
    plan_list_t node, tensor, region, mark;
    int open_region;
    bool callback_queued;
} plan_tape_t;

/* ---- all together -------------------------------------------------------- */

struct plan_sim;

/** What a way of sharding does at each point. */
typedef struct plan_engine {
    void (*open)(struct plan_sim *sim);
    plan_tensor_t *(*pre_forward)(struct plan_sim *sim, plan_unit_t *unit,
                                  plan_tensor_t *input);
    plan_tensor_t *(*post_forward)(struct plan_sim *sim, plan_unit_t *unit,
                                   plan_tensor_t *output);
    void (*pre_backward)(struct plan_sim *sim, plan_unit_t *unit);
    void (*post_backward)(struct plan_sim *sim, plan_unit_t *unit);
    void (*end_backward)(struct plan_sim *sim);
    void (*after_update)(struct plan_sim *sim);
    void (*zero_grad)(struct plan_sim *sim);
} plan_engine_t;

extern const plan_engine_t plan_fsdp2_engine, plan_fsdp1_engine;

typedef struct plan_sim {
    plan_config_t config;
    const plan_engine_t *engine;
    plan_memory_t memory, files;
    plan_calls_t calls;
    fsdp_module_t *module;     /**< without values; owned */
    plan_unit_t *unit;         /**< root first */
    int num_units, num_blocks; /**< blocks follow the root, then experts */
    fsdp_dtype_t data_dtype, sum_dtype; /**< gathered; of the reduction */
    plan_tape_t *tape;                  /**< that runs now */
    plan_unit_t **order;                /**< of this forward */
    int num_order;
    plan_unit_t *reducing; /**< whose reduction is in flight */
    int64_t reduce_input, reduce_output, reduce_scratch;
    bool scratch_goes_early;   /**< see plan_reduce_scatter_start() */
    bool reduces, all_reduces; /**< in this backward */
} plan_sim_t;

/* ---- plan_memory.c ------------------------------------------------------- */

void plan_add(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes);
void plan_drop(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes);
/** Adds and drops. */
void plan_touch(plan_sim_t *sim, fsdp_memory_category_t category,
                int64_t bytes);
/** The same for what lives in files if there is --offload. */
void plan_add_kept(plan_sim_t *sim, fsdp_memory_category_t category,
                   int64_t bytes);
void plan_drop_kept(plan_sim_t *sim, fsdp_memory_category_t category,
                    int64_t bytes);
void plan_reset_peaks(plan_sim_t *sim);

/** A term of `bytes`, which has been added already, joins the sum. */
void plan_sum_add(plan_sim_t *sim, plan_sum_t *sum,
                  fsdp_memory_category_t category, int64_t bytes);
void plan_sum_read(plan_sim_t *sim, plan_sum_t *sum,
                   fsdp_memory_category_t category, int64_t bytes);
void plan_sum_clear(plan_sim_t *sim, plan_sum_t *sum,
                    fsdp_memory_category_t category, int64_t bytes);

plan_block_t *plan_block_new(plan_sim_t *sim, fsdp_memory_category_t category,
                             int64_t bytes);
plan_block_t *plan_block_share(plan_block_t *block);
/** NULL is allowed. */
void plan_block_free(plan_sim_t *sim, plan_block_t *block);

void plan_call(plan_sim_t *sim, fsdp_collective_t kind, int64_t bytes);
/** Bytes of a reduction's own room, and that a rank sends, for an all-reduce of
 *  `numel` elements over `ranks`, of which this is number `rank`. */
int64_t plan_all_reduce_scratch(int64_t numel, int64_t size, int ranks,
                                int rank);
int64_t plan_all_reduce_bytes(int64_t numel, int64_t size, int ranks, int rank);

/* ---- plan_model.c -------------------------------------------------------- */

/** The units and parameters of sim->config; the root first. */
void plan_model_open(plan_sim_t *sim);
void plan_model_close(plan_sim_t *sim);
int64_t plan_model_numel(const plan_sim_t *sim);

/* ---- plan_ops.c ---------------------------------------------------------- */

/** Output and saved values come to life. */
void plan_op_forward(plan_sim_t *sim, plan_node_t *node);
/** Hands gradients to the makers of inputs and to parameters. */
void plan_op_backward(plan_sim_t *sim, plan_node_t *node);
int64_t plan_size(fsdp_dtype_t dtype);
/** float32 for the 16-bit types. */
fsdp_dtype_t plan_compute_dtype(fsdp_dtype_t dtype);
/** Bytes of a widened copy of so many elements; 0 if it is not needed. */
int64_t plan_wide(fsdp_dtype_t dtype, int64_t numel);
/** The gradient of input i; of a parameter, and that it is complete. */
plan_block_t *plan_new_grad(plan_sim_t *sim, const plan_node_t *node, int i);
void plan_new_param_grad(plan_sim_t *sim, const plan_param_t *param);
void plan_add_param_grad(plan_sim_t *sim, plan_param_t *param);

/* ---- plan_ops_head.c ----------------------------------------------------- */

/** The gradients are made in the forward, while the logits are there; with 16
 *  bits in the backward. */
bool plan_head_is_late(const plan_node_t *node);
void plan_head_new_grads(plan_sim_t *sim, plan_node_t *node);
/** While it runs, with or without gradients. */
void plan_head_room(plan_sim_t *sim, const plan_node_t *node, bool grads);
void plan_head_backward(plan_sim_t *sim, plan_node_t *node);

/* ---- plan_ops_experts.c -------------------------------------------------- */

/** The same for PLAN_ROUTE, _DISPATCH, _GROUPED_LINEAR and _COMBINE. */
int64_t plan_expert_saved(const plan_sim_t *sim, const plan_node_t *node);
int64_t plan_expert_room(const plan_sim_t *sim, const plan_node_t *node);
void plan_expert_backward(plan_sim_t *sim, plan_node_t *node);
/** y[N,C] of x[N,C]; two weights of the experts, if they have no unit. */
plan_tensor_t *plan_experts(plan_sim_t *sim, plan_tensor_t *x,
                            plan_param_t *gate, plan_param_t *expert,
                            plan_unit_t *unit, int64_t rows);
/** The unit of a block's experts, if they are on several ranks. */
plan_unit_t *plan_experts_unit(plan_sim_t *sim, const plan_unit_t *block);

/* ---- plan_parallel.c ----------------------------------------------------- */

/** The dimension of a parameter that is cut over T ranks; -1: none. */
int plan_tp_dim(const plan_config_t *c, const char *name);
void plan_tp_sum(plan_sim_t *sim, fsdp_dtype_t dtype, int64_t numel);
/** y[rows, out] of x[rows, in], by all of a weight or the rank's part. */
plan_tensor_t *plan_linear(plan_sim_t *sim, plan_tensor_t *x,
                           plan_param_t *weight, plan_param_t *bias,
                           int64_t rows);
plan_tensor_t *plan_column_parallel(plan_sim_t *sim, plan_tensor_t *x,
                                    plan_param_t *weight, plan_param_t *bias,
                                    int64_t rows);
plan_tensor_t *plan_row_parallel(plan_sim_t *sim, plan_tensor_t *x,
                                 plan_param_t *weight, plan_param_t *bias,
                                 int64_t rows);
plan_tensor_t *plan_vocabulary(plan_sim_t *sim, plan_tensor_t *tokens,
                               plan_param_t *weight);
int64_t plan_vocabulary_room(const plan_sim_t *sim, const plan_node_t *node,
                             bool backward);

/* ---- plan_tape.c --------------------------------------------------------- */

plan_tape_t *plan_tape_new(plan_sim_t *sim, bool recording);
void plan_tape_free(plan_sim_t *sim);
plan_tensor_t *plan_tensor_new(plan_sim_t *sim, fsdp_dtype_t dtype,
                               int64_t numel);
/** An operator on up to three inputs; `numel` elements come out. */
plan_tensor_t *plan_record(plan_sim_t *sim, plan_op_t op, plan_tensor_t *a,
                           plan_tensor_t *b, plan_tensor_t *c,
                           plan_param_t *weight, plan_param_t *bias,
                           int64_t rows, int64_t numel, fsdp_dtype_t dtype);
plan_tensor_t *plan_cast(plan_sim_t *sim, plan_tensor_t *x, fsdp_dtype_t dtype);
/** A hook after the gradient of x: post_backward(). */
plan_tensor_t *plan_after_grads(plan_sim_t *sim, plan_tensor_t *x,
                                plan_unit_t *unit);
/** A hook before the node that made x. */
void plan_on_grad(plan_tensor_t *x, plan_unit_t *unit);
/** A hook when the backward is back here. */
void plan_on_passed(plan_sim_t *sim, plan_unit_t *unit);
void plan_region_begin(plan_sim_t *sim);
void plan_region_end(plan_sim_t *sim, const plan_tensor_t *output);
/** `loss` has one element. */
void plan_backward(plan_sim_t *sim, plan_tensor_t *loss);
/** Hands over (and owns) the gradient of input i. */
void plan_set_grad(plan_sim_t *sim, plan_node_t *node, int i,
                   plan_block_t *grad);

void plan_list_add(plan_list_t *list, void *item);

/* ---- plan_models.c ------------------------------------------------------- */

/** One forward of a micro-batch of `rows` rows: the loss. */
plan_tensor_t *plan_forward(plan_sim_t *sim, int64_t rows);

/* ---- plan_step.c --------------------------------------------------------- */

plan_sim_t *plan_sim_open(const plan_config_t *config);
void plan_sim_close(plan_sim_t **sim);
/** Micro-batches, reductions, the update. */
void plan_step(plan_sim_t *sim);
/** The held-out data, without gradients. */
void plan_evaluate(plan_sim_t *sim);

#endif
