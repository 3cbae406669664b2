#include "tensor/kernels/entries.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct operands {
    const real_t *x, *bias;
    real_t *y;
    size_t rows, columns;
} operands_t;

FSDP_CLONES static void
add_bias_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    for (size_t r = begin; r < end; r++) {
        const real_t *x = o.x + r * o.columns;
        real_t *y = o.y + r * o.columns;
#pragma omp simd
        for (size_t i = 0; i < o.columns; i++)
            y[i] = x[i] + o.bias[i];
    }
}

void
K(add_bias)(const void *x, const void *bias, void *y, size_t rows,
            size_t columns)
{
    operands_t o = {x, bias, y, rows, columns};
    fsdp_parallel_for(rows, fsdp_block_rows(columns), add_bias_block, &o);
}

/* A block of columns, all rows.  Groups of ROW_GROUP rows are summed one after
 * another, then the groups' sums, so that errors grow with N / ROW_GROUP. */
enum { COLUMN_BLOCK = 256, ROW_GROUP = 64 };

FSDP_CLONES static void
sum_rows_block(const void *context, size_t begin, size_t end)
{
    operands_t o = *(const operands_t *)context;
    real_t total[COLUMN_BLOCK] = {0};
    size_t width = end - begin;
    for (size_t first = 0; first < o.rows; first += ROW_GROUP) {
        real_t group[COLUMN_BLOCK] = {0};
        for (size_t r = first; r < first + ROW_GROUP && r < o.rows; r++) {
            const real_t *x = o.x + r * o.columns + begin;
            for (size_t i = 0; i < width; i++)
                group[i] += x[i];
        }
        for (size_t i = 0; i < width; i++)
            total[i] += group[i];
    }
    for (size_t i = 0; i < width; i++)
        o.y[begin + i] = total[i];
}

void
K(sum_rows)(const void *x, void *out, size_t rows, size_t columns)
{
    operands_t o = {.x = x, .y = out, .rows = rows, .columns = columns};
    fsdp_parallel_for(columns, COLUMN_BLOCK, sum_rows_block, &o);
}
