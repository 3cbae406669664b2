/* The value of an option. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_folder.h"
#include "cli/option_table.h"

/* Letters, signs and digits only: strtod() also takes blanks, words and
 * hexadecimal, strtol() blanks. */
static bool
looks_like(const cli_option_spec_t *spec, const char *text)
{
    const char *letters =
        spec->kind == CLI_REAL ? "0123456789.eE+-" : "0123456789-";
    return text[0] != '\0' && text[strspn(text, letters)] == '\0';
}

static fsdp_status_t
set_number(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    char *end;
    errno = 0;
    long whole = strtol(text, &end, 10);
    double value = spec->kind == CLI_REAL ? strtod(text, &end) : (double)whole;
    if (!looks_like(spec, text) || *end != '\0')
        return fsdp_error(FSDP_ERR_USAGE,
                          "--%s %s: a %s is needed, %.10g to %.10g", spec->name,
                          text[0] != '\0' ? text : "\"\"",
                          spec->kind == CLI_REAL ? "number" : "whole number",
                          spec->min, spec->max);
    if (value < spec->min || value > spec->max)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--%s %s is out of range; give %.10g to %.10g",
                          spec->name, text, spec->min, spec->max);
    if (spec->kind == CLI_REAL)
        *(double *)((char *)o + spec->offset) = value;
    else
        *(long *)((char *)o + spec->offset) = whole;
    return FSDP_OK;
}

static fsdp_status_t
set_choice(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    size_t length = strlen(text);
    const char *at = spec->argument;
    for (int i = 0; at != NULL; i++) {
        size_t n = strcspn(at, "|");
        if (n == length && strncmp(at, text, n) == 0) {
            *(int *)((char *)o + spec->offset) = i;
            return FSDP_OK;
        }
        at = at[n] == '|' ? at + n + 1 : NULL;
    }
    return fsdp_error(FSDP_ERR_USAGE, "--%s %s: choose one of %s", spec->name,
                      length > 0 ? text : "\"\"", spec->argument);
}

/* A path is one that is there, or has a slash. */
static fsdp_status_t
set_model(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    bool folder = strchr(text, '/') != NULL || fsdp_weights_is_folder(text);
    o->model_folder = folder ? text : NULL;
    return folder ? FSDP_OK : set_choice(spec, text, o);
}

fsdp_status_t
cli_option_set(const cli_option_spec_t *spec, const char *text,
               cli_options_t *o)
{
    switch (spec->kind) {
    case CLI_COUNT:
    case CLI_REAL:
        return set_number(spec, text, o);
    case CLI_MODEL:
        return set_model(spec, text, o);
    case CLI_CHOICE:
        return set_choice(spec, text, o);
    case CLI_FLAG:
        *(bool *)((char *)o + spec->offset) = true;
        return FSDP_OK;
    case CLI_TEXT:
        break;
    }
    if (text[0] == '\0' && strcmp(spec->name, "prompt") != 0)
        return fsdp_error(FSDP_ERR_USAGE, "--%s needs a value: %s", spec->name,
                          spec->argument);
    *(const char **)((char *)o + spec->offset) = text;
    return FSDP_OK;
}
