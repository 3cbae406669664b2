/* Any text as JSON; what is read is walked through. */

#include "base/json.h"
#include "fuzz.h"

static size_t
walk(const fsdp_json_t *value)
{
    size_t count = 1;
    for (size_t i = 0; i < fsdp_json_size(value); i++)
        if (fsdp_json_is(value, FSDP_JSON_ARRAY))
            count += walk(fsdp_json_at(value, i));
    for (fsdp_json_iter_t i = fsdp_json_first(value); i.key != NULL;
         fsdp_json_next(&i)) {
        FUZZ_CHECK(fsdp_json_member(value, i.key) == i.value);
        count += walk(i.value);
    }
    return count;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fsdp_json_t *document;
    if (fsdp_json_parse("input", (const char *)data, size, &document) ==
        FSDP_OK)
        FUZZ_CHECK(walk(document) > 0);
    else
        FUZZ_CHECK(document == NULL && fsdp_error_message()[0] != '\0');
    fsdp_json_destroy(&document);
    return 0;
}
