#include "tensor/kernels/entries.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* The operands of all kernels of this file.  y may be a or b, and no element
 * depends on another, which `omp simd` tells the compiler. */
typedef struct operands {
    const real_t *a, *b;
    real_t *y, scalar;
} operands_t;

static void
for_elements(fsdp_block_t *block, size_t n, operands_t operands)
{
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, block, &operands);
}

FSDP_CLONES static void
fill_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.scalar;
}

void
K(fill)(void *y, double value, size_t n)
{
    for_elements(fill_block, n, (operands_t){.y = y, .scalar = (real_t)value});
}

FSDP_CLONES static void
add_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] + o.b[i];
}

void
K(add)(const void *a, const void *b, void *y, size_t n)
{
    for_elements(add_block, n, (operands_t){.a = a, .b = b, .y = y});
}

FSDP_CLONES static void
multiply_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] * o.b[i];
}

void
K(multiply)(const void *a, const void *b, void *y, size_t n)
{
    for_elements(multiply_block, n, (operands_t){.a = a, .b = b, .y = y});
}

void
K(accumulate)(void *y, const void *x, size_t n)
{
    for_elements(add_block, n, (operands_t){.a = y, .b = x, .y = y});
}

FSDP_CLONES static void
scale_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] * o.scalar;
}

void
K(scale)(const void *x, double alpha, void *y, size_t n)
{
    for_elements(scale_block, n,
                 (operands_t){.a = x, .y = y, .scalar = (real_t)alpha});
}

FSDP_CLONES static void
divide_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] / o.scalar;
}

void
K(divide)(const void *x, double divisor, void *y, size_t n)
{
    for_elements(divide_block, n,
                 (operands_t){.a = x, .y = y, .scalar = (real_t)divisor});
}

/* A NaN stays one, as in PyTorch. */
FSDP_CLONES static void
relu_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] <= 0 ? 0 : o.a[i];
}

void
K(relu)(const void *x, void *y, size_t n)
{
    for_elements(relu_block, n, (operands_t){.a = x, .y = y});
}

FSDP_CLONES static void
relu_backward_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.y[i] = o.a[i] > 0 ? o.b[i] : 0;
}

void
K(relu_backward)(const void *y, const void *dy, void *dx, size_t n)
{
    for_elements(relu_backward_block, n,
                 (operands_t){.a = y, .b = dy, .y = dx});
}
