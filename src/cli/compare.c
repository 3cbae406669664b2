/* fsdp compare: is another system's training right? */
#include "cli/cli.h"

static fsdp_status_t
check(const cli_options_t *o)
{
    if (o->num_paths < 2)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp compare OURS THEIRS needs two traces; fsdp "
                          "train --record FOLDER makes ours");
    if (o->num_paths == 3 && !o->with_double)
        return fsdp_error(FSDP_ERR_USAGE,
                          "a third trace is theirs in float64; give --double "
                          "with it");
    if (fsdp_comm_size(fsdp_comm_world()) > 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp compare is one process; start it without "
                          "mpirun");
    return FSDP_OK;
}

static bool
is_wrong(const fsdp_verdict_t *verdict)
{
    return verdict->kind == FSDP_VERDICT_WRONG ||
           (verdict->of_double != NULL &&
            verdict->of_double->kind == FSDP_VERDICT_WRONG);
}

fsdp_status_t
cli_compare(const cli_options_t *o)
{
    fsdp_verdict_t *verdict;
    fsdp_verdict_options_t options = {.rename = o->rename,
                                      .runs = (int)o->runs,
                                      .seed = (uint64_t)o->seed,
                                      .with_double = o->with_double,
                                      .theirs_double = o->path[2]};
    fsdp_status_t status = check(o);
    if (status != FSDP_OK)
        return status;
    cli_choose_threads(o->threads);
    status = fsdp_verdict_make(o->path[0], o->path[1], &options, &verdict);
    if (status != FSDP_OK)
        return status;
    (o->json ? fsdp_verdict_print_json : fsdp_verdict_print)(verdict, stdout);
    if (is_wrong(verdict))
        status = FSDP_ERR_VERIFY;
    fsdp_verdict_destroy(&verdict);
    return status;
}
