/** \file take_rows.h  Floor 1, tensor: rows of a table, of any type. */
#ifndef FSDP_TENSOR_TAKE_ROWS_H
#define FSDP_TENSOR_TAKE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/** Ends the program unless all of index[rows] is in [0, table_rows). */
void fsdp_check_rows(const int32_t *index, size_t rows, size_t table_rows);
/** y[i] = table[index[i]], `row_bytes` each; the index is checked. */
void fsdp_take_rows(const int32_t *index, const void *table, void *y,
                    size_t rows, size_t table_rows, size_t row_bytes);

#endif
