/* Cross-entropy of logits whose row is cut over several ranks.  Between these
 * steps maxima and sums are combined. */

#include "tensor/kernels/entries.h"
#include "tensor/kernels/softmax_row.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct operands {
    real_t *x; /* [N,V]: logits, exponentials, then their gradients */
    real_t *max, *sum, *hit, *loss; /* [N] */
    const int32_t *target;
    size_t first, classes;
    int32_t ignore_index;
    real_t scale;
} operands_t;

/* Where the target stands among the classes; V if it is elsewhere. */
ALWAYS_INLINE size_t
place_of(const operands_t *o, size_t r)
{
    int32_t target = o->target[r];
    if (target < 0 || (size_t)target < o->first ||
        (size_t)target >= o->first + o->classes)
        return o->classes;
    return (size_t)target - o->first;
}

FSDP_CLONES static void
some_maxima(const void *context, size_t begin, size_t end)
{
    const operands_t *o = context;
    for (size_t r = begin; r < end; r++)
        o->max[r] = largest_of(o->x + r * o->classes, o->classes);
}

FSDP_CLONES static void
some_exponentials(const void *context, size_t begin, size_t end)
{
    const operands_t *o = context;
    for (size_t r = begin; r < end; r++) {
        real_t *x = o->x + r * o->classes;
        size_t place = place_of(o, r);
        o->hit[r] = place < o->classes ? x[place] : 0;
        o->sum[r] = exponential_sum(x, o->max[r], x, o->classes);
    }
}

FSDP_CLONES static void
some_losses(const void *context, size_t begin, size_t end)
{
    const operands_t *o = context;
    for (size_t r = begin; r < end; r++)
        o->loss[r] = o->target[r] == o->ignore_index
                         ? 0
                         : (o->max[r] - o->hit[r]) + real_log(o->sum[r]);
}

ALWAYS_INLINE void
one_gradient(const operands_t *o, size_t r)
{
    real_t *x = o->x + r * o->classes, sum = o->sum[r];
    size_t place = place_of(o, r);
    real_t at_target = place < o->classes ? x[place] : 0;
    scale_row(x, o->scale / sum, o->classes);
    if (place < o->classes)
        x[place] = (at_target / sum - 1) * o->scale;
}

FSDP_CLONES static void
some_gradients(const void *context, size_t begin, size_t end)
{
    const operands_t *o = context;
    for (size_t r = begin; r < end; r++) {
        if (o->target[r] != o->ignore_index)
            one_gradient(o, r);
        else
            for (size_t i = 0; i < o->classes; i++)
                o->x[r * o->classes + i] = 0;
    }
}

void
K(partial_max)(const void *logits, void *max, size_t rows, size_t classes)
{
    operands_t o = {
        .x = (real_t *)(uintptr_t)logits, .max = max, .classes = classes};
    fsdp_parallel_for(rows, fsdp_block_rows(classes), some_maxima, &o);
}

void
K(partial_exponentials)(void *logits, const void *max, const int32_t *target,
                        size_t first, void *sum, void *hit, size_t rows,
                        size_t classes)
{
    operands_t o = {.x = logits,
                    .max = (real_t *)(uintptr_t)max,
                    .sum = sum,
                    .hit = hit,
                    .target = target,
                    .first = first,
                    .classes = classes};
    fsdp_parallel_for(rows, fsdp_block_rows(classes), some_exponentials, &o);
}

void
K(partial_losses)(const void *max, const void *sum, const void *hit,
                  const int32_t *target, int32_t ignore_index, void *loss,
                  size_t rows)
{
    operands_t o = {.max = (real_t *)(uintptr_t)max,
                    .sum = (real_t *)(uintptr_t)sum,
                    .hit = (real_t *)(uintptr_t)hit,
                    .loss = loss,
                    .target = target,
                    .ignore_index = ignore_index};
    fsdp_parallel_for(rows, fsdp_block_rows(1), some_losses, &o);
}

void
K(partial_dlogits)(void *exponentials, const void *sum, const int32_t *target,
                   int32_t ignore_index, size_t first, double scale,
                   size_t rows, size_t classes)
{
    operands_t o = {.x = exponentials,
                    .sum = (real_t *)(uintptr_t)sum,
                    .target = target,
                    .first = first,
                    .classes = classes,
                    .ignore_index = ignore_index,
                    .scale = (real_t)scale};
    fsdp_parallel_for(rows, fsdp_block_rows(classes), some_gradients, &o);
}
