/* `fsdp train`, from the first step to the last. */

#include <math.h>

#include "cli/model_folder.h"
#include "cli/replay.h"
#include "cli/run.h"

static void
choose_ledger(const cli_options_t *o)
{
    fsdp_ledger_mode_t mode =
        o->verify != FSDP_VERIFY_OFF ? FSDP_LEDGER_CHECK : FSDP_LEDGER_RECORD;
    if (o->ledger > 0)
        mode = (fsdp_ledger_mode_t)(o->ledger - 1);
    fsdp_ledger_set_mode(mode);
}

static fsdp_status_t
train_all(cli_run_t *run)
{
    const cli_options_t *o = run->o;
    cli_held_out_t held_out = {0};
    bool wrong = false;
    cli_run_say_what_begins(run);
    for (long step = run->first_step; step <= o->steps; step++) {
        cli_step_t s = {.step = step,
                        .steps = o->steps,
                        .verifying = run->verifier != NULL};
        fsdp_status_t status = cli_run_step(run, &s);
        cli_report_step(&s, o->model != CLI_MLP ? "tok" : "rows");
        wrong |= s.report.differing > 0;
        if (!isfinite(s.loss) && !wrong)
            return fsdp_error(FSDP_ERR_FAULT,
                              "step %ld: the loss is %g; lower --lr, or give "
                              "--grad-clip or --warmup-steps",
                              step, s.loss);
        if (status == FSDP_OK)
            status = cli_run_checkpoint(run, step);
        if (status != FSDP_OK)
            return status;
        bool last = step == o->steps;
        if (run->replay == NULL &&
            (last || (o->eval_every > 0 && step % o->eval_every == 0))) {
            held_out = cli_run_evaluate(run);
            if (!last)
                cli_report_held_out(step, held_out.loss, held_out.correct);
        }
    }
    if (o->steps == 0 && run->replay == NULL)
        held_out = cli_run_evaluate(run);
    cli_run_summarise(run, held_out);
    if (run->verifier != NULL && !wrong)
        cli_run_say_if_fault_hid();
    return wrong ? FSDP_ERR_VERIFY : FSDP_OK;
}

static fsdp_status_t
save(cli_run_t *run)
{
    if (run->o->save == NULL)
        return FSDP_OK;
    if (cli_is_save_folder(run->o->save))
        return cli_folder_save(&run->task, run->original, run->model,
                               run->comm);
    cli_metadata_t metadata;
    cli_task_metadata(&run->task, &metadata);
    return fsdp_model_save(run->model, run->comm, run->o->save,
                           (const char *const(*)[2])metadata.pair,
                           metadata.count);
}

fsdp_status_t
cli_train(const cli_options_t *given)
{
    cli_options_t options = *given;
    cli_run_t run = {.o = &options,
                     .rank = fsdp_comm_rank(fsdp_comm_world()),
                     .size = fsdp_comm_size(fsdp_comm_world())};
    cli_replay_t *replay = NULL;
    fsdp_status_t status = cli_replay_open(&options, &replay);
    if (status != FSDP_OK)
        return status;
    run.replay = replay;
    cli_choose_threads(options.threads);
    choose_ledger(&options);
    status = cli_report_open(options.log_file);
    if (status == FSDP_OK)
        status = cli_run_open(&run);
    if (status == FSDP_OK)
        status = train_all(&run);
    if (status == FSDP_OK || status == FSDP_ERR_VERIFY) {
        fsdp_status_t saved = save(&run);
        status = saved != FSDP_OK ? saved : status;
    }
    fsdp_status_t recorded = cli_run_end_record(&run);
    status = status == FSDP_OK ? recorded : status;
    cli_run_close(&run);
    cli_replay_close(&replay);
    fsdp_status_t closed = cli_report_close();
    return status == FSDP_OK ? closed : status;
}
