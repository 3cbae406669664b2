/** \file head_operator.h  Floor 2, nn: what the two operators of a language
 *  model's head and its loss share: when their gradients are made.
 *
 *  In the forward, while a chunk's logits are there; with 16-bit inputs in the
 *  backward, from logits that are computed again (see ops_head.c).
 */
#ifndef FSDP_NN_HEAD_OPERATOR_H
#define FSDP_NN_HEAD_OPERATOR_H

#include "nn/ops_internal.h"

enum { FSDP_HEAD_CHUNK = 256 }; /**< rows; those of the GEMM's own tiles */

/** Begins what an operator keeps. */
typedef struct fsdp_head_saved {
    fsdp_tensor_t *dx, *dweight; /**< NULL: not wanted, or not made yet */
    int32_t ignore_index;
    /** The mean loss, and into dx and dweight, where they are, the gradients,
     *  which are those of `upstream` times it. */
    double (*mean_loss)(const fsdp_tensor_t *x, fsdp_parameter_t *weight,
                        const fsdp_tensor_t *target,
                        const struct fsdp_head_saved *saved, double upstream);
} fsdp_head_saved_t;

/** The operator's op->backward and op->free_saved. */
void fsdp_head_backward(fsdp_node_t *node);
void fsdp_head_free_saved(void *saved);

/** Records the operator, which keeps `saved`, [size] bytes that begin with a
 *  fsdp_head_saved_t, and returns its loss. */
fsdp_tensor_t *fsdp_head_loss(fsdp_tape_t *tape, const fsdp_op_t *op,
                              fsdp_tensor_t *x, fsdp_parameter_t *weight,
                              fsdp_tensor_t *target, fsdp_head_saved_t *saved,
                              size_t size);
/** The weight is [V, channels of x], the targets are rows of x. */
void fsdp_head_check(const char *op, const fsdp_tensor_t *x,
                     const fsdp_parameter_t *weight,
                     const fsdp_tensor_t *target);

#endif
