/* Ranks: 1 */
/* What does not fit ends the program with a message that names it. */
#include "refusals.h"

#include "fsdp/activation_checkpoint.h"
#include "fsdp/gpt2.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "nn/nn_case.h"

static fsdp_tape_t *
tape(void)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    return fsdp_tape_create(&options);
}

static fsdp_parameter_t *
parameter(fsdp_dtype_t dtype, size_t rows, size_t columns)
{
    return fsdp_parameter_create(
        "h.weight", dtype, 2, (size_t[]){rows, columns}, FSDP_INIT_ONES, 0, 0);
}

static const double zeros[64];
static const int32_t indices[16];

static fsdp_tensor_t *
matrix(fsdp_tape_t *t, size_t rows, size_t columns)
{
    return nn_tensor(t, FSDP_FP32, 2, (size_t[]){rows, columns}, zeros);
}

static fsdp_tensor_t *
index_of(fsdp_tape_t *t, size_t rows, size_t columns)
{
    return nn_int32(t, 2, (size_t[]){rows, columns}, indices);
}

static void
weight_of_another_type(void)
{
    fsdp_tape_t *t = tape();
    fsdp_linear(t, matrix(t, 2, 3), parameter(FSDP_FP64, 4, 3), NULL);
}

static void
weight_of_another_shape(void)
{
    fsdp_tape_t *t = tape();
    fsdp_linear(t, matrix(t, 2, 3), parameter(FSDP_FP32, 3, 4), NULL);
}

static void
conv1d_like_linear(void)
{
    fsdp_tape_t *t = tape();
    fsdp_conv1d(t, matrix(t, 2, 3), parameter(FSDP_FP32, 4, 3), NULL);
}

static void
norm_of_another_width(void)
{
    fsdp_tape_t *t = tape();
    fsdp_parameter_t *p = parameter(FSDP_FP32, 4, 1);
    fsdp_layer_norm(t, matrix(t, 2, 3), p, p, 1e-5);
}

static void
sum_of_unlike(void)
{
    fsdp_tape_t *t = tape();
    fsdp_add(t, matrix(t, 2, 3), matrix(t, 3, 2));
}

static void
index_of_floats(void)
{
    fsdp_tape_t *t = tape();
    fsdp_embedding(t, matrix(t, 2, 3), parameter(FSDP_FP32, 4, 3));
}

static void
sequence_too_long(void)
{
    fsdp_tape_t *t = tape();
    fsdp_position_embedding(t, index_of(t, 2, 5), parameter(FSDP_FP32, 4, 3));
}

static void
targets_too_few(void)
{
    fsdp_tape_t *t = tape();
    fsdp_cross_entropy(t, matrix(t, 4, 3), index_of(t, 1, 3), -100);
}

static void
head_of_another_width(void)
{
    fsdp_tape_t *t = tape();
    fsdp_linear_cross_entropy(t, matrix(t, 4, 3), parameter(FSDP_FP32, 5, 2),
                              index_of(t, 2, 2), -100);
}

static void
heads_that_do_not_divide(void)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_head = 5;
    fsdp_gpt2_create(&config);
}

static void
attention_heads_that_do_not_divide(void)
{
    fsdp_tape_t *t = tape();
    fsdp_attention(t, nn_tensor(t, FSDP_FP32, 3, (size_t[]){1, 2, 12}, zeros),
                   3, 0, 0);
}

static void
llama_with(fsdp_llama_config_t config)
{
    fsdp_llama_create(&config);
}

static void
llama_heads_that_do_not_divide(void)
{
    llama_with((fsdp_llama_config_t){.num_attention_heads = 5});
}

static void
llama_key_heads_that_do_not_divide(void)
{
    llama_with((fsdp_llama_config_t){.num_key_value_heads = 3});
}

static void
llama_odd_heads(void)
{
    llama_with((fsdp_llama_config_t){.hidden_size = 12});
}

static void
llama_odd_head_dim(void)
{
    llama_with((fsdp_llama_config_t){.head_dim = 7});
}

static void
llama_with_scaling(void)
{
    llama_with((fsdp_llama_config_t){.rope_scaling = "{\"type\": \"yarn\"}"});
}

