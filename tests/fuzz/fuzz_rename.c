/* Any bytes as a table of names, and each rule applied to a name. */

#include "fuzz.h"
#include "verify/verdict/internal.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rename_table_t table = {0};
    char ours[64];
    if (rename_table_read(fuzz_file(data, size), &table) == FSDP_OK)
        for (size_t i = 0; i < table.count; i++)
            rename_table_apply(&table, i, "model.layers.10.weight", ours,
                               sizeof ours);
    rename_table_free(&table);
    return 0;
}
