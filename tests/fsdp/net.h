/** \file net.h  The model of data/golden/fsdp_events.py, in C: linear layers in
 *  groups of their own, a stem and a head that belong to the root. */
#ifndef TESTS_FSDP_NET_H
#define TESTS_FSDP_NET_H

#include "fsdp/fully_shard.h"

typedef struct net_config {
    bool stem, head;
    int uses, order[4]; /**< which layer is used when                        */
    int dropped;        /**< the layer whose output is thrown away; -1: none */
    fsdp_dtype_t dtype; /**< none: float32 */
    bool blocks; /**< a layer is a norm and linear layers "up" and "down"    */
} net_config_t;

enum { NET_BATCH = 6 };

fsdp_module_t *net_create(const net_config_t *config);
/** Layer i, "layers.I". */
fsdp_module_t *net_layer(fsdp_module_t *net, int i);
int net_num_layers(const fsdp_module_t *net);
/** A batch [rows, inputs] with values from a formula of `salt`; belongs to the
 *  tape. */
fsdp_tensor_t *net_batch(const fsdp_module_t *net, fsdp_tape_t *tape,
                         size_t rows, int salt);
/** Mean of the squared outputs. */
fsdp_tensor_t *net_loss(fsdp_module_t *net, fsdp_tape_t *tape,
                        fsdp_tensor_t *x);

/** Each layer is a group; the root is, with stem and head. */
void net_shard(fsdp_module_t *net, const fsdp_options_t *options);
/** Forward and backward of micro-batch `micro` on a tape of its own. */
void net_run(fsdp_module_t *net, int micro);

#endif