static void
llama_of_too_many_tokens(void)
{
    fsdp_llama_config_t config = {.max_position_embeddings = 4};
    fsdp_tape_t *t = tape();
    fsdp_llama_logits(t, fsdp_llama_create(&config), index_of(t, 2, 5));
}

static fsdp_tensor_t *
sequence(fsdp_tape_t *t, size_t positions, size_t channels)
{
    return nn_tensor(t, FSDP_FP32, 3, (size_t[]){1, positions, channels},
                     zeros);
}

static void
grouped_keys_of_another_width(void)
{
    fsdp_tape_t *t = tape();
    fsdp_tensor_t *k = sequence(t, 2, 6);
    fsdp_grouped_attention(t, sequence(t, 2, 8), k, k, 4, 2, 0, 0);
}

static void
grouped_heads_that_do_not_divide(void)
{
    fsdp_tape_t *t = tape();
    fsdp_tensor_t *k = sequence(t, 2, 6);
    fsdp_grouped_attention(t, sequence(t, 2, 8), k, k, 4, 3, 0, 0);
}

static void
rotary_beyond_the_table(void)
{
    fsdp_tape_t *t = tape();
    fsdp_rotary(t, sequence(t, 5, 8), 2,
                fsdp_rotary_table(FSDP_FP32, 4, 4, 10000));
}

static void
rotary_of_another_type(void)
{
    fsdp_tape_t *t = tape();
    fsdp_rotary(t, sequence(t, 5, 8), 2,
                fsdp_rotary_table(FSDP_FP64, 5, 4, 10000));
}

static void
product_of_unlike(void)
{
    fsdp_tape_t *t = tape();
    fsdp_multiply(t, matrix(t, 2, 3), matrix(t, 3, 2));
}

static void
rms_norm_of_another_width(void)
{
    fsdp_tape_t *t = tape();
    fsdp_rms_norm(t, matrix(t, 2, 3), parameter(FSDP_FP32, 4, 1), 1e-6);
}

static void
dropout_of_all(void)
{
    fsdp_tape_t *t = tape();
    fsdp_dropout(t, matrix(t, 2, 3), 1, 0);
}

static void
reshape_to_fewer(void)
{
    fsdp_tape_t *t = tape();
    fsdp_reshape(t, matrix(t, 2, 3), 1, (size_t[]){5});
}

static void
mlp_of_nothing(void)
{
    fsdp_mlp_create(&(fsdp_mlp_config_t){.num_layers = 0});
}

static void
block_beyond_the_end(void)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    fsdp_gpt2_block(fsdp_gpt2_create(&config), 4);
}

static void
second_backward(void)
{
    fsdp_tape_t *t = tape();
    fsdp_tensor_t *y =
        fsdp_linear(t, matrix(t, 2, 3), parameter(FSDP_FP32, 4, 3), NULL);
    fsdp_tensor_t *loss = nn_weighted_sum(t, y, zeros);
    fsdp_backward(t, loss);
    fsdp_backward(t, loss);
}

/* Checkpoints whose second run is not the first. */

static bool first_time;

static fsdp_values_t
another_length(void *context, fsdp_tape_t *t, fsdp_values_t in)
{
    fsdp_tensor_t *y = fsdp_linear(t, in.tensor[0], context, NULL);
    if (!first_time)
        y = fsdp_relu(t, y);
    first_time = false;
    return fsdp_values1(y);
}

static fsdp_values_t
another_operator(void *context, fsdp_tape_t *t, fsdp_values_t in)
{
    fsdp_tensor_t *y = fsdp_linear(t, in.tensor[0], context, NULL);
    y = first_time ? fsdp_relu(t, y) : fsdp_gelu_erf(t, y);
    first_time = false;
    return fsdp_values1(y);
}

static fsdp_tensor_t *
checkpointed_loss(fsdp_tape_t *t, fsdp_checkpoint_fn_t fn)
{
    first_time = true;
    fsdp_values_t y = fsdp_tape_checkpoint(t, fn, parameter(FSDP_FP32, 4, 3),
                                           fsdp_values1(matrix(t, 2, 3)));
    return nn_weighted_sum(t, y.tensor[0], zeros);
}

static void
checkpoint_of_another_length(void)
{
    fsdp_tape_t *t = tape();
    fsdp_backward(t, checkpointed_loss(t, another_length));
}

