/* Writing a trace of the run: which steps, and what trace.json says of it. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/hf_config.h"
#include "cli/run.h"
#include "verify/trace/source.h"
#include "verify/trace/writer.h"

enum { USUAL_STEPS = 10, MOST_STEPS = 999999 };

/* What the recording borrows until its end. */
struct cli_record {
    fsdp_trace_about_t about;
    fsdp_json_t *config; /* of the model */
    char *producer;
};

/* ---- which steps ------------------------------------------------------------ */

/* "N" or "A-B"; false: it is neither. */
static bool
read_steps(const char *text, long first_step, long *first, long *last)
{
    char *end;
    if (text == NULL) {
        *first = first_step;
        *last = first_step + USUAL_STEPS - 1;
        return true;
    }
    if (text[strspn(text, "0123456789-")] != '\0' || text[0] == '-')
        return false;
    long a = strtol(text, &end, 10), b = 0;
    bool range = *end == '-' && end[1] != '-';
    if (range)
        b = strtol(end + 1, &end, 10);
    *first = range ? a : first_step;
    *last = range ? b : first_step + a - 1;
    return *end == '\0' && end != text && a >= 1 && (!range || b >= a) &&
           *last <= MOST_STEPS;
}

fsdp_status_t
cli_run_check_record(const cli_options_t *o)
{
    long first, last;
    if (o->record == NULL)
        return FSDP_OK;
    if (!read_steps(o->record_steps, 1, &first, &last))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record-steps %s: give a number of steps, or the "
                          "first and the last, 3-5 for instance",
                          o->record_steps);
    if (o->steps == 0 && !o->resume && o->replay == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record and --steps 0: there is no step to record");
    if (o->record_steps != NULL && first > o->steps)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record-steps %s begins after --steps %ld",
                          o->record_steps, o->steps);
    if (o->expert_parallel > 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record and --expert-parallel %ld: a trace has no "
                          "place for experts with rows of several ranks; "
                          "leave --expert-parallel out, which trains the same",
                          o->expert_parallel);
    if (o->grad_scaler)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record and --grad-scaler: a trace has no place "
                          "for a scale that changes; leave one out (bfloat16 "
                          "needs no scale)");
    return FSDP_OK;
}

/* ---- what trace.json says ------------------------------------------------------ */

static void
write_mlp(fsdp_json_writer_t *json, const fsdp_mlp_config_t *mlp)
{
    static const char *const activation[] = {[FSDP_MLP_RELU] = "relu",
                                             [FSDP_MLP_GELU] = "gelu",
                                             [FSDP_MLP_GELU_TANH] =
                                                 "gelu_tanh"};
    fsdp_json_open_object(json);
    fsdp_json_key(json, "widths");
    fsdp_json_open_array(json);
    for (int i = 0; i <= mlp->num_layers; i++)
        fsdp_json_integer(json, (int64_t)mlp->width[i]);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "activation");
    fsdp_json_string(json, activation[mlp->activation]);
    fsdp_json_close_object(json);
}

/* What Hugging Face's configuration has no place for. */
static void
write_experts(fsdp_json_writer_t *json, const fsdp_gpt2_config_t *c)
{
    fsdp_json_key(json, "num_local_experts");
    fsdp_json_integer(json, (int64_t)c->n_experts);
    fsdp_json_key(json, "num_experts_per_tok");
    fsdp_json_integer(json, (int64_t)c->n_experts_per_tok);
    fsdp_json_key(json, "router_aux_loss_coef");
    fsdp_json_double(json, c->router_aux_loss_coef);
}

static fsdp_json_t *
parse(fsdp_json_writer_t *json)
{
    fsdp_json_t *config = NULL;
    fsdp_status_t status =
        fsdp_json_parse("config", fsdp_json_writer_text(json),
                        fsdp_json_writer_length(json), &config);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    return config;
}

static void
write_language_model(fsdp_json_writer_t *json, const cli_task_t *task)
{
    bool gpt2 = task->options->model == CLI_GPT2;
    fsdp_hf_config_t hf = {.model = gpt2 ? FSDP_HF_GPT2 : FSDP_HF_LLAMA,
                           .gpt2 = task->gpt2,
                           .llama = task->llama};
    fsdp_json_writer_t *plain = fsdp_json_writer_create();
    fsdp_hf_config_write(&hf, plain);
    fsdp_json_t *config = parse(plain);
    fsdp_json_open_object(json);
    for (fsdp_json_iter_t it = fsdp_json_first(config); it.key != NULL;
         fsdp_json_next(&it)) {
        fsdp_json_key(json, it.key);
        trace_json_copy(json, it.value);
    }
    if (gpt2 && task->gpt2.n_experts > 0)
        write_experts(json, &task->gpt2);
    fsdp_json_close_object(json);
    fsdp_json_destroy(&config);
    fsdp_json_writer_destroy(&plain);
}

