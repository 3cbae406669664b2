#include "fsdp/memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory_count.h"
#include "base/pool.h"
#include "fsdp/offload.h"
#include "fsdp/status.h"

/* Marks in the header, so that what is not live is not freed. */
static const uint64_t live_magic = 0x4c49564550445346;
static const uint64_t free_magic = 0x4652454550445346;

/* With FSDP_DEBUG_MEMORY=1 fresh and freed blocks are full of it: as a float of
 * any width it is a NaN, as an index it is out of any range. */
enum { DEBUG_FILL = 0xff };

enum { ALL = FSDP_MEM_COUNT }; /* the sum over all categories */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;
static bool debug;

/* Bytes of one kind of place, by category and all. */
typedef struct place {
    size_t live[ALL + 1], peak[ALL + 1];
} place_t;

static place_t memory, files;
static long live_blocks;
static _Thread_local fsdp_memory_category_t forced = FSDP_MEM_COUNT;

static const char *const names[] = {
#define ROW(name, key) [name] = key,
    FSDP_MEMORY_LIST(ROW)
#undef ROW
};

static void
read_environment(void)
{
    const char *value = getenv("FSDP_DEBUG_MEMORY");
    debug = value != NULL && strcmp(value, "1") == 0;
}

static void *
data_of(fsdp_block_t *block)
{
    return (unsigned char *)block + FSDP_POOL_HEADER;
}

static void
count_one(place_t *place, int category, size_t bytes)
{
    place->live[category] += bytes;
    if (place->live[category] > place->peak[category])
        place->peak[category] = place->live[category];
}

/* A block more or less; the lock is held. */
static void
count(place_t *place, int category, size_t bytes)
{
    count_one(place, category, bytes);
    count_one(place, ALL, bytes);
    live_blocks++;
}

static void
discount(place_t *place, int category, size_t bytes)
{
    place->live[category] -= bytes;
    place->live[ALL] -= bytes;
    live_blocks--;
}

/* NULL if the system has no more. */
static fsdp_block_t *
take(int category, size_t bytes)
{
    pthread_mutex_lock(&lock);
    fsdp_block_t *block = fsdp_pool_take(bytes);
    if (block != NULL) {
        block->category = category;
        block->magic = live_magic;
        count(&memory, category, bytes);
    }
    pthread_mutex_unlock(&lock);
    return block;
}

fsdp_memory_category_t
fsdp_memory_counted_as(fsdp_memory_category_t category)
{
    FSDP_CHECK((unsigned)category < FSDP_MEM_COUNT,
               "%d is no category of memory", (int)category);
    return forced != FSDP_MEM_COUNT ? forced : category;
}

void *
fsdp_alloc(fsdp_memory_category_t category, size_t bytes)
{
    category = fsdp_memory_counted_as(category);
    fsdp_block_t *block = take((int)category, bytes);
    if (block == NULL)
        fsdp_die(FSDP_EXIT_FAULT,
                 "out of memory: %zu bytes asked for (%s), %zu bytes in use; "
                 "try a smaller model or batch, or more ranks on more machines",
                 bytes, names[category], fsdp_memory_live_bytes_all());
    pthread_once(&environment_once, read_environment);
    if (debug)
        memset(data_of(block), DEBUG_FILL, bytes);
    return data_of(block);
}

void *
fsdp_calloc(fsdp_memory_category_t category, size_t bytes)
{
    return memset(fsdp_alloc(category, bytes), 0, bytes);
}

char *
fsdp_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(fsdp_alloc(FSDP_MEM_OTHER, bytes), text, bytes);
}

