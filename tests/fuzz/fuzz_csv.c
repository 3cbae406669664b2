/* Any bytes as a table of numbers; what opens gives its first sample. */

#include <stdlib.h>

#include "fsdp/data.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fsdp_dataset_t *dataset = NULL;
    if (fsdp_dataset_open_csv(fuzz_file(data, size), -1, &dataset) != FSDP_OK) {
        FUZZ_CHECK(dataset == NULL);
        return 0;
    }
    size_t width = fsdp_dataset_features(dataset);
    double *row = malloc((width + 1) * sizeof *row);
    int32_t label = -1;
    fsdp_dataset_csv_sample(dataset, FSDP_TRAIN, 0, row, &label);
    FUZZ_CHECK(label >= 0 && (size_t)label < fsdp_dataset_classes(dataset));
    free(row);
    fsdp_dataset_close(&dataset);
    return 0;
}
