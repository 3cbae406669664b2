#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* Gaussian error linear units.  PyTorch: gelu(approximate='tanh') and 'none'.
 *      tanh form   y = x/2 (1 + tanh u),  u = sqrt(2/pi) (x + 0.044715 x^3)
 *      erf form    y = x/2 (1 + erf(x / sqrt(2)))
 */
#define SQRT_2_OVER_PI REAL(0.79788456080286535588)
#define SQRT_HALF REAL(0.70710678118654752440)
#define INV_SQRT_2PI REAL(0.39894228040143267794)
#define CUBIC REAL(0.044715)

typedef struct operands {
    const real_t *x, *dy;
    real_t *out;
} operands_t;

/* Beyond it tanh u is +-1 in double too; so x^2 cannot overflow below, and
 * infinity times 0 cannot make a NaN. */
ALWAYS_INLINE real_t
clamp(real_t x)
{
    real_t low = x < -30 ? -30 : x;
    return low > 30 ? 30 : low;
}

ALWAYS_INLINE real_t
tanh_of_inner(real_t x)
{
    return real_tanh(SQRT_2_OVER_PI * (x + CUBIC * (x * x * x)));
}

FSDP_CLONES static void
tanh_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t x = o.x[i];
        o.out[i] = REAL(0.5) * x * (1 + tanh_of_inner(clamp(x)));
    }
}

void
K(gelu_tanh)(const void *x, void *y, size_t n)
{
    operands_t o = {.x = x, .out = y};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, tanh_block, &o);
}

/* y' = (1 + t)/2 + x/2 (1 - t^2) u' */
FSDP_CLONES static void
tanh_backward_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t x = clamp(o.x[i]);
        real_t t = tanh_of_inner(x);
        real_t du = SQRT_2_OVER_PI * (1 + 3 * CUBIC * (x * x));
        real_t slope =
            REAL(0.5) * (1 + t) + REAL(0.5) * x * ((1 - t) * (1 + t)) * du;
        o.out[i] = o.dy[i] * slope;
    }
}

void
K(gelu_tanh_backward)(const void *x, const void *dy, void *dx, size_t n)
{
    operands_t o = {.x = x, .dy = dy, .out = dx};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, tanh_backward_block, &o);
}

FSDP_CLONES static void
erf_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t x = o.x[i];
        o.out[i] = REAL(0.5) * x * (1 + real_erf(SQRT_HALF * x));
    }
}

void
K(gelu_erf)(const void *x, void *y, size_t n)
{
    operands_t o = {.x = x, .out = y};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, erf_block, &o);
}

/* y' = (1 + erf(x / sqrt 2))/2 + x exp(-x^2/2) / sqrt(2 pi) */
FSDP_CLONES static void
erf_backward_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real_t x = o.x[i], bounded = clamp(x);
        real_t density = INV_SQRT_2PI * real_exp(REAL(-0.5) * x * x);
        real_t slope =
            REAL(0.5) * (1 + real_erf(SQRT_HALF * x)) + bounded * density;
        o.out[i] = o.dy[i] * slope;
    }
}

void
K(gelu_erf_backward)(const void *x, const void *dy, void *dx, size_t n)
{
    operands_t o = {.x = x, .dy = dy, .out = dx};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, erf_backward_block, &o);
}
