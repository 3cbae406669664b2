/* Tokens: the bytes of a file, or what a tokenizer makes of them. */

#include <string.h>

#include "data/dataset.h"
#include "fsdp/memory.h"

static fsdp_status_t
too_short(const char *path, size_t length, size_t context, const char *unit)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s is too short: %zu %s, of which a tenth "
                      "is held out; a context of %zu needs %zu at least, or "
                      "choose a smaller --context",
                      path, length, unit, context, 10 * (context + 1));
}

/* Token i; little-endian, as all machines are that this runs on. */
static uint32_t
token_at(const fsdp_dataset_t *d, size_t i)
{
    const unsigned char *at = d->text + d->header + i * d->width;
    uint32_t token = 0;
    memcpy(&token, at, d->width);
    return token;
}

/* The largest token, and the entropy of the training split. */
static fsdp_status_t
look_at_tokens(fsdp_dataset_t *d, const char *path)
{
    size_t all = d->length[FSDP_TRAIN] + d->length[FSDP_VALIDATION];
    uint32_t largest = d->width == 1 ? 255 : 0;
    for (size_t i = 0; d->width > 1 && i < all; i++)
        if (token_at(d, i) > largest)
            largest = token_at(d, i);
    d->classes = (size_t)largest + 1;
    if (largest >= FSDP_DATA_MAX_TOKENS)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s has a token %u; no vocabulary is that "
                          "large, is the file of this format?",
                          path, largest);
    size_t *counts = fsdp_calloc(FSDP_MEM_OTHER, d->classes * sizeof *counts);
    for (size_t i = 0; i < d->length[FSDP_TRAIN]; i++)
        counts[token_at(d, i)]++;
    d->entropy = fsdp_data_entropy(counts, d->classes);
    fsdp_free(counts);
    return FSDP_OK;
}

fsdp_status_t
fsdp_dataset_take_tokens(const char *path, char *text, size_t width,
                         size_t header, size_t count, size_t context,
                         const char *unit, fsdp_dataset_t **dataset)
{
    size_t held_out = count / 10;
    *dataset = NULL;
    if (held_out <= context) {
        fsdp_free(text);
        return too_short(path, count, context, unit);
    }
    fsdp_dataset_t *d = fsdp_calloc(FSDP_MEM_OTHER, sizeof *d);
    d->text = (unsigned char *)text;
    d->width = width;
    d->header = header;
    d->context = context;
    d->length[FSDP_TRAIN] = count - held_out;
    d->length[FSDP_VALIDATION] = held_out;
    d->start[FSDP_VALIDATION] = count - held_out;
    for (int s = 0; s < 2; s++)
        d->count[s] = d->length[s] - context;
    fsdp_status_t status = look_at_tokens(d, path);
    if (status != FSDP_OK)
        fsdp_dataset_close(&d);
    *dataset = d;
    return status;
}

fsdp_status_t
fsdp_dataset_open_text(const char *path, size_t context,
                       fsdp_dataset_t **dataset)
{
    char *text;
    size_t length;
    *dataset = NULL;
    FSDP_CHECK(context > 0, "a context of 0 tokens");
    fsdp_status_t status = fsdp_data_read_file(path, &text, &length);
    return status == FSDP_OK
               ? fsdp_dataset_take_tokens(path, text, 1, 0, length, context,
                                          "bytes", dataset)
               : status;
}

fsdp_status_t
fsdp_dataset_open_tokenized(const char *path, size_t context,
                            const fsdp_tokenizer_t *tokenizer,
                            fsdp_dataset_t **dataset, size_t *replaced)
{
    size_t bytes, count;
    int32_t *token;
    *dataset = NULL;
    fsdp_status_t status = fsdp_tokenizer_encode_file(tokenizer, path, &token,
                                                      &count, &bytes, replaced);
    return status == FSDP_OK
               ? fsdp_dataset_take_tokens(path, (char *)token, sizeof *token, 0,
                                          count, context, "tokens", dataset)
               : status;
}

void
fsdp_dataset_text_sample(const fsdp_dataset_t *dataset, fsdp_split_t split,
                         size_t number, int32_t *tokens, int32_t *targets)
{
    FSDP_CHECK(dataset->text != NULL && number < dataset->count[split],
               "sample %zu of a text with %zu", number, dataset->count[split]);
    size_t from = dataset->start[split] + number;
    for (size_t i = 0; i < dataset->context; i++) {
        tokens[i] = (int32_t)token_at(dataset, from + i);
        targets[i] = (int32_t)token_at(dataset, from + i + 1);
    }
}
