#include "nn/parts.h"

#include <string.h>

#include "fsdp/status.h"
#include "nn/ops_internal.h"

void
fsdp_parts_take(const fsdp_parts_t *parts, int p, const void *x, size_t outer,
                size_t dim, size_t inner, void *out)
{
    size_t count = (size_t)parts->count, pieces = outer * (size_t)parts->groups;
    size_t run = dim / (size_t)parts->groups / count * inner;
    FSDP_CHECK(dim % ((size_t)parts->groups * count) == 0,
               "%zu elements in %d groups of %zu parts", dim, parts->groups,
               count);
    for (size_t i = 0; i < pieces; i++)
        memcpy((char *)out + i * run,
               (const char *)x + (i * count + (size_t)p) * run, run);
}

/* Elements [begin, begin + n) of `to` += those of `from`. */
static void
add(fsdp_dtype_t dtype, void *to, const void *from, size_t begin, size_t n)
{
    fsdp_wide_t w = fsdp_wide(dtype);
    size_t at = begin * fsdp_dtype_size(dtype);
    const void *left = fsdp_wide_in(&w, (char *)to + at, n);
    const void *right = fsdp_wide_in(&w, (const char *)from + at, n);
    w.k->add(left, right, fsdp_wide_out(&w, (char *)to + at, n), n);
    fsdp_wide_end(&w);
}

/* What an all-reduce of n elements in ring order does: each rank adds a chunk,
 * beginning with the term of the rank after it. */
static void
ring(int count, fsdp_dtype_t dtype, void *const *terms, void *out, size_t n)
{
    size_t size = fsdp_dtype_size(dtype);
    size_t ranks = (size_t)count, chunk = (n + ranks - 1) / ranks;
    for (size_t r = 0; r * chunk < n; r++) {
        size_t begin = r * chunk, left = n - begin;
        size_t length = left < chunk ? left : chunk;
        void *sum = terms[(r + 1) % ranks];
        for (size_t i = 2; i <= ranks; i++)
            add(dtype, sum, terms[(r + i) % ranks], begin, length);
        memmove((char *)out + begin * size, (char *)sum + begin * size,
                length * size);
    }
}

void
fsdp_parts_sum(const fsdp_parts_t *parts, fsdp_dtype_t dtype,
               void *const *terms, void *out, size_t n)
{
    int count = parts->count;
    if (parts->order == FSDP_ORDER_RING && count > 1) {
        ring(count, dtype, terms, out, n);
        return;
    }
    if (parts->order == FSDP_ORDER_RANK) {
        for (int i = 1; i < count; i++)
            add(dtype, terms[0], terms[i], 0, n);
    } else {
        for (int step = 1; step < count; step *= 2)
            for (int i = 0; i + step < count; i += 2 * step)
                add(dtype, terms[i], terms[i + step], 0, n);
    }
    if (out != terms[0] && n > 0)
        memcpy(out, terms[0], n * fsdp_dtype_size(dtype));
}
