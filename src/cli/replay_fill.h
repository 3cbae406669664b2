/** \file replay_fill.h  Floor 7, cli: options that were not given are filled in by
 *  what the trace of --replay says.
 *
 *  replay.c           opening it
 *  replay_fill.c      model, steps, optimizer, precision
 *  replay_sharding.c  mesh and reduction
 */
#ifndef FSDP_CLI_REPLAY_FILL_H
#define FSDP_CLI_REPLAY_FILL_H

#include "cli/replay.h"

struct cli_replay {
    fsdp_trace_t *trace;
    trace_source_t source;
    char mesh[32], divide[40]; /**< values of options                        */
};

/** All of them; FSDP_ERR_USAGE or _INPUT with what cannot be run again.  Each
 *  rank must do it. */
fsdp_status_t cli_replay_fill(cli_options_t *options, cli_replay_t *replay);
fsdp_status_t cli_replay_fill_sharding(cli_options_t *options,
                                       cli_replay_t *replay);
/** Says what was taken for an option that the trace does not know. */
void cli_replay_say_taken(const cli_options_t *options, bool unknown,
                          const char *option, const char *value);
/** Did this library record it? */
bool cli_replay_is_ours(const fsdp_trace_about_t *about);

#endif
