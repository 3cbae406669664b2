/* A plan for programs: one line of JSON, with the keys of `fsdp train`'s log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/plan.h"

static void
put(fsdp_json_writer_t *json, const char *key, int64_t value)
{
    fsdp_json_key(json, key);
    fsdp_json_integer(json, value);
}

static int64_t
larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void
put_bytes(fsdp_json_writer_t *json, const char *key, const int64_t *bytes)
{
    fsdp_json_key(json, key);
    fsdp_json_open_object(json);
    for (int c = 0; c < FSDP_MEM_COUNT; c++)
        put(json, fsdp_memory_category_name((fsdp_memory_category_t)c),
            bytes[c]);
    put(json, "sum", bytes[PLAN_ALL]);
    fsdp_json_close_object(json);
}

static void
put_calls(fsdp_json_writer_t *json, const char *key, const plan_calls_t *calls)
{
    fsdp_json_key(json, key);
    fsdp_json_open_object(json);
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        fsdp_json_key(json, fsdp_collective_name((fsdp_collective_t)k));
        fsdp_json_open_object(json);
        put(json, "calls", calls->calls[k]);
        put(json, "bytes", calls->bytes[k]);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_object(json);
}

/* How many rows a rank's experts get is up to the tokens. */
static void
put_loads(fsdp_json_writer_t *json, const plan_rank_t *rank)
{
    put(json, "activations_at_least", rank->least[FSDP_MEM_ACTIVATION]);
    put(json, "activations_at_most", rank->most[FSDP_MEM_ACTIVATION]);
    put(json, "communication_at_most", rank->most[FSDP_MEM_COMM]);
    put(json, "sum_at_most", rank->most[PLAN_ALL]);
}

/* As the run's summary has it: the peaks of steps and evaluation together. */
static void
put_peaks(fsdp_json_writer_t *json, const plan_result_t *r)
{
    fsdp_json_key(json, "peak_bytes");
    fsdp_json_open_array(json);
    for (int i = 0; i < r->num_ranks; i++) {
        const plan_rank_t *rank = &r->rank[i];
        fsdp_json_open_object(json);
        put(json, "rank", rank->rank);
        for (int c = 0; c < FSDP_MEM_COUNT; c++)
            put(json, fsdp_memory_category_name((fsdp_memory_category_t)c),
                larger(rank->step[c], rank->evaluation[c]));
        put(json, "sum",
            larger(rank->step[PLAN_ALL], rank->evaluation[PLAN_ALL]));
        put(json, "communication_at_least", rank->least[FSDP_MEM_COMM]);
        put(json, "sum_at_least", rank->least[PLAN_ALL]);
        if (r->config.expert_parts > 1)
            put_loads(json, rank);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static void
put_ranks(fsdp_json_writer_t *json, const plan_result_t *r)
{
    fsdp_json_key(json, "ranks_bytes");
    fsdp_json_open_array(json);
    for (int i = 0; i < r->num_ranks; i++) {
        const plan_rank_t *rank = &r->rank[i];
        fsdp_json_open_object(json);
        put(json, "rank", rank->rank);
        put_bytes(json, "between_steps", rank->steady);
        put_bytes(json, "step", rank->step);
        put_bytes(json, "evaluation", rank->evaluation);
        put_bytes(json, "files", rank->files);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static void
put_zero(fsdp_json_writer_t *json, const plan_result_t *r)
{
    fsdp_json_key(json, "zero");
    fsdp_json_open_array(json);
    for (int i = 0; plan_zero_ranks(i) > 0; i++) {
        fsdp_json_open_object(json);
        put(json, "ranks", plan_zero_ranks(i));
        for (int stage = 1; stage <= 3; stage++) {
            char key[16];
            snprintf(key, sizeof key, "stage%d", stage);
            fsdp_json_key(json, key);
            fsdp_json_double(
                json, plan_zero_bytes(r->numel, stage, plan_zero_ranks(i)));
        }
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static void
put_plan(fsdp_json_writer_t *json, const plan_result_t *r)
{
    fsdp_json_open_object(json);
    fsdp_json_key(json, "event");
    fsdp_json_string(json, "plan");
    put(json, "parameters", r->numel);
    put(json, "ranks", r->ranks);
    put(json, "replicas", r->config.replicas);
    put(json, "shard", r->config.shard);
    put(json, "micro_batches", r->config.micros);
    put(json, "steps", r->steps);
    put_ranks(json, r);
    put_calls(json, "step", &r->step);
    put_calls(json, "evaluation", &r->evaluation);
    put_zero(json, r);
    put_peaks(json, r);
    if (r->config.expert_parts > 1)
        put_calls(json, "collectives_at_most", &r->most_run);
    put_calls(json, "collectives", &r->run);
    if (r->memory > 0) {
        const plan_rank_t *rank = &r->rank[0];
        put(json, "memory", r->memory);
        fsdp_json_key(json, "fits");
        fsdp_json_bool(json, larger(rank->step[PLAN_ALL],
                                    rank->evaluation[PLAN_ALL]) <= r->memory);
    }
    fsdp_json_close_object(json);
}

fsdp_status_t
plan_log(const plan_result_t *result, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return fsdp_error(FSDP_ERR_IO, "--log-file %s cannot be written: %s",
                          path, strerror(errno));
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    put_plan(json, result);
    bool failed = fprintf(file, "%s\n", fsdp_json_writer_text(json)) < 0;
    fsdp_json_writer_destroy(&json);
    failed |= fclose(file) != 0;
    if (failed)
        return fsdp_error(FSDP_ERR_IO,
                          "--log-file %s could not be written; is the disk "
                          "full?",
                          path);
    return FSDP_OK;
}
