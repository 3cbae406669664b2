/* A bundle.json, the configuration of its run, and one of a user's own. */

#include "cli/golden.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_part_t bundle = fuzz_next_part(&data, &size);
    fuzz_part_t text = fuzz_next_part(&data, &size);
    fuzz_part_t own = fuzz_next_part(&data, &size);
    golden_config_t config;
    fuzz_put("bundle.json", bundle.data, bundle.size);
    fuzz_put("run/configuration.txt", text.data, text.size);
    if (golden_check(fuzz_folder()) != FSDP_OK)
        FUZZ_CHECK(fsdp_error_message()[0] != '\0');
    if (golden_config_read(fuzz_file(own.data, own.size), &config) == FSDP_OK) {
        FUZZ_CHECK(config.name != NULL && config.name[0] != '\0');
        fsdp_free(golden_configuration_text(&config, 3, 7));
        golden_config_free(&config);
    }
    return 0;
}
