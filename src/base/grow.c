#include "base/grow.h"

#include <string.h>

void *
fsdp_grow(fsdp_memory_category_t category, void *list, size_t count,
          size_t *room, size_t first, size_t size)
{
    if (count < *room)
        return list;
    *room = *room > 0 ? 2 * *room : first;
    void *grown = fsdp_alloc(category, *room * size);
    if (count > 0)
        memcpy(grown, list, count * size);
    fsdp_free(list);
    return grown;
}
