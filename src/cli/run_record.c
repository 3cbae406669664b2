/* Writing a trace of the run: which steps, and what trace.json says of it. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/run.h"
#include "verify/trace/source.h"

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
    if (o->record_steps != NULL && first > o->steps)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record-steps %s begins after --steps %ld",
                          o->record_steps, o->steps);
    if (o->grad_scaler)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--record and --grad-scaler: a trace has no place "
                          "for a scale that changes; leave one out (bfloat16 "
                          "needs no scale)");
    return FSDP_OK;
}

/* ---- what trace.json says ------------------------------------------------------ */

/* A member of a configuration: a number, a truth value or a word. */
typedef struct config_member {
    const char *key;
    enum { NUMBER, TRUTH, WORD } kind;
    double number;
    const char *word;
} config_member_t;

static void
write_config(fsdp_json_writer_t *json, const config_member_t *list,
             size_t count)
{
    fsdp_json_open_object(json);
    for (size_t i = 0; i < count; i++) {
        const config_member_t *m = &list[i];
        bool whole = m->number == floor(m->number);
        fsdp_json_key(json, m->key);
        if (m->kind == WORD)
            fsdp_json_string(json, m->word);
        else if (m->kind == TRUTH)
            fsdp_json_bool(json, m->number != 0);
        else if (whole)
            fsdp_json_integer(json, (int64_t)m->number);
        else
            fsdp_json_double(json, m->number);
    }
    fsdp_json_close_object(json);
}

enum { EXPERTS = 3 }; /* the last members, of a mixture of them */

static void
write_gpt2(fsdp_json_writer_t *json, const fsdp_gpt2_config_t *c)
{
    const config_member_t list[] = {
        {"model_type", WORD, 0, "gpt2"},
        {"n_layer", NUMBER, (double)c->n_layer, NULL},
        {"n_head", NUMBER, (double)c->n_head, NULL},
        {"n_embd", NUMBER, (double)c->n_embd, NULL},
        {"vocab_size", NUMBER, (double)c->vocab_size, NULL},
        {"n_positions", NUMBER, (double)c->n_positions, NULL},
        {"layer_norm_epsilon", NUMBER, c->layer_norm_epsilon, NULL},
        {"tie_word_embeddings", TRUTH, c->tie_word_embeddings, NULL},
        {"activation_function", WORD, 0, "gelu_new"},
        {"n_experts", NUMBER, (double)c->n_experts, NULL},
        {"n_experts_per_tok", NUMBER, (double)c->n_experts_per_tok, NULL},
        {"router_aux_loss_coef", NUMBER, c->router_aux_loss_coef, NULL},
    };
    size_t count = sizeof list / sizeof *list;
    write_config(json, list, c->n_experts > 0 ? count : count - EXPERTS);
}

static void
write_llama(fsdp_json_writer_t *json, const fsdp_llama_config_t *c)
{
    const config_member_t list[] = {
        {"model_type", WORD, 0, "llama"},
        {"vocab_size", NUMBER, (double)c->vocab_size, NULL},
        {"hidden_size", NUMBER, (double)c->hidden_size, NULL},
        {"intermediate_size", NUMBER, (double)c->intermediate_size, NULL},
        {"num_hidden_layers", NUMBER, (double)c->num_hidden_layers, NULL},
        {"num_attention_heads", NUMBER, (double)c->num_attention_heads, NULL},
        {"num_key_value_heads", NUMBER, (double)c->num_key_value_heads, NULL},
        {"head_dim", NUMBER, (double)c->head_dim, NULL},
        {"max_position_embeddings", NUMBER, (double)c->max_position_embeddings,
         NULL},
        {"rms_norm_eps", NUMBER, c->rms_norm_eps, NULL},
        {"rope_theta", NUMBER, c->rope_theta, NULL},
        {"tie_word_embeddings", TRUTH, c->tie_word_embeddings, NULL},
        {"attention_bias", TRUTH, c->attention_bias, NULL},
        {"mlp_bias", TRUTH, c->mlp_bias, NULL},
        {"hidden_act", WORD, 0, "silu"},
    };
    write_config(json, list, sizeof list / sizeof *list);
}

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

static fsdp_json_t *
model_config(const cli_task_t *task)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_json_t *config = NULL;
    if (task->options->model == CLI_GPT2)
        write_gpt2(json, &task->gpt2);
    else if (task->options->model == CLI_LLAMA)
        write_llama(json, &task->llama);
    else
        write_mlp(json, &task->mlp);
    fsdp_status_t status =
        fsdp_json_parse("config", fsdp_json_writer_text(json),
                        fsdp_json_writer_length(json), &config);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
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
    record->about.model_config = (const struct fsdp_json *)record->config;
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
