#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct operands {
    const real_t *x, *weight;
    real_t *y, *rstd;
    size_t channels;
    real_t eps;
} operands_t;

/* Adds x y of `count` elements to the lanes. */
ALWAYS_INLINE void
add_products(real_t lanes[LANES], const real_t *x, const real_t *y,
             size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] += x[l] * y[l];
}

ALWAYS_INLINE real_t
mean_square(const real_t *x, size_t n)
{
    real_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_products(lanes, x + i, x + i, LANES);
    add_products(lanes, x + i, x + i, n - i);
    return lanes_sum(lanes) / (real_t)n;
}

/* x is normalised and rounded before the weight meets it, as in Hugging Face's
 * LlamaRMSNorm.  A root and a quotient are correctly rounded on every machine,
 * so nothing is gained by vmath.h's rsqrt once a row. */
FSDP_CLONES static void
forward_rows(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    for (size_t r = begin; r < end; r++) {
        const real_t *x = o.x + r * o.channels;
        real_t *y = o.y + r * o.channels;
        real_t rstd = 1 / real_sqrt(mean_square(x, o.channels) + o.eps);
#pragma omp simd
        for (size_t i = 0; i < o.channels; i++)
            y[i] = x[i] * rstd * o.weight[i];
        o.rstd[r] = rstd;
    }
}

void
K(rms_norm)(const void *x, const void *weight, void *y, void *rstd, size_t rows,
            size_t channels, double eps)
{
    operands_t o = {x, weight, y, rstd, channels, (real_t)eps};
    fsdp_parallel_for(rows, fsdp_block_rows(channels), forward_rows, &o);
}

typedef struct gradients {
    const real_t *x, *weight, *rstd, *dy;
    real_t *dx, *dweight;
    size_t rows, channels;
} gradients_t;

/* Adds g xhat, where g = dy weight and xhat = x rstd. */
ALWAYS_INLINE void
add_slopes(real_t lanes[LANES], const real_t *dy, const real_t *weight,
           const real_t *x, real_t rstd, size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] += dy[l] * weight[l] * (x[l] * rstd);
}

/* dx = rstd (g - xhat mean(g xhat)) */
ALWAYS_INLINE void
backward_row(const gradients_t *o, size_t r)
{
    const real_t *x = o->x + r * o->channels, *dy = o->dy + r * o->channels;
    const real_t *weight = o->weight;
    real_t *dx = o->dx + r * o->channels, rstd = o->rstd[r];
    real_t lanes[LANES] = {0};
    size_t i = 0, n = o->channels;
    for (; i + LANES <= n; i += LANES)
        add_slopes(lanes, dy + i, weight + i, x + i, rstd, LANES);
    add_slopes(lanes, dy + i, weight + i, x + i, rstd, n - i);
    real_t mean = lanes_sum(lanes) / (real_t)n;
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        dx[c] = rstd * (dy[c] * weight[c] - x[c] * rstd * mean);
}

FSDP_CLONES static void
backward_rows(const void *context, size_t begin, size_t end)
{
    gradients_t o = *(const gradients_t *)context;
    for (size_t r = begin; r < end; r++)
        backward_row(&o, r);
}

/* A block of columns, all rows, in the order of rows.c's sum_rows(). */
enum { COLUMN_BLOCK = 128, ROW_GROUP = 64 };

ALWAYS_INLINE void
add_group(const gradients_t *o, size_t first, size_t begin, size_t width,
          real_t *dweight)
{
    for (size_t r = first; r < first + ROW_GROUP && r < o->rows; r++) {
        const real_t *x = o->x + r * o->channels + begin;
        const real_t *dy = o->dy + r * o->channels + begin;
        real_t rstd = o->rstd[r];
#pragma omp simd
        for (size_t i = 0; i < width; i++)
            dweight[i] += dy[i] * (x[i] * rstd);
    }
}

FSDP_CLONES static void
backward_columns(const void *context, size_t begin, size_t end)
{
    gradients_t o = *(const gradients_t *)context;
    real_t total[COLUMN_BLOCK] = {0};
    size_t width = end - begin;
    for (size_t first = 0; first < o.rows; first += ROW_GROUP) {
        real_t group[COLUMN_BLOCK] = {0};
        add_group(&o, first, begin, width, group);
        for (size_t i = 0; i < width; i++)
            total[i] += group[i];
    }
    for (size_t i = 0; i < width; i++)
        o.dweight[begin + i] = total[i];
}

/* The columns come first, so dx may be dy. */
void
K(rms_norm_backward)(const void *x, const void *weight, const void *rstd,
                     const void *dy, void *dx, void *dweight, size_t rows,
                     size_t channels)
{
    gradients_t o = {x, weight, rstd, dy, dx, dweight, rows, channels};
    if (dweight != NULL)
        fsdp_parallel_for(channels, COLUMN_BLOCK, backward_columns, &o);
    fsdp_parallel_for(rows, fsdp_block_rows(channels), backward_rows, &o);
}
