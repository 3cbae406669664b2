/* Any bytes as a file of tokens, of either kind. */

#include "fsdp/data.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const fsdp_data_format_t format[] = {FSDP_DATA_LLMC,
                                                FSDP_DATA_NANOGPT};
    const char *path = fuzz_file(data, size);
    fsdp_data_detect(path);
    for (int f = 0; f < 2; f++) {
        int32_t tokens[3], targets[3];
        fsdp_dataset_t *dataset = NULL;
        if (fsdp_dataset_open_tokens(path, format[f], 3, &dataset) != FSDP_OK)
            continue;
        for (int split = 0; split < 2; split++) {
            size_t last = fsdp_dataset_size(dataset, (fsdp_split_t)split) - 1;
            fsdp_dataset_text_sample(dataset, (fsdp_split_t)split, last, tokens,
                                     targets);
            FUZZ_CHECK(targets[0] == tokens[1] && targets[1] == tokens[2]);
            FUZZ_CHECK((size_t)targets[2] < fsdp_dataset_classes(dataset));
        }
        fsdp_dataset_close(&dataset);
    }
    return 0;
}
