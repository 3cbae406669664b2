/* Any bytes as a safetensors file; all that opens is read. */

#include <stdlib.h>

#include "fsdp/safetensors.h"
#include "fuzz.h"

static void
read_all(const fsdp_safetensors_t *file, size_t size)
{
    const char *key, *value;
    for (size_t i = 0; fsdp_safetensors_metadata_pair(file, i, &key, &value);
         i++)
        FUZZ_CHECK(fsdp_safetensors_metadata(file, key) != NULL);
    for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
        const fsdp_safetensors_entry_t *e = fsdp_safetensors_entry(file, i);
        FUZZ_CHECK(fsdp_safetensors_find(file, e->name) == e);
        FUZZ_CHECK(e->end - e->begin == e->numel * fsdp_dtype_size(e->dtype));
        FUZZ_CHECK(e->end <= size);
        void *out = malloc(e->end - e->begin + 1);
        FUZZ_CHECK(fsdp_safetensors_read(file, e, 0, e->numel, out) == FSDP_OK);
        free(out);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(fuzz_file(data, size), &file);
    FUZZ_CHECK((status == FSDP_OK) == (file != NULL));
    if (file != NULL)
        read_all(file, size);
    fsdp_safetensors_close(&file);
    return 0;
}
