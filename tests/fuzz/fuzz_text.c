/* Any bytes as a text to train on, with a context of 3. */

#include "fsdp/data.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t tokens[3], targets[3];
    fsdp_dataset_t *dataset = NULL;
    if (fsdp_dataset_open_text(fuzz_file(data, size), 3, &dataset) != FSDP_OK)
        return 0;
    for (int split = 0; split < 2; split++) {
        size_t last = fsdp_dataset_size(dataset, (fsdp_split_t)split) - 1;
        fsdp_dataset_text_sample(dataset, (fsdp_split_t)split, last, tokens,
                                 targets);
        FUZZ_CHECK(targets[0] == tokens[1] && targets[1] == tokens[2]);
    }
    fsdp_dataset_close(&dataset);
    return 0;
}
