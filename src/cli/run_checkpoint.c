/* A run's checkpoints: when they are written, and how it goes on from one. */

#include <stdlib.h>
#include <unistd.h>

#include "cli/run.h"

/* ---- what a checkpoint must tell of the run ------------------------------- */

/* Other values of these would make another run of it.  (Steps and rates may be
 * changed, as a person who goes on wants to; shapes and types are checked by the
 * checkpoint itself.) */
static const struct {
    const char *key;
    size_t offset;
} kept[] = {
    {"heads", offsetof(cli_options_t, heads)},
    {"experts-per-token", offsetof(cli_options_t, experts_per_token)},
    {"seed", offsetof(cli_options_t, seed)},
    {"batch-size", offsetof(cli_options_t, batch_size)},
    {"micro-batch-size", offsetof(cli_options_t, micro_batch_size)},
};
enum { KEPT = sizeof kept / sizeof *kept };

static long
option_of(const cli_options_t *o, int i)
{
    return *(const long *)((const char *)o + kept[i].offset);
}

static void
describe(const cli_run_t *run, cli_metadata_t *metadata)
{
    cli_task_metadata(&run->task, metadata);
    for (int i = 0; i < KEPT; i++)
        cli_metadata_number(metadata, kept[i].key,
                            (double)option_of(run->o, i));
    if (run->scaler == NULL)
        return;
    fsdp_grad_scaler_state_t state = fsdp_grad_scaler_get_state(run->scaler);
    cli_metadata_number(metadata, "scale", state.scale);
    cli_metadata_number(metadata, "growth_tracker",
                        (double)state.growth_tracker);
}

static fsdp_status_t
check_options(const cli_run_t *run, const fsdp_checkpoint_t *checkpoint)
{
    for (int i = 0; i < KEPT; i++) {
        const char *text = fsdp_checkpoint_metadata(checkpoint, kept[i].key);
        double have = 0;
        if (text != NULL)
            have = strtod(text, NULL);
        if (text == NULL || have != (double)option_of(run->o, i))
            return fsdp_error(FSDP_ERR_USAGE,
                              "--%s %ld, but %s was made with %s; give the "
                              "same, or another --checkpoint-dir",
                              kept[i].key, option_of(run->o, i),
                              fsdp_checkpoint_path(checkpoint),
                              text != NULL ? text : "none");
    }
    return FSDP_OK;
}

static fsdp_status_t
restore_scaler(cli_run_t *run, const fsdp_checkpoint_t *checkpoint)
{
    const char *scale = fsdp_checkpoint_metadata(checkpoint, "scale");
    const char *tracker =
        fsdp_checkpoint_metadata(checkpoint, "growth_tracker");
    if (run->scaler == NULL)
        return FSDP_OK;
    if (scale == NULL || tracker == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "%s was made without --grad-scaler; leave it out",
                          fsdp_checkpoint_path(checkpoint));
    fsdp_grad_scaler_state_t state = fsdp_grad_scaler_get_state(run->scaler);
    state.scale = strtod(scale, NULL);
    state.growth_tracker = strtol(tracker, NULL, 10);
    return fsdp_grad_scaler_set_state(run->scaler, &state);
}

/* ---- going on ------------------------------------------------------------ */

static fsdp_status_t
resume_from(cli_run_t *run, fsdp_checkpoint_t *checkpoint)
{
    long step = fsdp_checkpoint_step(checkpoint);
    fsdp_status_t status = check_options(run, checkpoint);
    if (status == FSDP_OK && step >= run->o->steps)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "%s is of step %ld already; give more --steps than "
                            "%ld",
                            fsdp_checkpoint_path(checkpoint), step, step);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_load(checkpoint, run->model, run->optimizer);
    if (status == FSDP_OK)
        status = restore_scaler(run, checkpoint);
    if (status == FSDP_OK)
        fsdp_zero_gather_parameters(run->model); /* ZeRO-1 and 2 keep all */
    if (status == FSDP_OK && cli_speaks())
        printf("fsdp: going on after step %ld, from %s, written by %d rank%s\n",
               step, fsdp_checkpoint_path(checkpoint),
               fsdp_checkpoint_world_size(checkpoint),
               fsdp_checkpoint_world_size(checkpoint) > 1 ? "s" : "");
    run->first_step = step + 1;
    return status;
}

fsdp_status_t
cli_run_resume(cli_run_t *run)
{
    const char *dir = run->o->checkpoint_dir;
    run->first_step = 1;
    if (!run->o->resume)
        return FSDP_OK;
    bool none = fsdp_comm_all_true(run->comm, !fsdp_checkpoint_exists(dir));
    if (none) {
        if (cli_speaks())
            printf("fsdp: %s holds no checkpoint yet; beginning with step 1\n",
                   dir);
        return FSDP_OK;
    }
    fsdp_status_t status =
        fsdp_checkpoint_open(dir, run->comm, &run->checkpoint);
    return status == FSDP_OK ? resume_from(run, run->checkpoint) : status;
}

/* ---- writing ------------------------------------------------------------- */

fsdp_status_t
cli_run_checkpoint(cli_run_t *run, long step)
{
    const cli_options_t *o = run->o;
    bool due = o->checkpoint_every > 0 && step % o->checkpoint_every == 0;
    if (o->checkpoint_dir == NULL || (!due && step != o->steps))
        return FSDP_OK;
    cli_metadata_t metadata = {.count = 0};
    describe(run, &metadata);
    return fsdp_checkpoint_save(o->checkpoint_dir, step, run->model,
                                run->optimizer, run->comm,
                                (const char *const(*)[2])metadata.pair,
                                metadata.count, (int)o->checkpoint_keep);
}

/* ---- before anything is made --------------------------------------------- */

fsdp_status_t
cli_run_check_checkpoint(const cli_options_t *o)
{
    bool some = o->checkpoint_dir != NULL;
    if (!some && (o->resume || o->checkpoint_every > 0))
        return fsdp_error(FSDP_ERR_USAGE, "--%s needs --checkpoint-dir",
                          o->resume ? "resume" : "checkpoint-every");
    if (o->resume && o->init != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--resume and --init each say where to begin; leave "
                          "one of them out");
    if (some && access(o->checkpoint_dir, W_OK | X_OK) != 0)
        return fsdp_error(FSDP_ERR_IO,
                          "--checkpoint-dir %s: the folder is missing or not "
                          "writable; make it or choose another",
                          o->checkpoint_dir);
    if (some && !o->resume && fsdp_checkpoint_exists(o->checkpoint_dir))
        return fsdp_error(FSDP_ERR_USAGE,
                          "%s holds checkpoints of an earlier run; add "
                          "--resume to go on from them, or give another "
                          "folder",
                          o->checkpoint_dir);
    return FSDP_OK;
}
