/* Bytes of a file as tokens. */

#include <string.h>

#include "data/dataset.h"
#include "fsdp/memory.h"

static fsdp_status_t
too_short(const char *path, size_t length, size_t context)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s is too short: %zu bytes, of which a tenth "
                      "is held out; a context of %zu needs %zu at least, or "
                      "choose a smaller --context",
                      path, length, context, 10 * (context + 1));
}

fsdp_status_t
fsdp_dataset_open_text(const char *path, size_t context,
                       fsdp_dataset_t **dataset)
{
    char *text;
    size_t length, counts[256] = {0};
    *dataset = NULL;
    FSDP_CHECK(context > 0, "a context of 0 tokens");
    fsdp_status_t status = fsdp_data_read_file(path, &text, &length);
    if (status != FSDP_OK)
        return status;

    size_t held_out = length / 10;
    if (held_out <= context) {
        fsdp_free(text);
        return too_short(path, length, context);
    }
    fsdp_dataset_t *d = fsdp_calloc(FSDP_MEM_OTHER, sizeof *d);
    d->text = (unsigned char *)text;
    d->context = context;
    d->classes = 256;
    d->length[FSDP_TRAIN] = length - held_out;
    d->length[FSDP_VALIDATION] = held_out;
    d->start[FSDP_VALIDATION] = length - held_out;
    for (int s = 0; s < 2; s++)
        d->count[s] = d->length[s] - context;
    for (size_t i = 0; i < d->length[FSDP_TRAIN]; i++)
        counts[d->text[i]]++;
    d->entropy = fsdp_data_entropy(counts, 256);
    *dataset = d;
    return FSDP_OK;
}

void
fsdp_dataset_text_sample(const fsdp_dataset_t *dataset, fsdp_split_t split,
                         size_t number, int32_t *tokens, int32_t *targets)
{
    FSDP_CHECK(dataset->text != NULL && number < dataset->count[split],
               "sample %zu of a text with %zu", number, dataset->count[split]);
    const unsigned char *from = dataset->text + dataset->start[split] + number;
    for (size_t i = 0; i < dataset->context; i++) {
        tokens[i] = from[i];
        targets[i] = from[i + 1];
    }
}
