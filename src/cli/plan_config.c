/* What is to be planned or drawn, from the options. */
#include <stdlib.h>
#include <string.h>

#include "cli/plan.h"
#include "cli/run.h"

/* ---- the sharding -------------------------------------------------------- */

/* As --ranks says, or the mesh, or as were started. */
static fsdp_status_t
count_ranks(const cli_options_t *o, int *ranks)
{
    char *end = NULL;
    long all = o->mesh != NULL ? strtol(o->mesh, &end, 10) : 0;
    if (end != NULL && *end == 'x')
        all *= strtol(end + 1, NULL, 10);
    all *= o->tp;
    *ranks = o->ranks > 0                 ? (int)o->ranks
             : all >= 1 && all <= 1000000 ? (int)all
                                          : fsdp_comm_size(fsdp_comm_world());
    if (o->ranks > 0 && all > 0 && all != o->ranks)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--mesh %s has %ld ranks, but --ranks is %ld; leave "
                          "--ranks out, or make them multiply up",
                          o->mesh, all, o->ranks);
    return FSDP_OK;
}

static plan_strategy_t
strategy_of(const cli_options_t *o)
{
    static const plan_strategy_t stage[] = {
        PLAN_FSDP2, PLAN_NO_SHARD, PLAN_ZERO1, PLAN_ZERO2, PLAN_FULL_SHARD};
    if (o->strategy > 0)
        return stage[o->strategy];
    if (o->api == CLI_FSDP2)
        return PLAN_FSDP2;
    return (plan_strategy_t)(PLAN_FULL_SHARD + o->sharding_strategy);
}

static int
reshard_of(const char *text)
{
    if (strcmp(text, "auto") == 0)
        return FSDP_RESHARD_AUTO;
    if (strcmp(text, "true") == 0)
        return FSDP_RESHARD_TRUE;
    return strcmp(text, "false") == 0 ? FSDP_RESHARD_FALSE
                                      : (int)strtol(text, NULL, 10);
}

static fsdp_status_t
take_sharding(const cli_options_t *o, plan_config_t *c)
{
    int ranks;
    fsdp_status_t status = count_ranks(o, &ranks);
    if (status == FSDP_OK && ranks % o->tp != 0)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "--tp %ld does not divide the %d ranks; plan %ld",
                            o->tp, ranks, (ranks / o->tp + 1) * o->tp);
    ranks /= (int)o->tp;
    if (status == FSDP_OK)
        status = cli_run_check_mesh(o, ranks);
    if (status == FSDP_OK)
        status = cli_mesh_shape(o, ranks, &c->replicas, &c->shard);
    if (status != FSDP_OK)
        return status;
    c->strategy = strategy_of(o);
    c->reshard = reshard_of(o->reshard);
    c->accumulation = (plan_accumulation_t)o->gradient_sync;
    c->order = (fsdp_reduce_order_t)o->reduce_order;
    c->param_dtype = cli_type(o->param_dtype);
    c->reduce_dtype = cli_type(o->reduce_dtype);
    c->output_dtype = cli_type(o->output_dtype);
    c->largest = o->shard_placement == CLI_SHARD_LARGEST;
    c->forward_prefetch = o->forward_prefetch;
    c->backward_prefetch = o->backward_prefetch;
    c->backward_policy = (fsdp_backward_prefetch_t)o->backward_prefetch_policy;
    c->checkpoint = o->activation_checkpointing;
    c->offload = o->offload != NULL;
    c->expert_parts = (int)o->expert_parallel;
    c->tp = (int)o->tp;
    return FSDP_OK;
}

/* ---- the model and the work ---------------------------------------------- */

static void
take_model(const cli_options_t *o, const cli_task_t *task, plan_config_t *c)
{
    static const plan_model_kind_t kind[] = {
        [CLI_GPT2] = PLAN_GPT2, [CLI_LLAMA] = PLAN_LLAMA, [CLI_MLP] = PLAN_MLP};
    c->model = kind[o->model];
    c->gpt2 = task->gpt2;
    c->llama = task->llama;
    c->mlp = task->mlp;
    c->dtype = task->dtype;
    c->context = o->context;
}

