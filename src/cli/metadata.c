#include "cli/metadata.h"

#include <math.h>
#include <stdlib.h>

char *
cli_metadata_add(cli_metadata_t *m, const char *key)
{
    FSDP_CHECK(m->count < sizeof m->pair / sizeof *m->pair,
               "no room for the metadata %s", key);
    m->pair[m->count][0] = key;
    m->pair[m->count][1] = m->text[m->count];
    return m->text[m->count++];
}

void
cli_metadata_number(cli_metadata_t *m, const char *key, double value)
{
    snprintf(cli_metadata_add(m, key), sizeof m->text[0], "%.17g", value);
}

void
cli_metadata_text(cli_metadata_t *m, const char *key, const char *value)
{
    snprintf(cli_metadata_add(m, key), sizeof m->text[0], "%s", value);
}

fsdp_status_t
cli_metadata_size(const fsdp_safetensors_t *file, const char *path,
                  const char *key, size_t *value)
{
    const char *text = fsdp_safetensors_metadata(file, key);
    char *end;
    long number = text != NULL ? strtol(text, &end, 10) : 0;
    if (text == NULL || *end != '\0' || number < 1 || number > 100000000)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its metadata has no sound \"%s\"; use a file "
                          "that fsdp train --model gpt2 or llama --save wrote",
                          path, key);
    *value = (size_t)number;
    return FSDP_OK;
}

void
cli_metadata_positive(const fsdp_safetensors_t *file, const char *key,
                      double *value)
{
    const char *text = fsdp_safetensors_metadata(file, key);
    double number = text != NULL ? strtod(text, NULL) : 0;
    if (number > 0 && isfinite(number))
        *value = number;
}

fsdp_status_t
cli_metadata_check_option(const fsdp_safetensors_t *file, const char *path,
                          const char *key, const char *option, long value)
{
    const char *text = fsdp_safetensors_metadata(file, key);
    if (text == NULL || strtol(text, NULL, 10) == value)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--init %s: the model in it has %s %s, not %ld; give "
                      "--%s %s",
                      path, text, option, value, option, text);
}
