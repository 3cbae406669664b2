/** \file memory.h  Floor 0, base: aligned memory, counted by what it is for.
 *
 *  Every block of the library comes from here, so that peak bytes per category
 *  (what FSDP is about) are known exactly, on each rank.  A freed block is kept
 *  for the next request of its size: a training step that repeats asks the
 *  system for nothing.  All functions may be called by any thread.
 */
#ifndef FSDP_MEMORY_H
#define FSDP_MEMORY_H

#include <stddef.h>

/** name, key in JSON */
#define FSDP_MEMORY_LIST(X)                                                    \
    X(FSDP_MEM_PARAM_SHARD, "parameter_shards")                                \
    X(FSDP_MEM_GRAD_SHARD, "gradient_shards")                                  \
    X(FSDP_MEM_OPTIMIZER, "optimizer_state")                                   \
    X(FSDP_MEM_UNSHARDED_PARAM, "unsharded_parameters")                        \
    X(FSDP_MEM_UNSHARDED_GRAD, "unsharded_gradients")                          \
    X(FSDP_MEM_COMM, "communication")                                          \
    X(FSDP_MEM_ACTIVATION, "activations")                                      \
    X(FSDP_MEM_BASELINE, "baseline")                                           \
    X(FSDP_MEM_OTHER, "other")

typedef enum fsdp_memory_category {
#define FSDP_MEMORY_ENUM(name, key) name,
    FSDP_MEMORY_LIST(FSDP_MEMORY_ENUM)
#undef FSDP_MEMORY_ENUM
    FSDP_MEM_COUNT
} fsdp_memory_category_t;

/** `bytes` bytes aligned to 64, contents undefined.  Never NULL (0 bytes give
 *  a block too); ends all ranks if the system has no more. */
void *fsdp_alloc(fsdp_memory_category_t category, size_t bytes);

/** The same, filled with zeros. */
void *fsdp_calloc(fsdp_memory_category_t category, size_t bytes);

/** A copy of `text`, category FSDP_MEM_OTHER. */
char *fsdp_strdup(const char *text);

/** Formats into a new string, category FSDP_MEM_OTHER. */
char *fsdp_format(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/** Gives a block back; NULL is allowed. */
void fsdp_free(void *block);

/** Bytes asked for and not yet freed / their highest value so far.  Counted as
 *  asked for, without alignment and headers. */
size_t fsdp_memory_live_bytes(fsdp_memory_category_t category);
size_t fsdp_memory_peak_bytes(fsdp_memory_category_t category);
/** The sum over all categories at one moment, and its peak. */
size_t fsdp_memory_live_bytes_all(void);
size_t fsdp_memory_peak_bytes_all(void);
/** Sets every peak to the present live value. */
void fsdp_memory_reset_peaks(void);

/** Blocks not yet freed; 0 at the end of every test. */
long fsdp_memory_live_blocks(void);

/** How often a request had to go to the system, since the start. */
long fsdp_memory_system_requests(void);

/** Gives the kept free blocks back to the system. */
void fsdp_memory_trim(void);

/** The key of a category, "parameter_shards" for instance. */
const char *fsdp_memory_category_name(fsdp_memory_category_t category);

/** Makes all further blocks of the calling thread count as `category`, whatever
 *  they ask for, until called with FSDP_MEM_COUNT.  For the baseline of the
 *  verification, whose parameters are not the run's.  Returns the former one. */
fsdp_memory_category_t
fsdp_memory_override(fsdp_memory_category_t category);

#endif
