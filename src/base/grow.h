/** \file grow.h  Floor 0, base: a list that doubles as it grows. */
#ifndef FSDP_BASE_GROW_H
#define FSDP_BASE_GROW_H

#include <stddef.h>

#include "fsdp/memory.h"

/** A list of `count` items of `size` bytes with room for one more: itself, or, if
 *  *room items fill it, a copy with twice the room (at first, `first`) of the
 *  category; then the old one is freed. */
void *fsdp_grow(fsdp_memory_category_t category, void *list, size_t count,
                size_t *room, size_t first, size_t size);

#endif
