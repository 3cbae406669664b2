/** \file parallel.h  Floor 1, tensor: the one loop over threads.
 *
 *  Work is cut into blocks by its size alone and handed out to whichever thread
 *  is free (other processes may hold the cores), so the number of threads
 *  decides who computes a block, never what is in it.
 */
#ifndef FSDP_TENSOR_THREADS_PARALLEL_H
#define FSDP_TENSOR_THREADS_PARALLEL_H

#include <stddef.h>

/** Computes items [begin, end) of the work described by `context`. */
typedef void fsdp_block_t(const void *context, size_t begin, size_t end);

/** Calls block(context, begin, end) for [0, block_size), [block_size, ...) and
 *  so on up to n, on fsdp_get_num_threads() threads; the last block may be
 *  short.  Blocks must not depend on each other.  A single block runs in the
 *  calling thread.  n = 0 calls nothing. */
void fsdp_parallel_for(size_t n, size_t block_size, fsdp_block_t *block,
                       const void *context);

#endif
