#include "fsdp/grad_sum.h"

#include "fsdp/offload.h"
#include "fsdp/status.h"
#include "tensor/vector.h"

typedef struct merge {
    fsdp_dtype_t dtype;
    char *older;
    const char *younger;
} merge_t;

static void
merge_piece(void *context, size_t begin, size_t count)
{
    const merge_t *m = context;
    size_t at = begin * fsdp_dtype_size(m->dtype);
    fsdp_vector_add(m->dtype, m->older + at, m->younger + at, count);
}

/* The two youngest parts become one: older + younger. */
static void
merge_youngest(fsdp_grad_sum_t *sum, fsdp_dtype_t dtype, size_t numel)
{
    void *younger = sum->part[--sum->count];
    merge_t m = {dtype, sum->part[sum->count - 1], younger};
    const void *vector[] = {m.older, m.younger};
    fsdp_offload_in_pieces(vector, 2, numel, fsdp_dtype_size(dtype),
                           merge_piece, &m);
    fsdp_offload_free(younger);
}

static bool
youngest_are_equal(const fsdp_grad_sum_t *sum)
{
    int n = sum->count;
    return n >= 2 && sum->level[n - 1] == sum->level[n - 2] &&
           sum->level[n - 1] != FSDP_GRAD_SUM_CLOSED;
}

void
fsdp_grad_sum_add(fsdp_grad_sum_t *sum, fsdp_dtype_t dtype,
                  fsdp_reduce_order_t order, void *term, size_t numel)
{
    FSDP_CHECK(sum->count < FSDP_GRAD_SUM_LEVELS, "%d partial sums",
               sum->count);
    sum->part[sum->count] = term;
    sum->level[sum->count++] = 0;
    if (order != FSDP_ORDER_TREE) {
        if (sum->count == 2)
            merge_youngest(sum, dtype, numel);
        return;
    }
    while (youngest_are_equal(sum)) {
        merge_youngest(sum, dtype, numel);
        sum->level[sum->count - 1]++;
    }
}

void *
fsdp_grad_sum_read(fsdp_grad_sum_t *sum, fsdp_dtype_t dtype, size_t numel)
{
    if (sum->count == 0)
        return NULL;
    while (sum->count > 1)
        merge_youngest(sum, dtype, numel);
    sum->level[0] = FSDP_GRAD_SUM_CLOSED;
    return sum->part[0];
}

void
fsdp_grad_sum_clear(fsdp_grad_sum_t *sum)
{
    while (sum->count > 0)
        fsdp_offload_free(sum->part[--sum->count]);
}
