/** \file pool.h  Floor 0, base: blocks of raw memory, kept for their next use.
 *
 *  Sizes are rounded up to classes: multiples of 64 bytes up to 1 KiB, eighths
 *  of a power of two above (so at most an eighth is wasted).  A freed block
 *  goes to the list of its class, and the next request of the class takes it.
 *  Not thread-safe: memory.c holds a lock.
 */
#ifndef FSDP_BASE_POOL_H
#define FSDP_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Stands in front of each block, which begins FSDP_POOL_HEADER bytes later. */
typedef struct fsdp_block {
    uint64_t magic;          /**< memory.c: live, freed, or not ours         */
    size_t bytes;            /**< pool.c: as asked for                       */
    int category;            /**< memory.c                                   */
    int size_class;          /**< pool.c                                     */
    struct fsdp_block *next; /**< pool.c: in the list of free blocks         */
} fsdp_block_t;

/** What a block is aligned to, and the bytes that the header takes. */
enum { FSDP_POOL_HEADER = 64 };

/** The class of a size, and the bytes that blocks of a class hold. */
int fsdp_pool_class(size_t bytes);
size_t fsdp_pool_class_bytes(int size_class);

/** A block for `bytes` bytes, from the lists or from the system, with a guard
 *  word behind them.  NULL if the system has no more. */
fsdp_block_t *fsdp_pool_take(size_t bytes);

/** Is the guard word still there?  (AddressSanitizer has guards of its own, and
 *  wants no room behind the block: then always true.) */
bool fsdp_pool_block_is_intact(const fsdp_block_t *block);

/** Puts a block into its list.  Under AddressSanitizer, which is to see any
 *  later use of it, the block goes back to the system. */
void fsdp_pool_give(fsdp_block_t *block);

/** Gives all blocks in the lists back to the system. */
void fsdp_pool_trim(void);

/** How often fsdp_pool_take() asked the system, since the start. */
long fsdp_pool_system_requests(void);

#endif
