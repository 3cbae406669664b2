/* A tokenizer.json, and a text for it. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tokenizer.h"
#include "fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_part_t json = fuzz_next_part(&data, &size);
    fuzz_part_t text = fuzz_next_part(&data, &size);
    fsdp_tokenizer_t *tokenizer = NULL;
    int32_t *token;
    size_t count, length;
    fsdp_status_t status =
        fsdp_tokenizer_open(fuzz_file(json.data, json.size), &tokenizer);
    FUZZ_CHECK((status == FSDP_OK) == (tokenizer != NULL));
    if (status != FSDP_OK)
        return 0;
    status = fsdp_tokenizer_encode(tokenizer, (const char *)text.data,
                                   text.size < 1000 ? text.size : 1000, true,
                                   &token, &count, NULL);
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(fsdp_tokenizer_bytes(tokenizer, token[i], &length) != NULL);
    fsdp_free(token);
    fsdp_tokenizer_close(&tokenizer);
    return 0;
}
