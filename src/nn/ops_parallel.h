/** \file ops_parallel.h  Floor 2, nn: operators of layers that ranks share.
 *
 *  Those with `tp` work on a rank's part of a parameter and sum over tp->comm;
 *  with comm NULL they have the whole parameter and make the ranks' sums
 *  themselves.  See fsdp/tensor_parallel.h.
 */
#ifndef FSDP_NN_OPS_PARALLEL_H
#define FSDP_NN_OPS_PARALLEL_H

#include "fsdp/tensor_parallel.h"
#include "nn/parts.h"

/** A product one of whose sums is cut into the terms of several ranks. */
typedef struct fsdp_product_cut {
    fsdp_parts_t parts;
    bool inputs; /**< true: the inputs are cut, and so the sum of the output;
                      false: the outputs, and the sum of dx                  */
} fsdp_product_cut_t;

/** fsdp_linear() (`out_in`) or fsdp_conv1d() with a sum cut; `cut` is copied;
 *  NULL: none is.  With inputs cut there is no bias. */
fsdp_tensor_t *fsdp_op_product(fsdp_tape_t *tape, fsdp_tensor_t *x,
                               fsdp_parameter_t *weight, fsdp_parameter_t *bias,
                               bool out_in, const fsdp_product_cut_t *cut);
/** x[..., C] + bias[C] */
fsdp_tensor_t *fsdp_op_add_bias(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                fsdp_parameter_t *bias);

/** fsdp_attention(), fsdp_grouped_attention() whose first head is head
 *  `first_head` of the layer, for dropout. */
fsdp_tensor_t *fsdp_op_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv,
                                 size_t heads, size_t first_head,
                                 double dropout, uint32_t layer);
fsdp_tensor_t *fsdp_op_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q,
                                         fsdp_tensor_t *k, fsdp_tensor_t *v,
                                         size_t heads, size_t kv_heads,
                                         size_t first_head, double dropout,
                                         uint32_t layer);

/** fsdp_embedding() of a table whose rows are cut. */
fsdp_tensor_t *fsdp_op_vocab_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
                                       fsdp_parameter_t *weight,
                                       const fsdp_tensor_parallel_t *tp);
/** fsdp_linear_cross_entropy() of a weight whose rows, the classes, are cut. */
fsdp_tensor_t *fsdp_op_vocab_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                           fsdp_parameter_t *weight,
                                           fsdp_tensor_t *target,
                                           int32_t ignore_index,
                                           const fsdp_tensor_parallel_t *tp);

#endif