char *
fsdp_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    FSDP_CHECK(length >= 0, "cannot format \"%s\"", format);

    char *text = fsdp_alloc(FSDP_MEM_OTHER, (size_t)length + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

/* What is wrong with freeing `data`, or NULL; the header is marked as freed, so
 * that of two threads that free one block only one succeeds. */
static const char *
claim(fsdp_block_t *block)
{
    const char *wrong = NULL;
    pthread_mutex_lock(&lock);
    if (block->magic == free_magic)
        wrong = "it was freed before";
    else if (block->magic != live_magic)
        wrong = "it is no block of fsdp_alloc(), or was written before its "
                "beginning";
    else if (!fsdp_pool_block_is_intact(block))
        wrong = "it was written past its end";
    else
        block->magic = free_magic;
    pthread_mutex_unlock(&lock);
    return wrong;
}

static void
give(fsdp_block_t *block)
{
    pthread_mutex_lock(&lock);
    discount(&memory, block->category, block->bytes);
    fsdp_pool_give(block);
    pthread_mutex_unlock(&lock);
}

void
fsdp_free(void *data)
{
    if (data == NULL)
        return;
    FSDP_CHECK((uintptr_t)data % FSDP_POOL_HEADER == 0,
               "fsdp_free(%p): it is no block of fsdp_alloc()", data);
    fsdp_block_t *block =
        (fsdp_block_t *)((unsigned char *)data - FSDP_POOL_HEADER);
    const char *wrong = claim(block);
    FSDP_CHECK(wrong == NULL, "fsdp_free(%p): %s", data, wrong);
    if (debug)
        memset(data, DEBUG_FILL, block->bytes);
    give(block);
}

/* A word that another thread may be changing. */
static size_t
read_locked(const size_t *word)
{
    pthread_mutex_lock(&lock);
    size_t value = *word;
    pthread_mutex_unlock(&lock);
    return value;
}

size_t
fsdp_memory_live_bytes(fsdp_memory_category_t category)
{
    return read_locked(&memory.live[category]);
}

size_t
fsdp_memory_peak_bytes(fsdp_memory_category_t category)
{
    return read_locked(&memory.peak[category]);
}

size_t
fsdp_memory_live_bytes_all(void)
{
    return read_locked(&memory.live[ALL]);
}

size_t
fsdp_memory_peak_bytes_all(void)
{
    return read_locked(&memory.peak[ALL]);
}

void
fsdp_memory_count_offloaded(fsdp_memory_category_t category, size_t bytes)
{
    pthread_mutex_lock(&lock);
    count(&files, (int)category, bytes);
    pthread_mutex_unlock(&lock);
}

void
fsdp_memory_discount_offloaded(fsdp_memory_category_t category, size_t bytes)
{
    pthread_mutex_lock(&lock);
    discount(&files, (int)category, bytes);
    pthread_mutex_unlock(&lock);
}

size_t
fsdp_offload_live_bytes(fsdp_memory_category_t category)
{
    return read_locked(&files.live[category]);
}

size_t
fsdp_offload_peak_bytes(fsdp_memory_category_t category)
{
    return read_locked(&files.peak[category]);
}

size_t
fsdp_offload_live_bytes_all(void)
{
    return read_locked(&files.live[ALL]);
}

size_t
fsdp_offload_peak_bytes_all(void)
{
    return read_locked(&files.peak[ALL]);
}

void
fsdp_memory_reset_peaks(void)
{
    pthread_mutex_lock(&lock);
    memcpy(memory.peak, memory.live, sizeof memory.peak);
    memcpy(files.peak, files.live, sizeof files.peak);
    pthread_mutex_unlock(&lock);
}

long
fsdp_memory_live_blocks(void)
{
    pthread_mutex_lock(&lock);
    long blocks = live_blocks;
    pthread_mutex_unlock(&lock);
    return blocks;
}

long
fsdp_memory_system_requests(void)
{
    pthread_mutex_lock(&lock);
    long requests = fsdp_pool_system_requests();
    pthread_mutex_unlock(&lock);
    return requests;
}

void
fsdp_memory_trim(void)
{
    pthread_mutex_lock(&lock);
    fsdp_pool_trim();
    pthread_mutex_unlock(&lock);
}

const char *
fsdp_memory_category_name(fsdp_memory_category_t category)
{
    FSDP_CHECK((unsigned)category < FSDP_MEM_COUNT,
               "%d is no category of memory", (int)category);
    return names[category];
}

fsdp_memory_category_t
fsdp_memory_override(fsdp_memory_category_t category)
{
    fsdp_memory_category_t former = forced;
    forced = category;
    return former;
}
