/** \file replay.h  Floor 7, cli: --replay, the steps of a trace run again. */
#ifndef FSDP_CLI_REPLAY_H
#define FSDP_CLI_REPLAY_H

#include "cli/cli.h"
#include "verify/trace/source.h"

typedef struct cli_replay cli_replay_t;

/** Opens the trace of --replay and fills in every option that was not given by
 *  what it says; *replay is NULL without --replay.  Collective. */
fsdp_status_t cli_replay_open(cli_options_t *options, cli_replay_t **replay);
void cli_replay_close(cli_replay_t **replay);
/** NULL for NULL. */
const trace_source_t *cli_replay_source(const cli_replay_t *replay);

#endif
