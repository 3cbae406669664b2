#include "fsdp/status.h"
#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct operands {
    const real_t *logits;
    const int32_t *target;
    real_t *loss, *dlogits; /* dlogits may be NULL, or logits itself */
    size_t classes;
    int32_t ignore_index;
    real_t scale;
} operands_t;

/* The sum of exponentials runs in chunks, so that errors grow with
 * CHUNK / LANES and V / CHUNK, not with V / LANES. */
enum { CHUNK = 64 * LANES };

ALWAYS_INLINE void
max_lanes(real_t lanes[LANES], const real_t *x, size_t count)
{
    for (size_t l = 0; l < count; l++)
        lanes[l] = x[l] > lanes[l] ? x[l] : lanes[l];
}

ALWAYS_INLINE real_t
largest_of(const real_t *x, size_t n)
{
    real_t lanes[LANES];
    for (size_t l = 0; l < LANES; l++)
        lanes[l] = -REAL_INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        max_lanes(lanes, x + i, LANES);
    max_lanes(lanes, x + i, n - i);
    return lanes_max(lanes);
}

/* lanes += e^(x - max), also kept in `out` */
ALWAYS_INLINE void
add_exponentials(real_t lanes[LANES], const real_t *x, real_t max, real_t *out,
                 size_t count)
{
#pragma omp simd
    for (size_t l = 0; l < count; l++) {
        real_t e = real_exp(x[l] - max);
        lanes[l] += e;
        out[l] = e;
    }
}

/* The sum of e^(x - max) over a chunk; the terms go to `out`. */
ALWAYS_INLINE real_t
chunk_sum(const real_t *x, real_t max, real_t *out, size_t n)
{
    real_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_exponentials(lanes, x + i, max, out + i, LANES);
    add_exponentials(lanes, x + i, max, out + i, n - i);
    return lanes_sum(lanes);
}

/* The same over a row; the terms go to `dlogits` unless it is NULL. */
ALWAYS_INLINE real_t
exponential_sum(const real_t *x, real_t max, real_t *dlogits, size_t n)
{
    real_t scratch[CHUNK], sum = 0;
    for (size_t i = 0; i < n; i += CHUNK) {
        real_t *out = dlogits != NULL ? dlogits + i : scratch;
        sum += chunk_sum(x + i, max, out, n - i < CHUNK ? n - i : CHUNK);
    }
    return sum;
}

ALWAYS_INLINE void
scale_row(real_t *x, real_t factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

ALWAYS_INLINE void
one_row(const operands_t *o, size_t r)
{
    const real_t *x = o->logits + r * o->classes;
    real_t *dx = o->dlogits != NULL ? o->dlogits + r * o->classes : NULL;
    int32_t target = o->target[r];
    real_t max = largest_of(x, o->classes);
    real_t below_max = max - x[target];
    real_t sum = exponential_sum(x, max, dx, o->classes);
    o->loss[r] = below_max + real_log(sum);
    if (dx != NULL) {
        real_t hit = (dx[target] / sum - 1) * o->scale;
        scale_row(dx, o->scale / sum, o->classes);
        dx[target] = hit;
    }
}

ALWAYS_INLINE void
ignored_row(const operands_t *o, size_t r)
{
    o->loss[r] = 0;
    if (o->dlogits != NULL)
        for (size_t i = 0; i < o->classes; i++)
            o->dlogits[r * o->classes + i] = 0;
}

FSDP_CLONES static void
some_rows(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    for (size_t r = begin; r < end; r++) {
        if (o.target[r] == o.ignore_index)
            ignored_row(&o, r);
        else
            one_row(&o, r);
    }
}

void
K(cross_entropy)(const void *logits, const int32_t *target,
                 int32_t ignore_index, void *loss, void *dlogits, double scale,
                 size_t rows, size_t classes)
{
    for (size_t r = 0; r < rows; r++)
        FSDP_CHECK(target[r] == ignore_index ||
                       (target[r] >= 0 && (size_t)target[r] < classes),
                   "target %ld in row %zu, but there are %zu classes",
                   (long)target[r], r, classes);
    operands_t o = {logits,  target,       loss,         dlogits,
                    classes, ignore_index, (real_t)scale};
    fsdp_parallel_for(rows, fsdp_block_rows(classes), some_rows, &o);
}
