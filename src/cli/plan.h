/** \file plan.h  Floor 7, cli: from options to a plan, and what is said of it. */
#ifndef FSDP_CLI_PLAN_H
#define FSDP_CLI_PLAN_H

#include "cli/plan_sim.h"
#include "cli/task.h"

/** One rank's run: its beginning, two steps (the first makes the optimizer's
 *  state), the evaluation at the end. */
typedef struct plan_rank {
    int rank;
    int64_t steady[PLAN_SUMS]; /**< between two steps                        */
    int64_t step[PLAN_SUMS], evaluation[PLAN_SUMS]; /**< peaks               */
    int64_t files[PLAN_SUMS];                       /**< with --offload      */
    int64_t
        least[PLAN_SUMS];    /**< peaks, if the room of reductions goes as early
                                   as it can, and its experts get no rows    */
    int64_t most[PLAN_SUMS]; /**< if its experts get most                    */
} plan_rank_t;

typedef struct plan_result {
    plan_config_t config;
    int ranks; /**< of the run                                         */
    int num_units;
    int64_t numel; /**< parameters of the model, Psi                       */
    plan_rank_t *rank; /**< the first of them all; owned                      */
    int num_ranks;     /**< how many of these were walked through             */
    plan_calls_t begin, first_step, step, evaluation, run; /**< of rank 0     */
    plan_calls_t most_run; /**< if its experts get most                      */
    long steps;
    int64_t memory; /**< bytes allowed; 0: not said                           */
} plan_result_t;

/* ---- plan_config.c ------------------------------------------------------- */

/** What the options ask for, checked: model, ranks and sharding; and for `work`
 *  batches, optimizer and data too.  `task` is open afterwards, also after an
 *  error: close it. */
fsdp_status_t plan_config_make(const cli_options_t *options, bool work,
                               cli_task_t *task, plan_config_t *config);
/** "16G" and the like, of --option. */
fsdp_status_t plan_parse_size(const char *option, const char *text,
                              int64_t *bytes);

/* ---- plan_print.c, plan_json.c ------------------------------------------- */

/** Bytes of model state that ZeRO's stage 1 (optimizer), 2 (and gradients) or 3
 *  (and parameters) leaves a rank of `ranks`: 2 + 2 + 12 bytes a parameter. */
double plan_zero_bytes(int64_t numel, int stage, int64_t ranks);
/** Ranks of row i of ZeRO's table: 1, 4, 16, ...; 0: past the last. */
int64_t plan_zero_ranks(int i);

void plan_print(const plan_result_t *result, bool verbose);
/** A line of JSON in the log file. */
fsdp_status_t plan_log(const plan_result_t *result, const char *path);

#endif
