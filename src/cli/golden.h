/** \file golden.h  Floor 7, cli: bundles of recorded runs for other projects'
 *  tests.
 *
 *      DIR/bundle.json                            what is there, with checksums
 *      DIR/data/rows.csv, text.txt                what was trained on
 *      DIR/NAME/ranks-W/configuration.txt         what was run; its XXH3 is the
 *                                                 run's hash
 *      DIR/NAME/ranks-W/trace.json, step-.../...  as python/trace_format.md says
 *
 *  golden.c         making a bundle     golden_config.c  what can be run
 *  golden_data.c    what it trains on   golden_run.c     one run
 *  golden_write.c   bundle.json         golden_check.c   is one stale or damaged?
 */
#ifndef FSDP_CLI_GOLDEN_H
#define FSDP_CLI_GOLDEN_H

#include "base/json.h"
#include "cli/cli.h"

enum { GOLDEN_MOST_RANKS = 64, GOLDEN_STEPS = 3 };

/** One configuration; all members are its own. */
typedef struct golden_config {
    char *name;
    char *options; /**< of fsdp train, "--key=value\n" each */
    char *data;    /**< NULL: the bundle's own rows or text */
    long steps;
} golden_config_t;

void golden_config_free(golden_config_t *config);
/** The built-in one called `name`; false: none. */
bool golden_config_built_in(const char *name, golden_config_t *config);
/** The i-th one's name and what it shows; NULL: no more. */
const char *golden_config_name(int i, const char **about);
/** From {"name": ..., "options": {"model": "mlp", "hidden": "9,5", ...}}. */
fsdp_status_t golden_config_read(const char *path, golden_config_t *config);

/** "libfsdp-golden 1", ranks, checksum of the data, options; the caller frees. */
char *golden_configuration_text(const golden_config_t *config, int ranks,
                                uint64_t data);
/** The options of a run on so many ranks, "--key=value\n" each, without paths;
 *  the caller frees. */
char *golden_options_text(const golden_config_t *config, int ranks);

/** Makes a folder that was not there. */
fsdp_status_t golden_make_folder(const char *path);
/** Makes DIR and DIR/data. */
fsdp_status_t golden_make_data(const char *dir);
/** Trains on `ranks` ranks and records into `folder`.  *told: the run failed and
 *  has said why itself. */
fsdp_status_t golden_run(const golden_config_t *config, int ranks,
                         const char *data, const char *folder, bool *told);
/** Writes DIR/FOLDER/configuration.txt, and adds the run with the checksums of
 *  its files to bundle.json. */
fsdp_status_t golden_write_run(fsdp_json_writer_t *json, const char *dir,
                               const golden_config_t *config, int ranks,
                               const char *folder, const char *text);

/** --check: are all files as they were written, and by the configurations that
 *  this program has? */
fsdp_status_t golden_check(const char *dir);

#endif
