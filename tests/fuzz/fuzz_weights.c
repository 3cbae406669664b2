/* A folder of weights: an index, and the two files that it may name. */

#include "checkpoint/weights.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const name[] = {"model.safetensors.index.json",
                                       "model-00001-of-00002.safetensors",
                                       "model-00002-of-00002.safetensors"};
    for (int i = 0; i < 3; i++) {
        fuzz_part_t part = fuzz_next_part(&data, &size);
        fuzz_put(name[i], part.data, part.size);
    }
    fsdp_weights_t *weights = NULL;
    fsdp_status_t status = fsdp_weights_open(fuzz_folder(), &weights);
    FUZZ_CHECK((status == FSDP_OK) == (weights != NULL));
    fsdp_weights_close(&weights);
    return 0;
}
