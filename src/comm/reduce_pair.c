/* One addition, maximum or minimum of two rows, for each element type.
 *
 * Each loop may write to one of its inputs, at the same index: that is no
 * dependence between iterations, which the pragma tells the compiler. */
#include "base/half.h"
#include "comm/internal.h"

/* A NaN on any rank must show in a maximum or minimum. */
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define SUM(a, b) ((a) + (b))

#define LOOP(type, load, store, op)                                            \
    do {                                                                       \
        const type *x = a, *y = b;                                             \
        type *z = out;                                                         \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) z[i] =          \
            (type)store(op(load(x[i]), load(y[i])));                           \
        return;                                                                \
    } while (0)

#define SAME(x) (x)

bool
fsdp_reduce_knows(fsdp_dtype_t dtype)
{
    return dtype != FSDP_DTYPE_NONE && dtype != FSDP_UINT8;
}

/* Each sum of bf16 or fp16 is made in float and rounded: as 24 bits are at
 * least 2 p + 2 for p = 8 and 11, that is the correctly rounded sum.  Integers
 * wrap around. */
static void
sum_pair(fsdp_dtype_t dtype, void *out, const void *a, const void *b,
         size_t count)
{
    switch (dtype) {
    case FSDP_FP32:
        LOOP(float, SAME, SAME, SUM);
    case FSDP_FP64:
        LOOP(double, SAME, SAME, SUM);
    case FSDP_BF16:
        LOOP(uint16_t, fsdp_bf16_to_float, fsdp_float_to_bf16, SUM);
    case FSDP_FP16:
        LOOP(uint16_t, fsdp_fp16_to_float, fsdp_float_to_fp16, SUM);
    case FSDP_INT32:
        LOOP(uint32_t, SAME, SAME, SUM);
    case FSDP_INT64:
        LOOP(uint64_t, SAME, SAME, SUM);
    case FSDP_UINT8:
    case FSDP_DTYPE_NONE:
        break;
    }
}

static void
max_pair(fsdp_dtype_t dtype, void *out, const void *a, const void *b,
         size_t count)
{
    switch (dtype) {
    case FSDP_FP32:
        LOOP(float, SAME, SAME, MAX);
    case FSDP_FP64:
        LOOP(double, SAME, SAME, MAX);
    case FSDP_BF16:
        LOOP(uint16_t, fsdp_bf16_to_float, fsdp_float_to_bf16, MAX);
    case FSDP_FP16:
        LOOP(uint16_t, fsdp_fp16_to_float, fsdp_float_to_fp16, MAX);
    case FSDP_INT32:
        LOOP(int32_t, SAME, SAME, MAX);
    case FSDP_INT64:
        LOOP(int64_t, SAME, SAME, MAX);
    case FSDP_UINT8:
    case FSDP_DTYPE_NONE:
        break;
    }
}

static void
min_pair(fsdp_dtype_t dtype, void *out, const void *a, const void *b,
         size_t count)
{
    switch (dtype) {
    case FSDP_FP32:
        LOOP(float, SAME, SAME, MIN);
    case FSDP_FP64:
        LOOP(double, SAME, SAME, MIN);
    case FSDP_BF16:
        LOOP(uint16_t, fsdp_bf16_to_float, fsdp_float_to_bf16, MIN);
    case FSDP_FP16:
        LOOP(uint16_t, fsdp_fp16_to_float, fsdp_float_to_fp16, MIN);
    case FSDP_INT32:
        LOOP(int32_t, SAME, SAME, MIN);
    case FSDP_INT64:
        LOOP(int64_t, SAME, SAME, MIN);
    case FSDP_UINT8:
    case FSDP_DTYPE_NONE:
        break;
    }
}

void
fsdp_reduce_pair(fsdp_dtype_t dtype, fsdp_reduce_op_t op, void *out,
                 const void *a, const void *b, size_t count)
{
    if (op == FSDP_SUM)
        sum_pair(dtype, out, a, b, count);
    else if (op == FSDP_MAX)
        max_pair(dtype, out, a, b, count);
    else
        min_pair(dtype, out, a, b, count);
}