static fsdp_json_t *
model_config(const cli_task_t *task)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    if (task->options->model == CLI_MLP)
        write_mlp(json, &task->mlp);
    else
        write_language_model(json, task);
    fsdp_json_t *config = parse(json);
    fsdp_json_writer_destroy(&json);
    return config;
}

static void
describe_optimizer(const cli_options_t *o, fsdp_trace_about_t *about)
{
    about->optimizer =
        o->optimizer == CLI_SGD ? FSDP_TRACE_SGD : FSDP_TRACE_ADAMW;
    about->optimizer_name = o->optimizer == CLI_SGD ? "sgd" : "adamw";
    about->sgd = cli_run_sgd(o);
    about->adamw = cli_run_adamw(o);
    about->grad_clip = o->grad_clip;
    about->norm_type = o->norm_type;
}

static void
describe(const cli_run_t *run, fsdp_trace_about_t *about)
{
    static const char *const type[] = {
        [CLI_GPT2] = "gpt2", [CLI_LLAMA] = "llama", [CLI_MLP] = "mlp"};
    const cli_options_t *o = run->o;
    bool mse = run->task.source != NULL && run->task.source->mse;
    *about = (fsdp_trace_about_t){
        .api = cli_is_fsdp1(o) ? "fsdp1" : "fsdp2",
        .replicas = run->replicas,
        .shards = run->shards,
        .tensor = (int)o->tp,
        .micro_batches = run->micros,
        .gradient_sync = o->gradient_sync,
        .model_type = type[o->model],
        .loss = mse ? "mse" : "cross_entropy",
        .ignore_index = FSDP_IGNORE_INDEX,
        .average = o->loss_average == CLI_TOKEN_MEAN ? "token" : "rank",
        .loss_scale = cli_task_scale(&run->task),
        .dtype = run->task.dtype,
        .has_precision = true,
        .precision = cli_mp_policy(o),
        .averaging = cli_is_fsdp1(o) ? FSDP_PRE_POST : o->averaging,
        .divide_factor = run->divide > 0 ? run->divide : (double)NAN,
        .force_sum = o->force_sum,
        .reduce_order = o->reduce_order,
        .dropout = o->dropout,
        .seed = o->seed,
    };
    describe_optimizer(o, about);
}

/* ---- begin and end --------------------------------------------------------------- */

static void
say(const cli_options_t *o, long first, long last)
{
    if (!cli_speaks())
        return;
    printf("fsdp: recording steps %ld to %ld in %s%s\n", first, last, o->record,
           o->record_steps == NULL && last < o->steps
               ? "; --record-steps A-B chooses others"
               : "");
}

fsdp_status_t
cli_run_record(cli_run_t *run)
{
    const cli_options_t *o = run->o;
    if (o->record == NULL)
        return FSDP_OK;
    struct cli_record *record = fsdp_calloc(FSDP_MEM_OTHER, sizeof *record);
    run->record = record;
    record->producer = fsdp_format("libfsdp %s", PACKAGE_VERSION);
    record->config = model_config(&run->task);
    describe(run, &record->about);
    record->about.producer = record->producer;
    record->about.model_config = run->task.source != NULL
                                     ? run->task.source->about->model_config
                                     : (const struct fsdp_json *)record->config;
    fsdp_trace_recorder_options_t options = {.dir = o->record,
                                             .model = run->model,
                                             .optimizer = run->optimizer,
                                             .mesh = run->mesh,
                                             .tensor = (int)o->tp,
                                             .about = &record->about};
    read_steps(o->record_steps, run->first_step, &options.first_step,
               &options.last_step);
    if (options.last_step > o->steps ||
        (run->replay != NULL && o->record_steps == NULL))
        options.last_step = o->steps;
    if (options.last_step < run->first_step)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record-steps %s ends before the run goes on, at "
                          "step %ld",
                          o->record_steps, run->first_step);
    if (options.first_step < run->first_step)
        options.first_step = run->first_step;
    fsdp_status_t status = fsdp_trace_recorder_create(&options, &run->recorder);
    if (status == FSDP_OK)
        say(o, options.first_step, options.last_step);
    return status;
}

fsdp_status_t
cli_run_end_record(cli_run_t *run)
{
    fsdp_status_t status = fsdp_trace_recorder_finish(&run->recorder);
    if (run->record == NULL)
        return status;
    fsdp_json_destroy(&run->record->config);
    fsdp_free(run->record->producer);
    fsdp_free(run->record);
    run->record = NULL;
    return status;
}
