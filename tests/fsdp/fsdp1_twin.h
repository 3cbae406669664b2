/** \file fsdp1_twin.h  The same training without FSDP1, and without the library's
 *  sums: gradients of each micro-batch from a model that nobody wrapped, combined
 *  and applied by plain loops written here. */
#ifndef TESTS_FSDP_FSDP1_TWIN_H
#define TESTS_FSDP_FSDP1_TWIN_H

#include "fsdp.h"
#include "net.h"

enum { TWIN_PARAMS = 16, TWIN_MICROS = 32, TWIN_RANKS = 8 };

typedef struct twin_config {
    net_config_t net;
    int replicas, shards; /**< R, S; the world is R S                         */
    int micros;           /**< per rank and step                              */
    bool no_sync;         /**< reduced with the last one                      */
    fsdp_reduce_order_t order;
    fsdp_dtype_t param_dtype, reduce_dtype; /**< none or given                */
    double factor;                          /**< 0: R S                       */
    bool all_reduce; /**< NO_SHARD: no shard dimension, R S ranks as one      */
} twin_config_t;

typedef struct twin {
    twin_config_t config;
    fsdp_module_t *net; /**< of param_dtype                                   */
    fsdp_parameter_t *parameter[TWIN_PARAMS];
    int count;
    float *master[TWIN_PARAMS]; /**< float32 values                           */
    float *grad[TWIN_PARAMS][TWIN_MICROS];
    double loss[TWIN_MICROS];
} twin_t;

twin_t *twin_create(const twin_config_t *config);
void twin_destroy(twin_t **twin);
/** Gradients of all R S m micro-batches of a step. */
void twin_run(twin_t *twin, int step);
/** Which micro-batch of the step a rank runs as its j-th. */
int twin_micro_batch(const twin_config_t *config, int rank, int j);
/** Element i of parameter p's gradient after the step, for the shard rank that
 *  gets it (which matters to the order `ring` alone). */
float twin_grad(const twin_t *twin, int p, size_t i, int owner);
/** value -= lr * grad for all elements; not in the order `ring`. */
void twin_update(twin_t *twin, float lr);
/** Rounds to nearest even in that type. */
float twin_round(fsdp_dtype_t dtype, float x);

#endif
