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
    struct fsdp_region *region; /**< the innermost that it is in; borrowed */
    size_t number;   /**< how many operators (not hooks) came before it */
    bool emptied;    /**< by the region: to be computed again */
};

/** A function to run when a backward passes a point. */
typedef struct fsdp_tape_mark {
    fsdp_tape_fn_t fn;
    void *context;
    size_t position; /**< nodes before it */
} fsdp_tape_mark_t;

struct fsdp_tape {
    fsdp_tape_options_t options;
    fsdp_tensor_t **tensor; /**< all that were made here, owned */
    size_t num_tensors, tensor_room;
    fsdp_node_t **node;
    size_t num_nodes, node_room;
    fsdp_tape_hook_t *callback;
    int num_callbacks;
    bool running; /**< inside fsdp_backward() */
    fsdp_tape_mark_t *mark; /**< in the order of their making, owned */
    size_t num_marks, mark_room;
    struct fsdp_region **region; /**< in the order of their beginnings, owned */
    size_t num_regions, region_room;
    size_t regions_ahead; /**< that a running backward has not passed */
    struct fsdp_region *open_region; /**< the innermost that runs now */
    size_t num_operators;
    struct fsdp_tape *outer; /**< whose region is computed again here */
};

/** Frees a node and the gradients that it holds. */
void fsdp_node_destroy(fsdp_node_t *node);
/** Frees what it saved for the backward. */
void fsdp_node_free_saved(fsdp_node_t *node);
/** Is it there for a hook alone?  Then a recomputation has no such node. */
bool fsdp_node_is_hook(const fsdp_node_t *node);
/** Appends to a list of pointers that doubles as it grows. */
void fsdp_tape_append(void ***list, size_t *count, size_t *room, void *item);

/** Computes again what the node's region did not keep, up to the node's inputs,
 *  outputs and saved values. */
void fsdp_region_refill(fsdp_node_t *node);
/** The backward has passed node `i`: frees again what regions that begin there
 *  had computed again. */
void fsdp_region_passed(fsdp_tape_t *tape, size_t i);

#endif
