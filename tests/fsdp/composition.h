/** \file composition.h  What one process expects of shards of parts: of tensor
 *  parallelism and of experts under fully_shard().
 */
#ifndef TESTS_FSDP_COMPOSITION_H
#define TESTS_FSDP_COMPOSITION_H

#include "fsdp.h"
#include "mck.h"
#include "nn/parallel_case.h"

enum { MAX_PARAMETERS = 64, MAX_BATCHES = 24 };

int world_size(void);

/** x[n] += as pairs, then pairs of pairs; x[0]. */
float tree_sum(float *x, size_t n);

/** Ranks: R replicas of S shards. */
typedef struct averaging {
    size_t replicas, shards;
} averaging_t;

/** One process's model.  With a lower param_dtype `model` is what computes, and
 *  `master` has the parameters in float32; else the two are one. */
typedef struct baseline {
    fsdp_module_t *model, *master;
    fsdp_parameter_t *computed[MAX_PARAMETERS];  /**< of model  */
    fsdp_parameter_t *parameter[MAX_PARAMETERS]; /**< of master */
    size_t count;
    fsdp_tensor_t *grad[MAX_BATCHES][MAX_PARAMETERS]; /**< [batch] */
} baseline_t;

/** Takes both, which may be one. */
baseline_t *baseline_create(fsdp_module_t *master, fsdp_module_t *model);
void baseline_destroy(baseline_t **baseline);
/** The model's parameters become the master's, rounded. */
void baseline_cast(baseline_t *b);
/** The gradients of a batch. */
void keep_grads(baseline_t *b, size_t batch);
/** The gradients of `micros` times S R batches become the step's gradient, each
 *  micro-batch's reduced by itself. */
void reduce_grads(baseline_t *b, averaging_t a, size_t micros);
/** The same, but each rank adds up its own before one reduction. */
void reduce_accumulated(baseline_t *b, averaging_t a, size_t micros);

/** Has this rank the right elements of every parameter, or of its gradient? */
bool local_agrees(fsdp_module_t *mine, const baseline_t *b, bool grads);
/** Each element of the model is counted by one rank. */
bool counted_once(fsdp_module_t *mine, const baseline_t *b);

/** A model cut over tp ranks, its parts over the shards. */
typedef struct tp_case {
    case_model_t model;
    int replicas, shards, tp;
    int reshard;
    fsdp_mixed_precision_policy_t policy;
} tp_case_t;

/** Three dimensions with replicas, else two; `data`: without tp. */
fsdp_mesh_t *tp_mesh(const tp_case_t *c, fsdp_mesh_t **data);
fsdp_module_t *tp_sharded(const tp_case_t *c, fsdp_mesh_t *mesh,
                          fsdp_mesh_t *data);
/** Told the degree; it computes in the policy's param_dtype. */
baseline_t *tp_baseline(const tp_case_t *c);
/** Batches in their order: which this rank's `micro` is. */
uint32_t tp_batch(const tp_case_t *c, size_t micro);
/** Runs `micros` batches of all data ranks; false: this rank's losses, in
 *  `loss`, are not theirs. */
bool tp_baseline_run(const tp_case_t *c, baseline_t *b, uint32_t salt,
                     size_t micros, const double *loss);

#endif
