/** \file ops.h  Floor 2, nn: operators.
 *
 *  PyTorch: torch.nn.functional.  Inputs are borrowed, outputs belong to the
 *  tape.  Shapes [..., C] mean any leading dimensions.  A parameter's data are
 *  asked for when the operator runs, forward and backward.
 *
 *  Inputs and parameters (their data_dtype) of one call have one type, which the
 *  output and the gradients have too.  On bfloat16 and float16 an operator
 *  computes in float32 and rounds each result once, as PyTorch's products on a
 *  CPU do (whose losses and some others round on the way too).
 */
#ifndef FSDP_OPS_H
#define FSDP_OPS_H

#include "fsdp/module.h"

enum { FSDP_IGNORE_INDEX = -100 };

/** x[..., I] weight[O, I]^T + bias[O] (bias NULL: none).  F.linear. */
fsdp_tensor_t *fsdp_linear(fsdp_tape_t *tape, fsdp_tensor_t *x,
                           fsdp_parameter_t *weight, fsdp_parameter_t *bias);
/** x[..., I] weight[I, O] + bias[O].  Hugging Face's Conv1D. */
fsdp_tensor_t *fsdp_conv1d(fsdp_tape_t *tape, fsdp_tensor_t *x,
                           fsdp_parameter_t *weight, fsdp_parameter_t *bias);
/** index int32 [...] -> [..., C] rows of weight[V, C].  F.embedding. */
fsdp_tensor_t *fsdp_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
                              fsdp_parameter_t *weight);
/** Rows 0..T-1 of weight[P, C] for index [B, T]: [B, T, C]; T <= P. */
fsdp_tensor_t *fsdp_position_embedding(fsdp_tape_t *tape, fsdp_tensor_t *index,
                                       fsdp_parameter_t *weight);
fsdp_tensor_t *fsdp_layer_norm(fsdp_tape_t *tape, fsdp_tensor_t *x,
                               fsdp_parameter_t *weight, fsdp_parameter_t *bias,
                               double eps);
/** x / sqrt(mean(x^2) + eps) * weight[C], each row by itself.  F.rms_norm. */
fsdp_tensor_t *fsdp_rms_norm(fsdp_tape_t *tape, fsdp_tensor_t *x,
                             fsdp_parameter_t *weight, double eps);
fsdp_tensor_t *fsdp_gelu_tanh(fsdp_tape_t *tape, fsdp_tensor_t *x);
fsdp_tensor_t *fsdp_gelu_erf(fsdp_tape_t *tape, fsdp_tensor_t *x);
fsdp_tensor_t *fsdp_relu(fsdp_tape_t *tape, fsdp_tensor_t *x);
fsdp_tensor_t *fsdp_silu(fsdp_tape_t *tape, fsdp_tensor_t *x);
/** dim 0 counts samples; `layer` tells the masks of one step apart (a hash of
 *  the module's name).  The identity if p is 0 or the tape is not training. */
fsdp_tensor_t *fsdp_dropout(fsdp_tape_t *tape, fsdp_tensor_t *x, double p,
                            uint32_t layer);
/** Causal self-attention of qkv[B, T, 3C] -> [B, T, C]. */
fsdp_tensor_t *fsdp_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv,
                              size_t heads, double dropout, uint32_t layer);
/** The same of queries q[B, T, H D] and keys and values k, v[B, T, G D], H
 *  heads and G = kv_heads: query head h reads key head h / (H / G).  ->
 *  [B, T, H D].  F.scaled_dot_product_attention(enable_gqa=True). */
fsdp_tensor_t *fsdp_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q,
                                      fsdp_tensor_t *k, fsdp_tensor_t *v,
                                      size_t heads, size_t kv_heads,
                                      double dropout, uint32_t layer);
/** Cosines and sines [positions, head_dim] of the angles t theta^(-2 i /
 *  head_dim), of position t and i < head_dim / 2: the cosines of a position,
 *  then its sines.  In float64 for FSDP_FP64, in float32 for any other type.
 *  head_dim must be even.  The caller owns it. */
fsdp_tensor_t *fsdp_rotary_table(fsdp_dtype_t dtype, size_t positions,
                                 size_t head_dim, double theta);
/** x[B, T, heads head_dim], position t turned by row t of the table, with the
 *  halves of a head as pairs.  The table is borrowed until the backward.
 *  Hugging Face's apply_rotary_pos_emb(). */
fsdp_tensor_t *fsdp_rotary(fsdp_tape_t *tape, fsdp_tensor_t *x, size_t heads,
                           const fsdp_tensor_t *table);
/** a * b, element by element, same shapes. */
fsdp_tensor_t *fsdp_multiply(fsdp_tape_t *tape, fsdp_tensor_t *a,
                             fsdp_tensor_t *b);
/** a + b, same shapes. */
fsdp_tensor_t *fsdp_add(fsdp_tape_t *tape, fsdp_tensor_t *a, fsdp_tensor_t *b);
/** x * alpha */
fsdp_tensor_t *fsdp_scale(fsdp_tape_t *tape, fsdp_tensor_t *x, double alpha);
/** x in another floating type; x itself if it has it.  The gradient is cast
 *  back.  Tensor.to(dtype). */
fsdp_tensor_t *fsdp_cast(fsdp_tape_t *tape, fsdp_tensor_t *x,
                         fsdp_dtype_t dtype);
/** The same elements in another shape (a view). */
fsdp_tensor_t *fsdp_reshape(fsdp_tape_t *tape, fsdp_tensor_t *x, int ndim,
                            const size_t *shape);

/** Mean over targets other than ignore_index of the cross-entropy of
 *  logits[N.., V] with target int32 [N..]: a scalar [].  NaN, as in PyTorch, if
 *  all are ignored. */
fsdp_tensor_t *fsdp_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *logits,
                                  fsdp_tensor_t *target, int32_t ignore_index);
/** The same of x[.., C] weight[V, C]^T, some rows at a time: the logits of the
 *  whole input are never in memory.  Gradients are made in the forward.  For
 *  16-bit x, as Hugging Face's models do: the logits are rounded to its type,
 *  the loss of them is computed in float32 and is a float32 scalar; the logits
 *  are computed again in the backward, and their gradient is rounded. */
fsdp_tensor_t *fsdp_linear_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                                         fsdp_parameter_t *weight,
                                         fsdp_tensor_t *target,
                                         int32_t ignore_index);
/** Mean of (x - target)^2 over all elements: a scalar.  F.mse_loss. */
fsdp_tensor_t *fsdp_mse_loss(fsdp_tape_t *tape, fsdp_tensor_t *x,
                             fsdp_tensor_t *target);

#endif
