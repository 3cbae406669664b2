#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct operands {
    const real_t *x, *weight, *bias;
    real_t *y, *mean, *rstd;
    size_t channels;
    real_t eps;
} operands_t;

ALWAYS_INLINE void
add_squares(real_t lanes[LANES], const real_t *x, real_t mean, size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] += (x[l] - mean) * (x[l] - mean);
}

ALWAYS_INLINE real_t
variance_of(const real_t *x, real_t mean, size_t n)
{
    real_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_squares(lanes, x + i, mean, LANES);
    add_squares(lanes, x + i, mean, n - i);
    return lanes_sum(lanes) / (real_t)n;
}

FSDP_CLONES static void
forward_rows(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    for (size_t r = begin; r < end; r++) {
        const real_t *x = o.x + r * o.channels;
        real_t *y = o.y + r * o.channels;
        real_t mean = lanes_sum_of(x, o.channels) / (real_t)o.channels;
        real_t variance = variance_of(x, mean, o.channels);
        real_t rstd = 1 / real_sqrt(variance + o.eps);
#pragma omp simd
        for (size_t i = 0; i < o.channels; i++)
            y[i] = (x[i] - mean) * rstd * o.weight[i] + o.bias[i];
        o.mean[r] = mean;
        o.rstd[r] = rstd;
    }
}

void
K(layer_norm)(const void *x, const void *weight, const void *bias, void *y,
              void *mean, void *rstd, size_t rows, size_t channels, double eps)
{
    operands_t o = {x, weight, bias, y, mean, rstd, channels, (real_t)eps};
    fsdp_parallel_for(rows, fsdp_block_rows(channels), forward_rows, &o);
}

typedef struct gradients {
    const real_t *x, *weight, *mean, *rstd, *dy;
    real_t *dx, *dweight, *dbias;
    size_t rows, channels;
} gradients_t;

/* Sums of g and of g xhat, where g = dy weight and xhat = (x - mean) rstd. */
ALWAYS_INLINE void
add_products(real_t sums[LANES], real_t products[LANES], const real_t *dy,
             const real_t *weight, const real_t *x, real_t mean, real_t rstd,
             size_t count)
{
    for (size_t l = 0; l < count; l++) {
        real_t g = dy[l] * weight[l];
        sums[l] += g;
        products[l] += g * ((x[l] - mean) * rstd);
    }
}

/* dx = rstd (g - mean(g) - xhat mean(g xhat)) */
ALWAYS_INLINE void
backward_row(const gradients_t *o, size_t r)
{
    const real_t *x = o->x + r * o->channels, *dy = o->dy + r * o->channels;
    const real_t *weight = o->weight;
    real_t *dx = o->dx + r * o->channels;
    real_t mean = o->mean[r], rstd = o->rstd[r];
    real_t sums[LANES] = {0}, products[LANES] = {0};
    size_t i = 0, n = o->channels;
    for (; i + LANES <= n; i += LANES)
        add_products(sums, products, dy + i, weight + i, x + i, mean, rstd,
                     LANES);
    add_products(sums, products, dy + i, weight + i, x + i, mean, rstd, n - i);
    real_t mean_g = lanes_sum(sums) / (real_t)n;
    real_t mean_gx = lanes_sum(products) / (real_t)n;
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        real_t xhat = (x[c] - mean) * rstd;
        dx[c] = rstd * (dy[c] * weight[c] - mean_g - xhat * mean_gx);
    }
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
          real_t *dweight, real_t *dbias)
{
    for (size_t r = first; r < first + ROW_GROUP && r < o->rows; r++) {
        const real_t *x = o->x + r * o->channels + begin;
        const real_t *dy = o->dy + r * o->channels + begin;
        real_t mean = o->mean[r], rstd = o->rstd[r];
#pragma omp simd
        for (size_t i = 0; i < width; i++) {
            dweight[i] += dy[i] * ((x[i] - mean) * rstd);
            dbias[i] += dy[i];
        }
    }
}

FSDP_CLONES static void
backward_columns(const void *context, size_t begin, size_t end)
{
    gradients_t o = *(const gradients_t *)context;
    real_t dweight[COLUMN_BLOCK] = {0}, dbias[COLUMN_BLOCK] = {0};
    size_t width = end - begin;
    for (size_t first = 0; first < o.rows; first += ROW_GROUP) {
        real_t group_w[COLUMN_BLOCK] = {0}, group_b[COLUMN_BLOCK] = {0};
        add_group(&o, first, begin, width, group_w, group_b);
        for (size_t i = 0; i < width; i++) {
            dweight[i] += group_w[i];
            dbias[i] += group_b[i];
        }
    }
    for (size_t i = 0; i < width && o.dweight != NULL; i++)
        o.dweight[begin + i] = dweight[i];
    for (size_t i = 0; i < width && o.dbias != NULL; i++)
        o.dbias[begin + i] = dbias[i];
}

/* The columns come first, so dx may be dy. */
void
K(layer_norm_backward)(const void *x, const void *weight, const void *mean,
                       const void *rstd, const void *dy, void *dx,
                       void *dweight, void *dbias, size_t rows, size_t channels)
{
    gradients_t o = {x,  weight,  mean,  rstd, dy,
                     dx, dweight, dbias, rows, channels};
    if (dweight != NULL || dbias != NULL)
        fsdp_parallel_for(channels, COLUMN_BLOCK, backward_columns, &o);
    fsdp_parallel_for(rows, fsdp_block_rows(channels), backward_rows, &o);
}
