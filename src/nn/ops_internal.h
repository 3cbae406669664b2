/** \file ops_internal.h  Floor 2, nn: what the operators share.
 *
 *  Every operator computes in the type of its input; its parameters must have
 *  the same.  Shapes [..., C] are seen as [N, C], N rows.
 */
#ifndef FSDP_NN_OPS_INTERNAL_H
#define FSDP_NN_OPS_INTERNAL_H

#include "fsdp/ops.h"

/** N of [..., C], and C.  Ends the program for a scalar. */
size_t fsdp_op_rows(const fsdp_tensor_t *x);
size_t fsdp_op_columns(const fsdp_tensor_t *x);

/** A tensor of the tape: like x; like x but for the last dim; a scalar []. */
fsdp_tensor_t *fsdp_op_new_like(fsdp_tape_t *tape, const fsdp_tensor_t *x);
fsdp_tensor_t *fsdp_op_new_columns(fsdp_tape_t *tape, const fsdp_tensor_t *x,
                                   size_t columns);
fsdp_tensor_t *fsdp_op_new_scalar(fsdp_tape_t *tape, fsdp_dtype_t dtype);

/** Ends the program, naming the operator, the parameter and both shapes, unless
 *  the parameter has this type and shape.  NULL parameters pass. */
void fsdp_op_check_parameter(const char *op, const fsdp_parameter_t *parameter,
                             fsdp_dtype_t dtype, int ndim, const size_t *shape);
/** The same for two tensors that must be alike. */
void fsdp_op_check_alike(const char *op, const fsdp_tensor_t *a,
                         const fsdp_tensor_t *b);
/** Ends the program unless `index` is int32. */
void fsdp_op_check_int32(const char *op, const fsdp_tensor_t *index);

/** Is the gradient of parameter i of the node wanted?  Not if it is NULL or
 *  frozen. */
bool fsdp_op_wants_grad(fsdp_node_t *node, int i);

/** Rows whose target is not `ignore_index`. */
size_t fsdp_op_count_targets(const fsdp_tensor_t *target, int32_t ignore_index);
/** Ends the program unless `target` is int32 and has one entry for each row of
 *  x. */
void fsdp_op_check_targets(const char *op, const fsdp_tensor_t *x,
                           const fsdp_tensor_t *target);

/** x[B, T, C] -> [B, C], the last position of each sample. */
fsdp_tensor_t *fsdp_op_last_position(fsdp_tape_t *tape, fsdp_tensor_t *x);

#endif
