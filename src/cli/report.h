/** \file report.h  Floor 7, cli: what a person and a log file get to see. */
#ifndef FSDP_CLI_REPORT_H
#define FSDP_CLI_REPORT_H

#include "cli/task.h"

/** One training step as reported. */
typedef struct cli_step {
    long step, steps;
    double loss, grad_norm, lr, per_second;
    bool verifying;
    fsdp_verify_report_t report; /**< of this step */
} cli_step_t;

/** Peaks of a rank: of each category of memory, and of their sum. */
enum { CLI_PEAK_OF_SUM = FSDP_MEM_COUNT, CLI_PEAKS };

/** The end of a run. */
typedef struct cli_summary {
    long steps;
    double held_out_loss, accuracy; /**< accuracy: NAN for text              */
    double unigram_entropy;
    bool verifying;
    fsdp_verify_report_t total;
    const fsdp_mesh_t *mesh; /**< whose collectives are counted             */
    const fsdp_mesh_t *expert_mesh; /**< NULL: none */
    const int64_t *peaks; /**< [W][CLI_PEAKS], bytes                        */
} cli_summary_t;

/** Opens the log file on the speaking rank (NULL path: none).  The other ranks
 *  have none.  Agreed by all. */
fsdp_status_t cli_report_open(const char *log_path);
/** Closes it; a failed write shows here, on all ranks. */
fsdp_status_t cli_report_close(void);

void cli_report_step(const cli_step_t *step, const char *unit);
void cli_report_held_out(long step, double loss, double accuracy);
void cli_report_summary(const cli_summary_t *summary);

#endif
