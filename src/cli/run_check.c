/* What was asked for, before anything is made. */

#include <libgen.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run.h"

static fsdp_status_t
check_batch(const cli_options_t *o, int size)
{
    long total = o->batch_size / o->micro_batch_size;
    if (o->batch_size % o->micro_batch_size != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--micro-batch-size %ld does not divide --batch-size "
                          "%ld; give --batch-size %ld",
                          o->micro_batch_size, o->batch_size,
                          (total + 1) * o->micro_batch_size);
    if (total < size)
        return fsdp_error(FSDP_ERR_USAGE,
                          "%d ranks, but only %ld micro-batches a step: use "
                          "%ld ranks, or --batch-size %ld",
                          size, total, total, o->micro_batch_size * size);
    if (total % size != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "%ld micro-batches cannot be dealt evenly to %d "
                          "ranks: use --batch-size %ld or %ld",
                          total, size,
                          o->micro_batch_size * (total - total % size),
                          o->micro_batch_size * (total - total % size + size));
    return FSDP_OK;
}

fsdp_status_t
cli_run_check_save(const char *path)
{
    if (path == NULL || !cli_speaks())
        return FSDP_OK;
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISDIR(kind.st_mode))
        return fsdp_error(FSDP_ERR_IO,
                          "--save %s: this is a folder; give the name of a "
                          "file",
                          path);
    char *copy = fsdp_strdup(path);
    bool writable = access(dirname(copy), W_OK) == 0;
    fsdp_free(copy);
    if (!writable)
        return fsdp_error(FSDP_ERR_IO,
                          "--save %s: its folder is missing or not writable; "
                          "make it or choose another",
                          path);
    return FSDP_OK;
}

fsdp_status_t
cli_run_check(const cli_options_t *o, int size)
{
    if (o->optimizer == CLI_SGD && o->nesterov && o->momentum == 0)
        return fsdp_error(FSDP_ERR_USAGE, "--nesterov needs --momentum");
    if (o->warmup_steps > o->steps)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--warmup-steps %ld is more than --steps %ld; give "
                          "fewer",
                          o->warmup_steps, o->steps);
    if (o->min_lr > o->lr)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--min-lr %g is above --lr %g; give a smaller one",
                          o->min_lr, o->lr);
    if (o->inject != NULL) {
        fsdp_status_t status = fsdp_fault_choose(o->inject);
        if (status != FSDP_OK)
            return status;
    }
    return check_batch(o, size);
}
