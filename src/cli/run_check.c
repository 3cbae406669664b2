/* What was asked for, before anything is made. */

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_folder.h"
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

/* "auto", "true", "false" or K, which must divide the shards. */
static fsdp_status_t
check_reshard(const cli_options_t *o, int shards)
{
    const char *text = o->reshard;
    if (strcmp(text, "auto") == 0 || strcmp(text, "true") == 0 ||
        strcmp(text, "false") == 0)
        return FSDP_OK;
    char *end;
    long k = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
    if (k < 1 || *end != '\0')
        return fsdp_error(FSDP_ERR_USAGE,
                          "--reshard-after-forward %s: choose one of auto, "
                          "true, false, or a number of ranks",
                          text);
    if (shards % k != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--reshard-after-forward %ld does not divide the %d "
                          "ranks of a shard group; give a divisor, or true",
                          k, shards);
    return FSDP_OK;
}

static fsdp_status_t
check_divide(const cli_options_t *o)
{
    const char *text = o->divide_factor;
    if (text == NULL || strcmp(text, "default") == 0)
        return FSDP_OK;
    char *end;
    double factor = strtod(text, &end);
    if (text[strspn(text, "0123456789.eE+-")] != '\0' || *end != '\0' ||
        !(factor > 0 && factor <= 1e15))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--divide-factor %s: give a number above 0, or "
                          "default for the number of ranks",
                          text);
    return FSDP_OK;
}

static fsdp_status_t
check_types(const cli_options_t *o)
{
    if (o->no_cast_forward_inputs && o->model == CLI_MLP)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--no-cast-forward-inputs leaves the rows of the "
                          "data in another type than --param-dtype; leave "
                          "one of them out");
    return FSDP_OK;
}

static bool
is_hybrid(const cli_options_t *o)
{
    return fsdp_sharding_strategy_is_hybrid(
        (fsdp_sharding_strategy_t)o->sharding_strategy);
}

static fsdp_status_t
check_experts(const cli_options_t *o, int shards)
{
    long p = o->expert_parallel;
    if (o->experts_per_token > o->experts)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--experts-per-token %ld of --experts %ld; give no "
                          "more than there are",
                          o->experts_per_token, o->experts);
    if (o->experts > 0 && o->tp > 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--experts and --tp: experts are not cut; leave one "
                          "out, or share them out with --expert-parallel");
    if (p > 1 && cli_is_fsdp1(o))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--expert-parallel %ld: experts on a mesh of their "
                          "own have a meaning with --api fsdp2 only; leave it "
                          "out",
                          p);
    if (p > 1 && o->experts % p != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--expert-parallel %ld does not divide --experts "
                          "%ld; give --experts %ld",
                          p, o->experts, (o->experts / p + 1) * p);
    if (p > 1 && shards % p != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--expert-parallel %ld does not divide the %d ranks "
                          "that share a copy; give a divisor",
                          p, shards);
    return FSDP_OK;
}

/* Experts are shared out already; groups of K would cut them once more. */
static fsdp_status_t
check_reshard_of_experts(const cli_options_t *o)
{
    long k = strtol(o->reshard, NULL, 10);
    if (o->expert_parallel > 1 && k > 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--reshard-after-forward %ld has no place for "
                          "experts that ranks share out; give auto, true or "
                          "false",
                          k);
    return FSDP_OK;
}

fsdp_status_t
cli_run_check_mesh(const cli_options_t *o, int size)
{
    int replicas, shards;
    fsdp_status_t status = cli_mesh_shape(o, size, &replicas, &shards);
    bool two = o->mesh != NULL && strchr(o->mesh, 'x') != NULL;
    if (status != FSDP_OK)
        return status;
    if (o->strategy > 0 && (two || o->api == CLI_FSDP1))
        return fsdp_error(
            FSDP_ERR_USAGE,
            "--strategy %s has a mesh and an API of its own; "
            "leave --%s out",
            fsdp_zero_stage_name((fsdp_zero_stage_t)(o->strategy - 1)),
            two ? "mesh" : "api");
    if (o->api == CLI_FSDP1 && is_hybrid(o) != two)
        return fsdp_error(
            FSDP_ERR_USAGE,
            two ? "--mesh %s has replicas; give --sharding-strategy "
                  "HYBRID_SHARD"
                : "--sharding-strategy %s needs replicas; give --mesh RxS",
            two ? o->mesh
                : fsdp_sharding_strategy_name(
                      (fsdp_sharding_strategy_t)o->sharding_strategy));
    if (o->gradient_sync == FSDP_SYNC_LAST_ALL_REDUCE &&
        (!two || cli_is_fsdp1(o)))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--gradient-sync last-all-reduce needs replicas of "
                          "--api fsdp2; give --mesh RxS");
    status = check_reshard(o, shards);
    if (status == FSDP_OK)
        status = check_experts(o, shards);
    return status == FSDP_OK ? check_reshard_of_experts(o) : status;
}

fsdp_status_t
cli_run_check_save(const cli_options_t *o)
{
    const char *path = o->save;
    fsdp_status_t status = cli_folder_check_save(o);
    if (path != NULL && o->experts > 0 && cli_is_save_folder(path))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--save %s: Hugging Face's GPT-2 knows no experts, "
                          "so there is no such folder; give the name of a file",
                          path);
    if (status != FSDP_OK || path == NULL || !cli_speaks() ||
        cli_is_save_folder(path))
        return status;
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
    if (size % o->tp != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--tp %ld does not divide the %d ranks; start %ld",
                          o->tp, size, (size / o->tp + 1) * o->tp);
    fsdp_status_t status = cli_run_check_mesh(o, size / (int)o->tp);
    if (status == FSDP_OK)
        status = check_divide(o);
    if (status == FSDP_OK)
        status = check_types(o);
    if (status == FSDP_OK)
        status = cli_run_check_checkpoint(o);
    if (status == FSDP_OK)
        status = cli_run_check_record(o);
    return status == FSDP_OK ? check_batch(o, size / (int)o->tp) : status;
}
