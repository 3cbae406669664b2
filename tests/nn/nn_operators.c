#include "nn/nn_case.h"

#define BUILD(name)                                                            \
    static fsdp_tensor_t *name(const nn_case_t *c, fsdp_tape_t *tape,          \
                               const nn_slot_t *s, fsdp_tensor_t *integers)
#define UNUSED_INTEGERS ((void)c, (void)integers)

enum { DROPOUT_LAYER = 12345, HEADS = 3, GROUPED_HEADS = 6, KV_HEADS = 2 };

BUILD(linear)
{
    UNUSED_INTEGERS;
    return fsdp_linear(tape, s[0].x, s[1].p, s[2].p);
}

BUILD(conv1d)
{
    UNUSED_INTEGERS;
    return fsdp_conv1d(tape, s[0].x, s[1].p, s[2].p);
}

BUILD(embedding)
{
    (void)c;
    return fsdp_embedding(tape, integers, s[0].p);
}

BUILD(position_embedding)
{
    (void)c;
    return fsdp_position_embedding(tape, integers, s[0].p);
}

BUILD(layer_norm)
{
    UNUSED_INTEGERS;
    return fsdp_layer_norm(tape, s[0].x, s[1].p, s[2].p, 1e-5);
}

BUILD(gelu_tanh)
{
    UNUSED_INTEGERS;
    return fsdp_gelu_tanh(tape, s[0].x);
}

BUILD(gelu_erf)
{
    UNUSED_INTEGERS;
    return fsdp_gelu_erf(tape, s[0].x);
}

BUILD(relu)
{
    UNUSED_INTEGERS;
    return fsdp_relu(tape, s[0].x);
}

BUILD(dropout)
{
    UNUSED_INTEGERS;
    return fsdp_dropout(tape, s[0].x, 0.25, DROPOUT_LAYER);
}

BUILD(attention)
{
    UNUSED_INTEGERS;
    return fsdp_attention(tape, s[0].x, HEADS, 0, 0);
}

BUILD(attention_dropout)
{
    UNUSED_INTEGERS;
    return fsdp_attention(tape, s[0].x, HEADS, 0.25, DROPOUT_LAYER);
}

BUILD(rms_norm)
{
    UNUSED_INTEGERS;
    return fsdp_rms_norm(tape, s[0].x, s[1].p, 1e-6);
}

BUILD(silu)
{
    UNUSED_INTEGERS;
    return fsdp_silu(tape, s[0].x);
}

BUILD(multiply)
{
    UNUSED_INTEGERS;
    return fsdp_multiply(tape, s[0].x, s[1].x);
}

BUILD(squared)
{
    UNUSED_INTEGERS;
    return fsdp_multiply(tape, s[0].x, s[0].x);
}

/* x is [B, T, 2 D]; the table is longer than the sequence. */
BUILD(rotary)
{
    UNUSED_INTEGERS;
    const size_t *shape = s[0].x->shape;
    fsdp_tensor_t *table =
        fsdp_rotary_table(s[0].x->dtype, shape[1] + 2, shape[2] / 2, 10000);
    return fsdp_rotary(tape, s[0].x, 2, fsdp_tape_adopt(tape, table));
}

BUILD(grouped_attention)
{
    UNUSED_INTEGERS;
    return fsdp_grouped_attention(tape, s[0].x, s[1].x, s[2].x, GROUPED_HEADS,
                                  KV_HEADS, 0, 0);
}

BUILD(grouped_attention_dropout)
{
    UNUSED_INTEGERS;
    return fsdp_grouped_attention(tape, s[0].x, s[1].x, s[2].x, GROUPED_HEADS,
                                  KV_HEADS, 0.25, DROPOUT_LAYER);
}

BUILD(residual)
{
    UNUSED_INTEGERS;
    return fsdp_add(tape, s[0].x, s[1].x);
}

/* Both ways of using one value twice. */
BUILD(added_to_itself)
{
    UNUSED_INTEGERS;
    return fsdp_add(tape, s[0].x, fsdp_add(tape, s[0].x, s[0].x));
}

BUILD(scale)
{
    UNUSED_INTEGERS;
    return fsdp_scale(tape, s[0].x, -1.75);
}

BUILD(reshape)
{
    UNUSED_INTEGERS;
    size_t shape[2] = {5, 6};
    return fsdp_gelu_tanh(tape, fsdp_reshape(tape, s[0].x, 2, shape));
}

BUILD(cross_entropy)
{
    (void)c;
    return fsdp_cross_entropy(tape, s[0].x, integers, FSDP_IGNORE_INDEX);
}

BUILD(linear_cross_entropy)
{
    (void)c;
    return fsdp_linear_cross_entropy(tape, s[0].x, s[1].p, integers,
                                     FSDP_IGNORE_INDEX);
}

BUILD(mse_loss)
{
    UNUSED_INTEGERS;
    return fsdp_mse_loss(tape, s[0].x, s[1].x);
}

