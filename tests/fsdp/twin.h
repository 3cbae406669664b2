/** \file twin.h  A model that nobody shards, and the reduction of its gradients
 *  written out element by element: what the tests of fully_shard() expect.
 *
 *  Letters: S ranks of the shard dimension, R replicas, W = R S; rank q = r S + s
 *  runs micro-batches q, W + q, 2 W + q, ...
 */
#ifndef TESTS_FSDP_TWIN_H
#define TESTS_FSDP_TWIN_H

#include "fsdp/fsdp_module.h"

enum { TWIN_PARAMS = 32, TWIN_MICROS = 24, TWIN_RANKS = 8 };

/** When a rank's micro-batches are added up. */
typedef enum twin_accumulate {
    TWIN_SYNC,    /**< each is reduced; the results are added               */
    TWIN_NO_SYNC, /**< on the rank; the sum is reduced                      */
    TWIN_DEFERRED /**< after the reduce-scatter, before the all-reduce      */
} twin_accumulate_t;

typedef struct twin_reduction {
    int shard, replicas, micros; /**< S, R, micro-batches of a rank          */
    twin_accumulate_t how;
    fsdp_reduce_order_t order; /**< with replicas not the ring              */
    fsdp_averaging_t averaging;
    double factor; /**< 0: none                                              */
    bool force_sum, unused; /**< unused: gradients that are missing are zeros */
    fsdp_dtype_t reduce;    /**< in which it is reduced; none: the data's    */
} twin_reduction_t;

typedef struct twin {
    fsdp_module_t *module; /**< computes; its types are those of the data    */
    fsdp_parameter_t *param[TWIN_PARAMS];
    int count, micros;
    fsdp_dtype_t dtype[TWIN_PARAMS]; /**< of the parameters when sharded     */
    double *value[TWIN_PARAMS];      /**< in that type                       */
    double *grad[TWIN_PARAMS][TWIN_MICROS]; /**< NULL: none                  */
} twin_t;

/** Takes the values and types of `whole`, and computes on `computing` (or, if
 *  that is NULL, on it).  Owns both. */
twin_t *twin_create(fsdp_module_t *whole, fsdp_module_t *computing);
void twin_destroy(twin_t **twin);

/** Forward and backward of a micro-batch on any model. */
typedef void (*twin_run_t)(fsdp_module_t *module, int micro);
/** The gradients of micro-batches 0 .. micros - 1 by the present values. */
void twin_run(twin_t *twin, twin_run_t run, int micros);
/** The reduced gradient of element i of parameter p, on rank `owner` of the
 *  shard dimension; false: there is none. */
bool twin_reduced(const twin_t *twin, int p, size_t i, int owner,
                  const twin_reduction_t *reduction, double *out);
/** Are the shards' gradients of the model those, bit for bit, with zeros in the
 *  padding and none where there is none? */
bool twin_grads_agree(const twin_t *twin, fsdp_module_t *module,
                      const twin_reduction_t *reduction);
bool twin_grad_agrees(const twin_t *twin, int p, fsdp_parameter_t *mine,
                      const twin_reduction_t *reduction);
/** Are the shards those of the values? */
bool twin_data_agree(const twin_t *twin, fsdp_module_t *module);
/** value -= gradient / 8, in the parameter's type; gradients go. */
void twin_update(twin_t *twin, const twin_reduction_t *reduction);
/** The same of a sharded model, on fsdp_parameter_local(). */
void twin_update_shards(fsdp_module_t *module);

/** One rounding to the type: of a sum, a product or a quotient of two numbers
 *  of the type, computed in float32 (float64 for float64). */
double twin_round(fsdp_dtype_t dtype, double x);

/* ---- what the tests share ------------------------------------------------ */

int twin_size(void);
int twin_rank(void);
/** One dimension if `replicas` is 0, else two. */
fsdp_mesh_t *twin_mesh(int replicas);
/** The reduction of such a mesh, the rest by default. */
twin_reduction_t twin_reduction(int replicas, int micros);
/** Each child with parameters is a group, the root the last. */
void twin_shard(fsdp_module_t *module, const fsdp_options_t *options);
fsdp_options_t twin_options(fsdp_mesh_t *mesh);
/** Micro-batch j of this rank. */
int twin_micro(int j);
/** Runs this rank's micro-batches 0 .. micros - 1 as that says. */
void twin_run_sharded(fsdp_module_t *module, twin_run_t run,
                      const twin_reduction_t *reduction);

/** `steps` steps of both; fails the test unless gradients and shards have the same
 *  bits after each. */
void twin_train(twin_t *twin, fsdp_module_t *module, twin_run_t run,
                const twin_reduction_t *reduction, int steps);

/** Collective calls of a mesh since the last reset. */
typedef struct twin_calls {
    int all_gather, reduce_scatter, all_reduce;
} twin_calls_t;
twin_calls_t twin_calls(const fsdp_mesh_t *mesh);
/** Are they those (none, where there is one rank to talk to)? */
bool twin_called(const fsdp_mesh_t *mesh, int all_gather, int reduce_scatter,
                 int all_reduce);

#endif
