/* fsdp tokenize: a text as a file of tokens. */
#include "cli/task.h"

static fsdp_status_t
check(const cli_options_t *o)
{
    const char *missing = o->tokenizer == NULL ? "tokenizer"
                          : o->data == NULL    ? "data"
                          : o->out == NULL     ? "out"
                                               : NULL;
    if (missing == NULL)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "--%s is needed: fsdp tokenize --tokenizer "
                      "tokenizer.json --data TEXT --out FILE.bin",
                      missing);
}

static fsdp_status_t
write_file(const cli_options_t *o, const fsdp_tokenizer_t *tokenizer)
{
    static const fsdp_data_format_t format[] = {FSDP_DATA_LLMC,
                                                FSDP_DATA_NANOGPT};
    int32_t *token = NULL;
    size_t count, bytes, replaced;
    fsdp_status_t status = fsdp_tokenizer_encode_file(
        tokenizer, o->data, &token, &count, &bytes, &replaced);
    if (status == FSDP_OK)
        status =
            fsdp_data_write_tokens(o->out, format[o->out_format], token, count);
    fsdp_free(token);
    if (status != FSDP_OK)
        return status;
    cli_say_replaced(o->data, replaced);
    printf("%s: %zu tokens of %zu bytes, %.2f bytes a token\n", o->out, count,
           bytes, count > 0 ? (double)bytes / (double)count : 0.0);
    return FSDP_OK;
}

/* One rank does it all. */
fsdp_status_t
cli_tokenize(const cli_options_t *o)
{
    fsdp_tokenizer_t *tokenizer = NULL;
    fsdp_status_t status = check(o);
    if (status == FSDP_OK && cli_speaks())
        status = fsdp_tokenizer_open(o->tokenizer, &tokenizer);
    if (status == FSDP_OK && cli_speaks())
        status = write_file(o, tokenizer);
    fsdp_tokenizer_close(&tokenizer);
    return fsdp_comm_agree(fsdp_comm_world(), status);
}
