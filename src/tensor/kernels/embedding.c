#include "tensor/kernels/entries.h"
#include "tensor/take_rows.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct lookup {
    const int32_t *index;
    const real_t *in;
    real_t *out;
    size_t rows, channels;
} lookup_t;

void
K(embedding)(const int32_t *index, const void *table, void *y, size_t rows,
             size_t table_rows, size_t channels)
{
    fsdp_take_rows(index, table, y, rows, table_rows,
                   channels * sizeof(real_t));
}

/* Threads share out the columns: each goes through all positions in order. */
enum { COLUMN_BLOCK = 128 };

FSDP_CLONES static void
add_columns(const void *context, size_t begin, size_t end)
{
    lookup_t l = *(const lookup_t *)context;
    for (size_t i = 0; i < l.rows; i++) {
        const real_t *dy = l.in + i * l.channels;
        real_t *dtable = l.out + (size_t)l.index[i] * l.channels;
#pragma omp simd
        for (size_t c = begin; c < end; c++)
            dtable[c] += dy[c];
    }
}

void
K(embedding_backward)(const int32_t *index, const void *dy, void *dtable,
                      size_t rows, size_t table_rows, size_t channels)
{
    fsdp_check_rows(index, rows, table_rows);
    lookup_t l = {index, dy, dtable, rows, channels};
    fsdp_parallel_for(channels, COLUMN_BLOCK, add_columns, &l);
}
