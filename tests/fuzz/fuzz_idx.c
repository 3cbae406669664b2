/* Two IDX files: images and labels. */

#include <stdio.h>

#include "fsdp/data.h"
#include "fsdp/memory.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const name[] = {"images-idx3", "labels-idx1"};
    for (int i = 0; i < 2; i++) {
        fuzz_part_t part = fuzz_next_part(&data, &size);
        fuzz_put(name[i], part.data, part.size);
    }
    fsdp_dataset_t *dataset = NULL;
    char *path = fsdp_format("%s/%s", fuzz_folder(), name[0]);
    fsdp_status_t status = fsdp_dataset_open_idx(path, NULL, &dataset);
    fsdp_free(path);
    FUZZ_CHECK((status == FSDP_OK) == (dataset != NULL));
    if (status != FSDP_OK)
        return 0;
    size_t features = fsdp_dataset_features(dataset);
    double *row = fsdp_alloc(FSDP_MEM_OTHER, features * sizeof *row);
    for (int split = 0; split < 2; split++) {
        int32_t label;
        size_t last = fsdp_dataset_size(dataset, (fsdp_split_t)split) - 1;
        fsdp_dataset_csv_sample(dataset, (fsdp_split_t)split, last, row,
                                &label);
        FUZZ_CHECK((size_t)label < fsdp_dataset_classes(dataset));
    }
    fsdp_free(row);
    fsdp_dataset_close(&dataset);
    return 0;
}
