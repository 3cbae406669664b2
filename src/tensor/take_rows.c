#include "tensor/take_rows.h"

#include <string.h>

#include "fsdp/status.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

typedef struct taking {
    const int32_t *index;
    const char *table;
    char *y;
    size_t row_bytes;
} taking_t;

void
fsdp_check_rows(const int32_t *index, size_t rows, size_t table_rows)
{
    for (size_t i = 0; i < rows; i++)
        FSDP_CHECK(index[i] >= 0 && (size_t)index[i] < table_rows,
                   "embedding index %ld at position %zu, but the table has "
                   "%zu rows",
                   (long)index[i], i, table_rows);
}

static void
copy_rows(const void *context, size_t begin, size_t end)
{
    const taking_t *t = context;
    for (size_t i = begin; i < end; i++)
        memcpy(t->y + i * t->row_bytes,
               t->table + (size_t)t->index[i] * t->row_bytes, t->row_bytes);
}

void
fsdp_take_rows(const int32_t *index, const void *table, void *y, size_t rows,
               size_t table_rows, size_t row_bytes)
{
    fsdp_check_rows(index, rows, table_rows);
    taking_t t = {index, table, y, row_bytes};
    fsdp_parallel_for(rows, fsdp_block_rows(row_bytes / sizeof(float)),
                      copy_rows, &t);
}
