/** \file ops_internal.h  Floor 2, nn: what the operators share.
 *
 *  An operator's inputs, parameters (their data_dtype), output and gradients
 *  have one type.  Shapes [..., C] are seen as [N, C], N rows.
 *
 *  16-bit types.  Kernels compute in float32 and float64 only.  An operator on
 *  bfloat16 or float16 computes in float32 on widened copies, and what it puts
 *  out, the output or one gradient, is rounded once, when all of it is done:
 *
 *      fsdp_wide_t w = fsdp_wide(x->dtype);
 *      const void *in = fsdp_wide_in(&w, x->data, n);
 *      void *out = fsdp_wide_out(&w, y->data, n);
 *      w.k->gelu_tanh(in, out, n);
 *      fsdp_wide_end(&w);
 *
 *  For float32 and float64 the same lines work on the arrays themselves.  Take
 *  `w.k`, not fsdp_kernels(x->dtype), which 16-bit types have not.  What a node
 *  keeps for its backward stays 16-bit, but for a few numbers a row (layer
 *  norm's, attention's), which are of fsdp_op_compute_dtype().  While it runs,
 *  an operator so takes 4 bytes more for each element of each array that it
 *  reads or writes, FSDP_MEM_ACTIVATION; what only moves elements (rows of an
 *  embedding, a reshape) needs none of this.
 */
#ifndef FSDP_NN_OPS_INTERNAL_H
#define FSDP_NN_OPS_INTERNAL_H

#include "fsdp/ops.h"
#include "tensor/kernels.h"

enum { FSDP_WIDE_MAX = 8 };

typedef struct fsdp_wide_copy {
    void *values;  /**< [numel] of `compute`, owned                          */
    void *rounded; /**< [numel] of `dtype`, where they go; NULL: only read   */
    size_t numel;
} fsdp_wide_copy_t;

/** What an operator, or one product of it, computes with. */
typedef struct fsdp_wide {
    fsdp_dtype_t dtype, compute; /**< of the arrays; of the arithmetic       */
    const fsdp_kernels_t *k;     /**< for `compute`                          */
    int count;
    fsdp_wide_copy_t copy[FSDP_WIDE_MAX];
} fsdp_wide_t;

/** float32 for a 16-bit type, else the type itself. */
fsdp_dtype_t fsdp_op_compute_dtype(fsdp_dtype_t dtype);
/** For arrays of this type; nothing is allocated yet. */
fsdp_wide_t fsdp_wide(fsdp_dtype_t dtype);
/** numel elements to read: `data`, or a widened copy.  NULL gives NULL. */
const void *fsdp_wide_in(fsdp_wide_t *wide, const void *data, size_t numel);
/** The same to write, contents undefined until then; it is not for reading what
 *  stands in `data`.  fsdp_wide_end() rounds it into `data`. */
void *fsdp_wide_out(fsdp_wide_t *wide, void *data, size_t numel);
/** Rounds values of `compute` to the arrays' type where they are, for a result
 *  within an operator that stands for another operator's output. */
void fsdp_wide_round(const fsdp_wide_t *wide, void *values, size_t numel);
/** Rounds what was written, and frees the copies. */
void fsdp_wide_end(fsdp_wide_t *wide);

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

/** y = a + b, all alike; y may be a. */
void fsdp_op_sum(const fsdp_tensor_t *a, const fsdp_tensor_t *b,
                 fsdp_tensor_t *y);

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
