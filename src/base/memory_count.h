/** \file memory_count.h  Floor 0, base: counting blocks that live in files. */
#ifndef FSDP_BASE_MEMORY_COUNT_H
#define FSDP_BASE_MEMORY_COUNT_H

#include "fsdp/memory.h"

/** What a block of this category counts as; see fsdp_memory_override(). */
fsdp_memory_category_t fsdp_memory_counted_as(fsdp_memory_category_t category);

/** One block more / less, of `bytes` bytes. */
void fsdp_memory_count_offloaded(fsdp_memory_category_t category, size_t bytes);
void fsdp_memory_discount_offloaded(fsdp_memory_category_t category,
                                    size_t bytes);

#endif