#define X(label, n, ...)                                                       \
    {                                                                          \
        .name = label, .ndim = n, .shape = { __VA_ARGS__ }                     \
    }
#define P(label, n, ...)                                                       \
    {                                                                          \
        .name = label, .parameter = true, .ndim = n, .shape = { __VA_ARGS__ }  \
    }

const nn_case_t nn_operators[] = {
    {.name = "linear",
     .build = linear,
     .array = {X("x", 3, 2, 3, 5), P("weight", 2, 7, 5), P("bias", 1, 7)}},
    {.name = "linear_no_bias",
     .build = linear,
     .array = {X("x", 3, 2, 3, 5), P("weight", 2, 7, 5)}},
    {.name = "conv1d",
     .build = conv1d,
     .array = {X("x", 3, 2, 3, 6), P("weight", 2, 6, 11), P("bias", 1, 11)}},
    {.name = "embedding",
     .build = embedding,
     .array = {P("weight", 2, 7, 5)},
     .integers_name = "index",
     .integers_ndim = 2,
     .integers_shape = {2, 4},
     .integers = {3, 0, 3, 6, 1, 3, 0, 2}},
    {.name = "position_embedding",
     .build = position_embedding,
     .array = {P("weight", 2, 5, 3)},
     .integers_name = "index",
     .integers_ndim = 2,
     .integers_shape = {3, 4},
     .integers = {0}},
    {.name = "layer_norm",
     .build = layer_norm,
     .array = {X("x", 3, 2, 3, 7), P("weight", 1, 7), P("bias", 1, 7)}},
    {.name = "layer_norm_hard",
     .build = layer_norm,
     .array = {X("x", 2, 4, 9), P("weight", 1, 9), P("bias", 1, 9)}},
    {.name = "gelu_tanh", .build = gelu_tanh, .array = {X("x", 2, 2, 24)}},
    {.name = "gelu_erf", .build = gelu_erf, .array = {X("x", 2, 2, 24)}},
    {.name = "relu",
     .build = relu,
     .array = {X("x", 2, 2, 24)},
     .keep_away = 0.125},
    {.name = "dropout", .build = dropout, .array = {X("x", 3, 3, 4, 5)}},
    {.name = "attention", .build = attention, .array = {X("qkv", 3, 2, 7, 45)}},
    {.name = "attention_dropout",
     .build = attention_dropout,
     .array = {X("qkv", 3, 2, 7, 45)}},
    {.name = "rms_norm",
     .build = rms_norm,
     .array = {X("x", 3, 2, 3, 7), P("weight", 1, 7)}},
    {.name = "rms_norm_hard",
     .build = rms_norm,
     .array = {X("x", 2, 4, 9), P("weight", 1, 9)}},
    {.name = "silu", .build = silu, .array = {X("x", 2, 2, 24)}},
    {.name = "multiply",
     .build = multiply,
     .array = {X("x", 2, 3, 5), X("y", 2, 3, 5)}},
    {.name = "squared", .build = squared, .array = {X("x", 2, 3, 5)}},
    {.name = "rotary", .build = rotary, .array = {X("x", 3, 2, 5, 12)}},
    {.name = "grouped_attention",
     .build = grouped_attention,
     .array = {X("q", 3, 2, 7, 24), X("k", 3, 2, 7, 8), X("v", 3, 2, 7, 8)}},
    {.name = "grouped_attention_dropout",
     .build = grouped_attention_dropout,
     .array = {X("q", 3, 2, 7, 24), X("k", 3, 2, 7, 8), X("v", 3, 2, 7, 8)}},
    {.name = "residual",
     .build = residual,
     .array = {X("x", 2, 3, 5), X("y", 2, 3, 5)}},
    {.name = "added_to_itself",
     .build = added_to_itself,
     .array = {X("x", 2, 3, 5)}},
    {.name = "scale", .build = scale, .array = {X("x", 2, 3, 5)}},
    {.name = "reshape", .build = reshape, .array = {X("x", 3, 2, 3, 5)}},
    {.name = "cross_entropy",
     .build = cross_entropy,
     .array = {X("logits", 2, 7, 11)},
     .integers_name = "target",
     .integers_ndim = 1,
     .integers_shape = {7},
     .integers = {3, 10, 7, FSDP_IGNORE_INDEX, 9, FSDP_IGNORE_INDEX, 0}},
    {.name = "linear_cross_entropy",
     .build = linear_cross_entropy,
     .array = {X("x", 2, 9, 6), P("weight", 2, 13, 6)},
     .integers_name = "target",
     .integers_ndim = 1,
     .integers_shape = {9},
     .integers = {0, 12, FSDP_IGNORE_INDEX, 5, 5, 7, FSDP_IGNORE_INDEX, 2, 11}},
    {.name = "mse_loss",
     .build = mse_loss,
     .array = {X("x", 2, 4, 5), X("target", 2, 4, 5)}},
    {.name = NULL},
};
