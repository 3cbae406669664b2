/* Any text as Hugging Face's config.json; what is read is written and read
 * again. */

#include <string.h>

#include "checkpoint/hf_config.h"
#include "fuzz.h"

static fsdp_status_t
read_config(const char *text, size_t size, fsdp_hf_config_t *config)
{
    fsdp_json_t *document;
    fsdp_status_t status =
        fsdp_json_parse("config.json", text, size, &document);
    if (status == FSDP_OK)
        status = fsdp_hf_config_read("config.json", document, config);
    fsdp_json_destroy(&document);
    return status;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fsdp_hf_config_t config, again;
    if (read_config((const char *)data, size, &config) != FSDP_OK)
        return 0;
    fsdp_json_writer_t *writer = fsdp_json_writer_create();
    fsdp_hf_config_write(&config, writer);
    FUZZ_CHECK(read_config(fsdp_json_writer_text(writer),
                           fsdp_json_writer_length(writer), &again) == FSDP_OK);
    FUZZ_CHECK(memcmp(&config, &again, sizeof config) == 0);
    fsdp_json_writer_destroy(&writer);
    return 0;
}
