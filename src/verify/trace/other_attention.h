/** \file other_attention.h  Floor 6, verify: attention as it should not be.
 *
 *  What scripts and kernels get wrong in it, for a diagnosis that asks whether a
 *  step was made so.  Plain sums in float64, and slow.
 */
#ifndef FSDP_VERIFY_TRACE_OTHER_ATTENTION_H
#define FSDP_VERIFY_TRACE_OTHER_ATTENTION_H

#include "fsdp/tape.h"

typedef enum attention_scale {
    ATTENTION_BY_ROOT_OF_DEPTH, /**< right: q k / sqrt(D)                     */
    ATTENTION_UNSCALED,
    ATTENTION_BY_DEPTH,
    ATTENTION_BY_ROOT_OF_CHANNELS, /**< of all heads                          */
} attention_scale_t;

/** All zero: causal self-attention as it should be. */
typedef struct attention_change {
    bool everywhere; /**< no mask                                             */
    bool next;       /**< a position sees the one after it, too               */
    attention_scale_t scale;
    bool dealt_keys; /**< query head h reads key head h mod G, not h G / H    */
} attention_change_t;

/** qkv float64 [B, T, 3 C], heads of C / heads one after another -> [B, T, C]. */
fsdp_tensor_t *other_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv,
                               size_t heads, const attention_change_t *change);
/** q float64 [B, T, H D], k and v [B, T, G D] -> [B, T, H D]. */
fsdp_tensor_t *other_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q,
                                       fsdp_tensor_t *k, fsdp_tensor_t *v,
                                       size_t heads, size_t kv_heads,
                                       const attention_change_t *change);
/** x float64 [B, T, heads D], whose neighbours in a head are the pairs to turn:
 *  the first ones of all pairs, then the second ones, which is what
 *  fsdp_rotary() takes.  Products of queries and keys do not change. */
fsdp_tensor_t *other_pairs(fsdp_tape_t *tape, fsdp_tensor_t *x, size_t heads);

#endif
