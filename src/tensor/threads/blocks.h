/** \file blocks.h  Floor 1, tensor: how large a block of work is. */
#ifndef FSDP_TENSOR_THREADS_BLOCKS_H
#define FSDP_TENSOR_THREADS_BLOCKS_H

#include <stddef.h>

/** Elements of a block of an elementwise kernel: some 10 microseconds of work,
 *  and few enough to stay in the second-level cache. */
enum { FSDP_BLOCK_NUMEL = 16384 };

/** Rows of a block, when a row has `columns` elements. */
static inline size_t
fsdp_block_rows(size_t columns)
{
    return columns < FSDP_BLOCK_NUMEL && columns > 0
               ? FSDP_BLOCK_NUMEL / columns
               : 1;
}

#endif
