/* Ranks: 1 */
/* What must not be computed ends the program with a message that names it. */
#include "refusals.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"

static const int32_t two_indices[] = {3, 7}, negative[] = {0, -1};
static float memory[64];

static void
embedding_too_high(void)
{
    fsdp_kernels(FSDP_FP32)->embedding(two_indices, memory, memory, 2, 7, 2);
}

static void
embedding_negative(void)
{
    fsdp_kernels(FSDP_FP64)->embedding(negative, memory, memory, 2, 7, 2);
}

static void
embedding_backward_too_high(void)
{
    fsdp_kernels(FSDP_FP32)->embedding_backward(two_indices, memory, memory, 2,
                                                7, 2);
}

static void
target_too_high(void)
{
    fsdp_kernels(FSDP_FP32)->cross_entropy(two_indices, two_indices, -1, memory,
                                           NULL, 1, 2, 7);
}

static void
target_negative(void)
{
    fsdp_kernels(FSDP_FP32)->cross_entropy(memory, negative, -100, memory, NULL,
                                           1, 2, 7);
}

static void
no_kernels_for_bf16(void)
{
    fsdp_kernels(FSDP_BF16);
}

static void
step_zero(void)
{
    fsdp_kernels(FSDP_FP32)->adamw(memory, memory, memory, memory, 1, 0.1, 0.9,
                                   0.9, 0.1, 0, 0);
}

static void
momentum_without_buffer(void)
{
    fsdp_kernels(FSDP_FP32)->sgd(memory, memory, NULL, 1, 0.1, 0.9, 0, 0, false,
                                 true);
}

static void
dropout_of_more_than_all(void)
{
    fsdp_dropout_key_t key = {.p = 1.5};
    fsdp_kernels(FSDP_FP32)->dropout(&key, memory, memory, 1, 1);
}

static void
integers_to_float(void)
{
    fsdp_convert(FSDP_INT32, two_indices, FSDP_FP32, memory, 2);
}

static void
no_threads(void)
{
    fsdp_set_num_threads(0);
}

static fsdp_tensor_t *
four_by_two(fsdp_dtype_t dtype)
{
    return fsdp_tensor_borrow(dtype, 2, (size_t[]){4, 2}, memory);
}

static void
rows_beyond_the_end(void)
{
    fsdp_tensor_rows(four_by_two(FSDP_FP32), 2, 5);
}

static void
view_beyond_the_end(void)
{
    fsdp_tensor_view(four_by_two(FSDP_FP32), 3, 1, (size_t[]){6});
}

static void
element_beyond_the_end(void)
{
    fsdp_tensor_get(four_by_two(FSDP_FP32), 8);
}

static void
too_large_for_a_byte(void)
{
    fsdp_tensor_set(four_by_two(FSDP_UINT8), 0, 256);
}

static void
nan_as_an_integer(void)
{
    fsdp_tensor_set(four_by_two(FSDP_INT64), 0, 0.0 / (double)memory[0]);
}

static const refusal_t cases[] = {
    {embedding_too_high,
     "embedding index 7 at position 1, but the table has 7"},
    {embedding_negative, "embedding index -1 at position 1"},
    {embedding_backward_too_high, "embedding index 7 at position 1"},
    {target_too_high, "target 7 in row 1, but there are 7 classes"},
    {target_negative, "target -1 in row 1"},
    {no_kernels_for_bf16, "bfloat16"},
    {step_zero, "steps from 1, not 0"},
    {momentum_without_buffer, "momentum 0.9 without a buffer"},
    {dropout_of_more_than_all, "probability 1.5"},
    {integers_to_float, "no conversion from int32 to float32"},
    {no_threads, "0 threads"},
    {rows_beyond_the_end, "rows 2 to 5 of 4"},
    {view_beyond_the_end, "6 elements from element 3 of 8"},
    {element_beyond_the_end, "element 8 of a tensor with 8"},
    {too_large_for_a_byte, "256 does not fit in uint8"},
    {nan_as_an_integer, "does not fit in int64"},
};

int
main(int argc, char **argv)
{
    return refusals_run(argc, argv, "tensor refusals", cases,
                        sizeof cases / sizeof *cases);
}
