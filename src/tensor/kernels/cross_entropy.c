#include "fsdp/status.h"
#include "tensor/kernels/entries.h"
#include "tensor/kernels/softmax_row.h"
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
