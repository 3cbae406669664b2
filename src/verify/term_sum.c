#include "verify/term_sum.h"

#include <string.h>

#include "fsdp/memory.h"
#include "verify/value.h"

static void *
longer(void *list, int count, int room, size_t size)
{
    void *out = fsdp_alloc(FSDP_MEM_BASELINE, (size_t)room * size);
    if (count > 0)
        memcpy(out, list, (size_t)count * size);
    fsdp_free(list);
    return out;
}

static void
append(term_sum_t *sum, void *term)
{
    if (sum->count == sum->room) {
        sum->room = sum->room > 0 ? 2 * sum->room : 8;
        sum->part = longer(sum->part, sum->count, sum->room, sizeof *sum->part);
        sum->level =
            longer(sum->level, sum->count, sum->room, sizeof *sum->level);
    }
    sum->level[sum->count] = 0;
    sum->part[sum->count++] = term;
}

/* x = x + y */
static void
add_to(fsdp_dtype_t dtype, void *x, const void *y, size_t numel)
{
    for (size_t i = 0; i < numel; i++)
        value_put(dtype, x, i, value_get(dtype, x, i) + value_get(dtype, y, i));
}

static void
merge_last_two(term_sum_t *sum, fsdp_dtype_t dtype, size_t numel)
{
    int last = --sum->count;
    add_to(dtype, sum->part[last - 1], sum->part[last], numel);
    sum->level[last - 1]++;
    fsdp_free(sum->part[last]);
}

static bool
last_two_are_a_pair(const term_sum_t *sum)
{
    int n = sum->count;
    return n >= 2 && sum->level[n - 1] == sum->level[n - 2];
}

void
term_sum_add(term_sum_t *sum, fsdp_dtype_t dtype, fsdp_reduce_order_t order,
             void *term, size_t numel)
{
    append(sum, term);
    if (order == FSDP_ORDER_RANK && sum->count == 2)
        merge_last_two(sum, dtype, numel);
    if (order == FSDP_ORDER_TREE || order == FSDP_ORDER_MPI)
        while (last_two_are_a_pair(sum))
            merge_last_two(sum, dtype, numel);
}

/* Element i of the sum, from the destination's right neighbour round to it. */
static double
ring_element(const term_sum_t *sum, fsdp_dtype_t dtype, size_t i,
             int destination)
{
    int n = sum->count;
    double total = value_get(dtype, sum->part[(destination + 1) % n], i);
    for (int k = 2; k <= n; k++)
        total = value_round(
            dtype,
            total + value_get(dtype, sum->part[(destination + k) % n], i));
    return total;
}

static void *
ring_sum(const term_sum_t *sum, fsdp_dtype_t dtype, size_t numel,
         const int *destination)
{
    void *out = fsdp_alloc(FSDP_MEM_BASELINE, numel * fsdp_dtype_size(dtype));
    for (size_t i = 0; i < numel; i++)
        value_put(dtype, out, i,
                  ring_element(sum, dtype, i,
                               destination != NULL ? destination[i] : 0));
    return out;
}

void *
term_sum_take(term_sum_t *sum, fsdp_dtype_t dtype, fsdp_reduce_order_t order,
              size_t numel, const int *destination)
{
    if (sum->count == 0)
        return NULL;
    if (order == FSDP_ORDER_RING) {
        void *out = ring_sum(sum, dtype, numel, destination);
        while (sum->count > 0)
            fsdp_free(sum->part[--sum->count]);
        return out;
    }
    while (sum->count > 1)
        merge_last_two(sum, dtype, numel);
    return sum->part[--sum->count];
}

void
term_sum_destroy(term_sum_t *sum)
{
    while (sum->count > 0)
        fsdp_free(sum->part[--sum->count]);
    fsdp_free(sum->part);
    fsdp_free(sum->level);
    *sum = (term_sum_t){0};
}
