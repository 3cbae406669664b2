#include "tensor/vector.h"

#include <stdint.h>

#include "fsdp/tensor.h"
#include "tensor/kernels.h"

enum { BLOCK = 1024 };

typedef enum action { ADD, DIVIDE, MULTIPLY } action_t;

static void
act(action_t action, fsdp_dtype_t dtype, void *y, const void *x, double number,
    size_t n)
{
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    if (action == ADD)
        k->accumulate(y, x, n);
    else if (action == DIVIDE)
        k->divide(y, number, y, n);
    else
        k->scale(y, number, y, n);
}

/* One block of a 16-bit vector, through float32. */
static void
act_on_block(action_t action, fsdp_dtype_t dtype, uint16_t *y,
             const uint16_t *x, float number, size_t n)
{
    float wide[BLOCK], other[BLOCK];
    fsdp_convert(dtype, y, FSDP_FP32, wide, n);
    if (action == ADD)
        fsdp_convert(dtype, x, FSDP_FP32, other, n);
    for (size_t i = 0; i < n; i++) {
        if (action == ADD)
            wide[i] += other[i];
        else if (action == DIVIDE)
            wide[i] /= number;
        else
            wide[i] *= number;
    }
    fsdp_convert(FSDP_FP32, wide, dtype, y, n);
}

static void
act_in_blocks(action_t action, fsdp_dtype_t dtype, uint16_t *y,
              const uint16_t *x, double number, size_t n)
{
    for (size_t at = 0; at < n; at += BLOCK)
        act_on_block(action, dtype, y + at, x != NULL ? x + at : NULL,
                     (float)number, n - at < BLOCK ? n - at : BLOCK);
}

static void
act_in_any(action_t action, fsdp_dtype_t dtype, void *y, const void *x,
           double number, size_t n)
{
    if (dtype == FSDP_BF16 || dtype == FSDP_FP16)
        act_in_blocks(action, dtype, y, x, number, n);
    else
        act(action, dtype, y, x, number, n);
}

void
fsdp_vector_add(fsdp_dtype_t dtype, void *y, const void *x, size_t n)
{
    act_in_any(ADD, dtype, y, x, 0, n);
}

void
fsdp_vector_divide(fsdp_dtype_t dtype, void *x, double divisor, size_t n)
{
    act_in_any(DIVIDE, dtype, x, NULL, divisor, n);
}

void
fsdp_vector_multiply(fsdp_dtype_t dtype, void *x, double factor, size_t n)
{
    act_in_any(MULTIPLY, dtype, x, NULL, factor, n);
}
