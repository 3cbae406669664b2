/* fsdp plan: what a run will need, before there is one. */
#include "cli/plan.h"

/* Ranks are alike, but for an element more or less, so of a great many a few
 * dozen tell as much. */
enum { MAX_RANKS = 64 };

static plan_calls_t
difference(const plan_calls_t *after, const plan_calls_t *before)
{
    plan_calls_t d;
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        d.calls[k] = after->calls[k] - before->calls[k];
        d.bytes[k] = after->bytes[k] - before->bytes[k];
    }
    return d;
}

static void
add_times(plan_calls_t *sum, const plan_calls_t *one, long times)
{
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        sum->calls[k] += times * one->calls[k];
        sum->bytes[k] += times * one->bytes[k];
    }
}

static void
take_larger(int64_t *into, const int64_t *other)
{
    for (int c = 0; c < PLAN_SUMS; c++)
        if (other[c] > into[c])
            into[c] = other[c];
}

/* ---- one rank ------------------------------------------------------------ */

/* A step; its peaks join the largest so far. */
static plan_calls_t
one_step(plan_sim_t *sim, plan_rank_t *rank)
{
    plan_calls_t before = sim->calls;
    plan_reset_peaks(sim);
    plan_step(sim);
    take_larger(rank->step, sim->memory.peak);
    take_larger(rank->files, sim->files.peak);
    return difference(&sim->calls, &before);
}

static plan_calls_t
one_evaluation(plan_sim_t *sim, plan_rank_t *rank)
{
    plan_calls_t before = sim->calls;
    plan_reset_peaks(sim);
    plan_evaluate(sim);
    take_larger(rank->evaluation, sim->memory.peak);
    return difference(&sim->calls, &before);
}

/* The peaks of a short run, and its calls times `steps`. */
static void
walk_once(const plan_config_t *config, bool early, int load,
          int64_t peak[PLAN_SUMS], long steps, plan_calls_t *calls)
{
    plan_config_t c = *config;
    c.expert_load = load;
    plan_sim_t *sim = plan_sim_open(&c);
    sim->scratch_goes_early = early;
    plan_step(sim);
    plan_calls_t before = sim->calls;
    plan_step(sim);
    plan_calls_t step = difference(&sim->calls, &before);
    plan_evaluate(sim);
    for (int i = 0; i < PLAN_SUMS; i++)
        peak[i] = sim->memory.peak[i];
    if (calls != NULL) {
        *calls = sim->calls;
        add_times(calls, &step, steps - 2);
    }
    plan_sim_close(&sim);
}

static void
walk_rank(plan_result_t *result, int r)
{
    const plan_config_t *config = &result->config;
    plan_rank_t *rank = &result->rank[r];
    *rank = (plan_rank_t){.rank = r};
    result->config.rank = r / result->config.tp;
    result->config.tp_rank = r % result->config.tp;
    plan_sim_t *sim = plan_sim_open(&result->config);
    plan_calls_t begin = sim->calls;
    plan_calls_t first = one_step(sim, rank), step = one_step(sim, rank);
    for (int c = 0; c < PLAN_SUMS; c++)
        rank->steady[c] = sim->memory.live[c];
    plan_calls_t evaluation = one_evaluation(sim, rank);
    if (r == 0) {
        result->begin = begin;
        result->first_step = first;
        result->step = step;
        result->evaluation = evaluation;
        result->numel = plan_model_numel(sim);
        result->num_units = sim->num_units;
    }
    plan_sim_close(&sim);
    /* All messages come at once and its experts get no rows; or they get all. */
    walk_once(config, true, -1, rank->least, result->steps, NULL);
    walk_once(config, false, 1, rank->most, result->steps,
              r == 0 ? &result->most_run : NULL);
}

/* ---- all of them --------------------------------------------------------- */

static void
walk(plan_result_t *result, const cli_options_t *o)
{
    const plan_config_t *c = &result->config;
    result->ranks = c->shard * c->replicas * c->tp;
    result->steps = o->steps;
    bool all = o->verbose || o->log_file != NULL;
    result->num_ranks = !all                        ? 1
                        : result->ranks < MAX_RANKS ? result->ranks
                                                    : MAX_RANKS;
    result->rank = fsdp_alloc(FSDP_MEM_OTHER,
                              (size_t)result->num_ranks * sizeof *result->rank);
    for (int r = 0; r < result->num_ranks; r++)
        walk_rank(result, r);
    add_times(&result->run, &result->begin, 1);
    add_times(&result->run, &result->first_step, 1);
    add_times(&result->run, &result->step, result->steps - 1);
    add_times(&result->run, &result->evaluation, 1);
}

fsdp_status_t
cli_plan(const cli_options_t *options)
{
    cli_task_t task;
    plan_result_t result = {0};
    fsdp_status_t status =
        plan_config_make(options, true, &task, &result.config);
    if (status == FSDP_OK && options->memory != NULL)
        status = plan_parse_size("memory", options->memory, &result.memory);
    if (status == FSDP_OK) {
        walk(&result, options);
        if (cli_speaks())
            plan_print(&result, options->verbose);
        if (cli_speaks() && options->log_file != NULL)
            status = plan_log(&result, options->log_file);
        fsdp_free(result.rank);
    }
    cli_task_close(&task);
    return fsdp_comm_agree(fsdp_comm_world(), status);
}
