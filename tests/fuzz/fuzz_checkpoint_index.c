/* Any text as the index of a checkpoint. */

#include "checkpoint/index.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fsdp_index_t index;
    fsdp_status_t status =
        fsdp_index_read("index.json", (const char *)data, size, &index);
    if (status != FSDP_OK)
        FUZZ_CHECK(fsdp_error_message()[0] != '\0');
    fsdp_index_free(&index);
    return 0;
}
