#include "fsdp/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/grow.h"
#include "base/memory_count.h"
#include "base/offload_file.h"

typedef struct block {
    char *begin;
    size_t bytes, mapped; /* asked for, in pages */
    size_t offset;        /* in the file         */
    fsdp_offload_t *file;
    fsdp_memory_category_t category;
} block_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block_t *blocks; /* by address */
static size_t num_blocks, block_room;

/* ---- blocks by address; the lock is held --------------------------------- */

/* How many blocks begin at or before `address`. */
static size_t
count_before(const char *address)
{
    size_t low = 0, high = num_blocks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static block_t *
find_block(const void *address)
{
    size_t before = count_before(address);
    if (before == 0)
        return NULL;
    block_t *b = &blocks[before - 1];
    return (const char *)address < b->begin + b->mapped ? b : NULL;
}

static void
insert_block(block_t block)
{
    blocks = fsdp_grow(FSDP_MEM_OTHER, blocks, num_blocks, &block_room, 64,
                       sizeof *blocks);
    size_t at = count_before(block.begin);
    memmove(blocks + at + 1, blocks + at, (num_blocks - at) * sizeof *blocks);
    blocks[at] = block;
    num_blocks++;
}

static void
remove_block(block_t *block)
{
    size_t at = (size_t)(block - blocks);
    num_blocks--;
    memmove(block, block + 1, (num_blocks - at) * sizeof *blocks);
    if (num_blocks > 0)
        return;
    fsdp_free(blocks);
    blocks = NULL;
    block_room = 0;
}

/* ---- files --------------------------------------------------------------- */

fsdp_status_t
fsdp_offload_open(const char *directory, fsdp_offload_t **offload)
{
    pthread_mutex_lock(&lock);
    *offload = fsdp_offload_file_open(directory);
    pthread_mutex_unlock(&lock);
    return *offload != NULL ? FSDP_OK : FSDP_ERR_IO;
}

void
fsdp_offload_close(fsdp_offload_t **offload)
{
    if (*offload == NULL)
        return;
    pthread_mutex_lock(&lock);
    fsdp_offload_file_drop(*offload);
    pthread_mutex_unlock(&lock);
    *offload = NULL;
}

const char *
fsdp_offload_directory(const fsdp_offload_t *offload)
{
    return offload->directory;
}

fsdp_offload_t *
fsdp_offload_of(const void *address)
{
    pthread_mutex_lock(&lock);
    block_t *block = find_block(address);
    fsdp_offload_t *file = block != NULL ? block->file : NULL;
    pthread_mutex_unlock(&lock);
    return file;
}

/* ---- blocks -------------------------------------------------------------- */

static _Noreturn void
no_room(const fsdp_offload_t *file, fsdp_memory_category_t category,
        size_t bytes, int error)
{
    fsdp_die(FSDP_EXIT_FAULT,
             "offload directory %s has no room for %zu bytes more (%s; %s), "
             "%zu bytes of this rank are there; free some or give a directory "
             "on another disk",
             file->directory, bytes, fsdp_memory_category_name(category),
             strerror(error), fsdp_offload_live_bytes_all());
}

/* 0 or errno; the lock is held. */
static int
make_block(block_t *block, bool *zeros)
{
    fsdp_offload_t *file = block->file;
    int error =
        fsdp_offload_file_take(file, block->mapped, &block->offset, zeros);
    if (error != 0)
        return error;
    block->begin = fsdp_offload_file_map(file, block->mapped, block->offset);
    if (block->begin == MAP_FAILED)
        return errno;
    insert_block(*block);
    file->users++;
    return 0;
}

void *
fsdp_offload_calloc(fsdp_offload_t *offload, fsdp_memory_category_t category,
                    size_t bytes)
{
    if (offload == NULL)
        return fsdp_calloc(category, bytes);
    block_t block = {.bytes = bytes,
                     .mapped = fsdp_offload_in_pages(bytes),
                     .file = offload,
                     .category = fsdp_memory_counted_as(category)};
    bool zeros = true;
    pthread_mutex_lock(&lock);
    int error = make_block(&block, &zeros);
    pthread_mutex_unlock(&lock);
    if (error != 0)
        no_room(offload, block.category, bytes, error);
    fsdp_memory_count_offloaded(block.category, bytes);
    if (!zeros)
        memset(block.begin, 0, bytes);
    return block.begin;
}

void
fsdp_offload_free(void *data)
{
    pthread_mutex_lock(&lock);
    block_t *found = find_block(data);
    if (found == NULL) {
        pthread_mutex_unlock(&lock);
        fsdp_free(data);
        return;
    }
    block_t block = *found;
    if (block.begin == data) {
        remove_block(found);
        munmap(block.begin, block.mapped);
        fsdp_offload_file_give(block.file, block.mapped, block.offset);
        fsdp_offload_file_drop(block.file);
    }
    pthread_mutex_unlock(&lock);
    FSDP_CHECK(block.begin == data,
               "fsdp_offload_free(%p): it is inside of the block at %p", data,
               (void *)block.begin);
    fsdp_memory_discount_offloaded(block.category, block.bytes);
}

/* ---- what is resident ---------------------------------------------------- */

/* The pages that hold a range of a block. */
typedef struct pages {
    char *begin;
    size_t bytes;
    size_t offset; /* in the file of `fd` */
    int fd;        /* -1: no block        */
} pages_t;

static pages_t
pages_of(const void *address, size_t bytes)
{
    pages_t pages = {.fd = -1};
    pthread_mutex_lock(&lock);
    const block_t *b = bytes > 0 ? find_block(address) : NULL;
    if (b != NULL) {
        size_t page = fsdp_offload_page();
        size_t from = (size_t)((const char *)address - b->begin);
        size_t room = b->mapped - from;
        size_t begin = from / page * page;
        bytes = bytes < room ? bytes : room;
        pages.begin = b->begin + begin;
        pages.bytes = (from + bytes - begin + page - 1) / page * page;
        pages.offset = b->offset + begin;
        pages.fd = b->file->fd;
    }
    pthread_mutex_unlock(&lock);
    return pages;
}

/* A hint: if the system does not take it, the first use reads. */
void
fsdp_offload_prefetch(const void *address, size_t bytes)
{
    pages_t pages = pages_of(address, bytes);
    if (pages.fd >= 0)
        madvise(pages.begin, pages.bytes, MADV_WILLNEED);
}

/* The pages leave first: only then does the file know that they were changed.
 */
void
fsdp_offload_release(const void *address, size_t bytes)
{
    pages_t pages = pages_of(address, bytes);
    if (pages.fd < 0)
        return;
    FSDP_CHECK(madvise(pages.begin, pages.bytes, MADV_DONTNEED) == 0,
               "%zu offloaded bytes cannot be taken out of memory: %s",
               pages.bytes, strerror(errno));
    int written = sync_file_range(pages.fd, (off_t)pages.offset,
                                  (off_t)pages.bytes, SYNC_FILE_RANGE_WRITE);
    FSDP_CHECK(written == 0 || (errno != EIO && errno != ENOSPC),
               "offloaded blocks cannot be written back: %s", strerror(errno));
}
