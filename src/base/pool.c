#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define KEEP_BLOCKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEP_BLOCKS 0
#endif
#endif
#ifndef KEEP_BLOCKS
#define KEEP_BLOCKS 1
#endif

enum {
    SMALL_STEP = 64,
    SMALL_LOG2 = 10, /* 1 KiB, where eighths are larger than SMALL_STEP */
    NUM_SMALL = (1 << SMALL_LOG2) / SMALL_STEP,
    MAX_LOG2 = 47, /* what a process can address */
    NUM_CLASSES = NUM_SMALL + 8 * (MAX_LOG2 - SMALL_LOG2)
};

/* Behind the bytes asked for; the tail gives it room and keeps it off the next
 * block's cache line. */
static const uint64_t guard_word = 0x4755415244504453;
enum { TAIL = KEEP_BLOCKS ? 64 : 0 };

_Static_assert(sizeof(fsdp_block_t) <= FSDP_POOL_HEADER, "header too large");

static fsdp_block_t *free_blocks[NUM_CLASSES];
static long system_requests;

/* Class 0 holds up to 64 bytes, class NUM_SMALL up to 1 KiB and an eighth. */
int
fsdp_pool_class(size_t bytes)
{
    size_t last = bytes == 0 ? 0 : bytes - 1; /* the last byte's place */
    if (last >> SMALL_LOG2 == 0)
        return (int)(last / SMALL_STEP);
    int log2 = 63 - __builtin_clzll((unsigned long long)last);
    int eighth = (int)(last >> (log2 - 3)) - 8;
    return NUM_SMALL + 8 * (log2 - SMALL_LOG2) + eighth;
}

size_t
fsdp_pool_class_bytes(int size_class)
{
    if (size_class < NUM_SMALL)
        return (size_t)(size_class + 1) * SMALL_STEP;
    int log2 = SMALL_LOG2 + (size_class - NUM_SMALL) / 8;
    size_t eighths = (size_t)(8 + (size_class - NUM_SMALL) % 8 + 1);
    return eighths << (log2 - 3);
}

static fsdp_block_t *
from_system(size_t bytes)
{
    void *memory;
    size_t held = FSDP_POOL_HEADER + bytes + TAIL;
    system_requests++;
    if (posix_memalign(&memory, FSDP_POOL_HEADER, held) != 0)
        return NULL;
    return memory;
}

/* From the list of the class, else from the system, which may have more once
 * the other lists are empty. */
static fsdp_block_t *
find_block(size_t bytes, int size_class)
{
    fsdp_block_t *block = free_blocks[size_class];
    if (block != NULL) {
        free_blocks[size_class] = block->next;
        return block;
    }
    /* A sanitizer is to see the first byte too many. */
    size_t held = KEEP_BLOCKS ? fsdp_pool_class_bytes(size_class) : bytes;
    block = from_system(held);
    if (block == NULL) {
        fsdp_pool_trim();
        block = from_system(held);
    }
    return block;
}

fsdp_block_t *
fsdp_pool_take(size_t bytes)
{
    if (bytes >> MAX_LOG2 != 0)
        return NULL;
    int size_class = fsdp_pool_class(bytes);
    fsdp_block_t *block = find_block(bytes, size_class);
    if (block == NULL)
        return NULL;
    block->bytes = bytes;
    block->size_class = size_class;
    if (KEEP_BLOCKS)
        memcpy((unsigned char *)block + FSDP_POOL_HEADER + bytes, &guard_word,
               sizeof guard_word);
    return block;
}

bool
fsdp_pool_block_is_intact(const fsdp_block_t *block)
{
    const unsigned char *behind =
        (const unsigned char *)block + FSDP_POOL_HEADER + block->bytes;
    return !KEEP_BLOCKS || memcmp(behind, &guard_word, sizeof guard_word) == 0;
}

void
fsdp_pool_give(fsdp_block_t *block)
{
    if (!KEEP_BLOCKS) {
        free(block);
        return;
    }
    block->next = free_blocks[block->size_class];
    free_blocks[block->size_class] = block;
}

void
fsdp_pool_trim(void)
{
    for (int i = 0; i < NUM_CLASSES; i++) {
        while (free_blocks[i] != NULL) {
            fsdp_block_t *block = free_blocks[i];
            free_blocks[i] = block->next;
            free(block);
        }
    }
}

long
fsdp_pool_system_requests(void)
{
    return system_requests;
}