static void
checkpoint_of_another_operator(void)
{
    fsdp_tape_t *t = tape();
    fsdp_backward(t, checkpointed_loss(t, another_operator));
}

/* Both losses depend on what went into the checkpoint and was freed by the
 * first backward; the second's own part was not reached by it. */
static fsdp_values_t
two_ways(void *context, fsdp_tape_t *t, fsdp_values_t in)
{
    return fsdp_values2(fsdp_linear(t, in.tensor[0], context, NULL),
                        fsdp_linear(t, in.tensor[0], context, NULL));
}

static void
second_backward_through_a_checkpoint(void)
{
    fsdp_tape_t *t = tape();
    fsdp_parameter_t *square = parameter(FSDP_FP32, 3, 3);
    fsdp_tensor_t *x = fsdp_linear(t, matrix(t, 2, 3), square, NULL);
    fsdp_values_t y =
        fsdp_tape_checkpoint(t, two_ways, square, fsdp_values1(x));
    fsdp_backward(t, nn_weighted_sum(t, y.tensor[0], zeros));
    fsdp_backward(t, nn_weighted_sum(t, y.tensor[1], zeros));
}

static const refusal_t cases[] = {
    {weight_of_another_type, "linear: parameter h.weight is float64 [4, 3], "
                             "its input asks for float32 [4, 3]"},
    {weight_of_another_shape, "linear: parameter h.weight is float32 [3, 4], "
                              "its input asks for float32 [3, 3]"},
    {conv1d_like_linear, "conv1d: parameter h.weight is float32 [4, 3], its "
                         "input asks for float32 [3, 3]"},
    {norm_of_another_width, "layer_norm: parameter h.weight is float32 [4, 1]"},
    {sum_of_unlike, "add: float32 [2, 3] and float32 [3, 2]"},
    {index_of_floats, "embedding: indices are float32, not int32"},
    {sequence_too_long, "a sequence of 5 tokens, but h.weight has 4 positions"},
    {targets_too_few, "cross_entropy: targets [1, 3] do not fit"},
    {head_of_another_width,
     "linear_cross_entropy: parameter h.weight is float32 [5, 2], its input "
     "asks for float32 [5, 3]"},
    {heads_that_do_not_divide, "n_head 5 does not divide n_embd 128"},
    {attention_heads_that_do_not_divide, "3 heads do not divide 4 channels"},
    {llama_heads_that_do_not_divide,
     "Llama: num_attention_heads 5 does not divide hidden_size 128"},
    {llama_key_heads_that_do_not_divide,
     "Llama: num_key_value_heads 3 does not divide num_attention_heads 4"},
    {llama_odd_heads, "Llama: head_dim 3 is odd"},
    {llama_odd_head_dim, "Llama: head_dim 7 is odd"},
    {llama_with_scaling,
     "Llama: rope_scaling {\"type\": \"yarn\"} is not known"},
    {llama_of_too_many_tokens,
     "a sequence of 5 tokens, but model has 4 positions"},
    {grouped_keys_of_another_width,
     "keys are float32 [1, 2, 6], the queries ask for float32 [1, 2, 4]"},
    {grouped_heads_that_do_not_divide,
     "3 key heads do not divide 4 query heads"},
    {rotary_beyond_the_table,
     "a sequence of 5 tokens, but the table has 4 positions"},
    {rotary_of_another_type, "a table in float64 for values in float32"},
    {product_of_unlike, "multiply: float32 [2, 3] and float32 [3, 2]"},
    {rms_norm_of_another_width,
     "rms_norm: parameter h.weight is float32 [4, 1]"},
    {dropout_of_all, "dropout with a probability of 1"},
    {reshape_to_fewer, "reshape of 6 elements to 5"},
    {mlp_of_nothing, "an MLP of 0 layers"},
    {block_beyond_the_end, "block 4 of 4"},
    {second_backward, "its backward was done already"},
    {checkpoint_of_another_length,
     "a checkpoint recorded 1 operators, and 2 when it was computed again"},
    {checkpoint_of_another_operator,
     "a checkpoint recorded relu, and gelu_erf when it was computed again"},
    {second_backward_through_a_checkpoint,
     "backward through a checkpoint a second time"},
};

int
main(int argc, char **argv)
{
    return refusals_run(argc, argv, "nn refusals", cases,
                        sizeof cases / sizeof *cases);
}
