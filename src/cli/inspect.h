/** \file inspect.h  Floor 7, cli: what a rank holds, what a file holds. */
#ifndef FSDP_CLI_INSPECT_H
#define FSDP_CLI_INSPECT_H

#include "cli/plan.h"

/** Draws the units of sim's model and which rank has which part of each
 *  parameter. */
void inspect_draw(const plan_sim_t *sim);
/** Lists the tensors of a safetensors file, or of a model's folder. */
fsdp_status_t inspect_file(const char *path);

#endif
