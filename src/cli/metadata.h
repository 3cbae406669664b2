/** \file metadata.h  Floor 7, cli: what a saved model's file says of it. */
#ifndef FSDP_CLI_METADATA_H
#define FSDP_CLI_METADATA_H

#include "cli/cli.h"

/** Pairs of strings, to be written.  Keys are borrowed. */
typedef struct cli_metadata {
    const char *pair[24][2];
    char text[24][512];
    size_t count;
} cli_metadata_t;

/** Adds a key; returns where its text goes, [512]. */
char *cli_metadata_add(cli_metadata_t *metadata, const char *key);
void cli_metadata_number(cli_metadata_t *metadata, const char *key,
                         double value);
void cli_metadata_text(cli_metadata_t *metadata, const char *key,
                       const char *value);

/** A size that the file must give, from 1 on. */
fsdp_status_t cli_metadata_size(const fsdp_safetensors_t *file,
                                const char *path, const char *key,
                                size_t *value);
/** Overwrites `value` if the file gives a number above 0. */
void cli_metadata_positive(const fsdp_safetensors_t *file, const char *key,
                           double *value);
/** Refuses an --init file that gives another number than an option. */
fsdp_status_t cli_metadata_check_option(const fsdp_safetensors_t *file,
                                        const char *path, const char *key,
                                        const char *option, long value);

#endif