/* As `fsdp train` would choose on this machine. */
static int
threads_of(const cli_options_t *o, int ranks)
{
    const char *env = getenv("OMP_NUM_THREADS");
    long threads = o->threads;
    if (threads == 0 && env != NULL)
        threads = strtol(env, NULL, 10);
    if (threads < 1)
        threads = fsdp_cpu_count() / ranks;
    return threads < 1 ? 1 : (int)threads;
}

/* Sizes that T does not divide are refused as in a run. */
static fsdp_status_t
check_parallel(const plan_config_t *c, const cli_options_t *o)
{
    fsdp_module_t *model = c->model == PLAN_GPT2 ? fsdp_gpt2_create(&c->gpt2)
                           : c->model == PLAN_LLAMA
                               ? fsdp_llama_create(&c->llama)
                               : fsdp_mlp_create(&c->mlp);
    fsdp_status_t status = cli_parallelize(model, o, NULL);
    fsdp_module_destroy(&model);
    return status;
}

static fsdp_status_t
take_work(const cli_options_t *o, const cli_task_t *task, plan_config_t *c)
{
    int ranks = c->shard * c->replicas;
    fsdp_status_t status = cli_run_check(o, ranks * c->tp);
    if (status == FSDP_OK && c->tp > 1)
        status = check_parallel(c, o);
    if (status == FSDP_OK && o->expert_parallel > 1 &&
        o->activation_checkpointing)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "--expert-parallel %ld within "
                            "--activation-checkpointing: the experts are "
                            "gathered and sent rows once more, which is not "
                            "planned; leave one out, fsdp train counts",
                            o->expert_parallel);
    if (status != FSDP_OK)
        return status;
    c->batch = o->micro_batch_size;
    c->micros = (int)(o->batch_size / o->micro_batch_size / ranks);
    c->dropout = o->model == CLI_GPT2 ? o->dropout : 0;
    c->threads = threads_of(o, ranks * c->tp);
    c->optimizer_states = o->optimizer == CLI_ADAMW ? 2 : o->momentum != 0;
    c->eval_batches = o->eval_batches;
    if (o->model == CLI_MLP) {
        c->eval_rows = (int64_t)fsdp_dataset_size(task->data, FSDP_VALIDATION);
        c->eval_batches = cli_task_held_out_count(task);
    }
    return FSDP_OK;
}

fsdp_status_t
plan_config_make(const cli_options_t *options, bool work, cli_task_t *task,
                 plan_config_t *config)
{
    *task = (cli_task_t){.options = options};
    *config = (plan_config_t){0};
    fsdp_status_t status = take_sharding(options, config);
    if (status != FSDP_OK)
        return status;
    size_t before = fsdp_memory_live_bytes(FSDP_MEM_OTHER);
    status = cli_task_open_shape(task, options);
    if (status != FSDP_OK)
        return status;
    config->data_bytes =
        (int64_t)(fsdp_memory_live_bytes(FSDP_MEM_OTHER) - before);
    take_model(options, task, config);
    return work ? take_work(options, task, config) : FSDP_OK;
}

/* ---- sizes of memory ----------------------------------------------------- */

fsdp_status_t
plan_parse_size(const char *option, const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    bool digits = text[0] >= '0' && text[0] <= '9' && text[1] != 'x';
    double value = digits ? strtod(text, &end) : 0;
    const char *unit = digits && *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        value *= (double)((int64_t)1 << (10 * (unit - units + 1)));
        end++;
        end += strcmp(end, "iB") == 0 ? 2 : strcmp(end, "B") == 0;
    }
    if (!digits || *end != '\0' || !(value >= 1 && value < 9e18))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--%s %s: give a number and a unit, 16G or 512M for "
                          "instance",
                          option, text);
    *bytes = (int64_t)value;
    return FSDP_OK;
}
