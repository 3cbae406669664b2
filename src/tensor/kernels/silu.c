#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* x sigmoid(x), sigmoid(x) = 1 / (1 + exp(-x)).  PyTorch: F.silu(). */

typedef struct operands {
    const real_t *x, *dy;
    real_t *out;
} operands_t;

FSDP_CLONES static void
silu_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        o.out[i] = o.x[i] / (1 + real_exp(-o.x[i]));
}

void
K(silu)(const void *x, void *y, size_t n)
{
    operands_t o = {.x = x, .out = y};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, silu_block, &o);
}

/* Beyond it s is 0 or 1 in double too; so infinity times 0 cannot make a NaN. */
ALWAYS_INLINE real_t
clamp(real_t x)
{
    real_t low = x < -800 ? -800 : x;
    return low > 800 ? 800 : low;
}

/* With s the sigmoid, y' = s (1 + x (1 - s)). */
FSDP_CLONES static void
silu_backward_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t x = clamp(o.x[i]), s = 1 / (1 + real_exp(-x));
        o.out[i] = o.dy[i] * (s * (1 + x * (1 - s)));
    }
}

void
K(silu_backward)(const void *x, const void *dy, void *dx, size_t n)
{
    operands_t o = {.x = x, .dy = dy, .out = dx};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, silu_backward_block, &o);
}
