/** \file tape_internal.h  Floor 2, nn: what a tape is made of. */
#ifndef FSDP_NN_TAPE_INTERNAL_H
#define FSDP_NN_TAPE_INTERNAL_H

#include "fsdp/tape.h"

/** A function to run when a gradient is complete. */
typedef struct fsdp_tape_hook {
    fsdp_tape_fn_t fn;
    void *context;
    int output; /**< of the node that it hangs on */
} fsdp_tape_hook_t;

struct fsdp_node {
    const fsdp_op_t *op;
    fsdp_tape_t *tape;
    fsdp_values_t inputs, outputs; /**< borrowed from the tape */
    fsdp_parameter_t *parameter[FSDP_MAX_VALUES]; /**< borrowed, may be NULL */
    int num_parameters;
    void *saved;
    fsdp_tensor_t *grad[FSDP_MAX_VALUES]; /**< of the outputs, owned */
    bool output_used[FSDP_MAX_VALUES];    /**< by a later operator */
    fsdp_tape_hook_t *hook;
    int num_hooks;
    bool reachable; /**< the loss depends on it */
};

struct fsdp_tape {
    fsdp_tape_options_t options;
    fsdp_tensor_t **tensor; /**< all that were made here, owned */
    size_t num_tensors, tensor_room;
    fsdp_node_t **node;
    size_t num_nodes, node_room;
    fsdp_tape_hook_t *callback;
    int num_callbacks;
    bool running; /**< inside fsdp_backward() */
};

/** Frees a node and the gradients that it holds. */
void fsdp_node_destroy(fsdp_node_t *node);

#endif
