/** \file run.h  Floor 7, cli: one run of `fsdp train`.
 *
 *  run_check.c   what was asked for, before anything is made
 *  run_make.c    mesh, model, optimizer, verification
 *  run_step.c    one step
 *  run_checkpoint.c  going on later
 *  run_record.c  writing a trace
 *  run_report.c  held-out data, what is said before and after
 */
#ifndef FSDP_CLI_RUN_H
#define FSDP_CLI_RUN_H

#include "checkpoint/weights.h"
#include "cli/report.h"

/* Everything that one run of `fsdp train` holds. */
typedef struct cli_run {
    const cli_options_t *o;
    cli_task_t task;
    fsdp_task_t callbacks;
    fsdp_mesh_t *mesh;      /* all dimensions */
    fsdp_mesh_t *data_mesh; /* those that parameters are sharded over */
    fsdp_mesh_t *expert_mesh, *expert_data_mesh; /* NULL: not shared out */
    fsdp_comm_t *comm; /* all ranks, for what is not the run's own traffic */
    fsdp_module_t *model;
    fsdp_weights_t *original; /* what it was read from, or NULL */
    fsdp_optimizer_t *optimizer;
    fsdp_verifier_t *verifier;       /* NULL: not verifying */
    fsdp_trace_recorder_t *recorder; /* NULL: not recording */
    struct cli_record *record;       /* what trace.json says */
    const struct cli_replay *replay; /* NULL: --data is trained on; borrowed */
    fsdp_checkpoint_t *checkpoint;   /* that it goes on from; NULL: none, or it
                                      has been read */
    fsdp_schedule_t schedule;
    long first_step; /* 1, or the one after the checkpoint's */
    int rank, size;
    int batch_rank, batches; /* whose batch; how many ranks have their own */
    int replicas, shards;
    int micros;    /* micro-batches of this rank in a step, m */
    double divide; /* what sums over ranks are divided by; 0: default */
    fsdp_grad_scaler_t *scaler; /* NULL: none */
    double *losses;             /* [W m] of one step, by global micro-batch */
    double *gathered;           /* [W][m], as they come */
} cli_run_t;

/** Not collective, but the same on all ranks unless it says otherwise. */
fsdp_status_t cli_run_check(const cli_options_t *options, int size);
/** The mesh and the strategy alone. */
fsdp_status_t cli_run_check_mesh(const cli_options_t *options, int size);
/** Can the speaking rank write --save's file or folder? */
fsdp_status_t cli_run_check_save(const cli_options_t *options);

/** Collective. */
fsdp_status_t cli_run_open(cli_run_t *run);
void cli_run_close(cli_run_t *run);

/** The rate of a step: the schedule's, or the trace's. */
double cli_run_lr(const cli_run_t *run, long step);
/** The optimizers that were asked for. */
fsdp_sgd_options_t cli_run_sgd(const cli_options_t *options);
fsdp_adamw_options_t cli_run_adamw(const cli_options_t *options);

/** One step; fills the result.  The error is that of a recording.
 *  Collective. */
fsdp_status_t cli_run_step(cli_run_t *run, cli_step_t *step);

/** --checkpoint-dir and --resume: is what was asked for possible? */
fsdp_status_t cli_run_check_checkpoint(const cli_options_t *options);
/** Goes on from the newest checkpoint, if that was asked for and there is one,
 *  which stays open.  Collective. */
fsdp_status_t cli_run_resume(cli_run_t *run);
/** Writes one after this step, if it is time.  Collective. */
fsdp_status_t cli_run_checkpoint(cli_run_t *run, long step);

/** --record: is what was asked for possible? */
fsdp_status_t cli_run_check_record(const cli_options_t *options);
/** Begins the recording, if that was asked for.  Collective. */
fsdp_status_t cli_run_record(cli_run_t *run);
/** Ends it.  Collective. */
fsdp_status_t cli_run_end_record(cli_run_t *run);

/** Held-out figures over all ranks.  Collective. */
cli_held_out_t cli_run_evaluate(cli_run_t *run);
void cli_run_say_what_begins(const cli_run_t *run);
/** Collective. */
void cli_run_summarise(cli_run_t *run, cli_held_out_t held_out);
/** An injected fault that changed nothing is not passed over in silence. */
void cli_run_say_if_fault_hid(void);

#endif
