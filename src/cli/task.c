#include "cli/task.h"

#include <stdlib.h>
#include <string.h>

#include "cli/llama.h"
#include "cli/model_folder.h"
#include "verify/trace/source.h"

/* ---- shapes ------------------------------------------------------------- */

/* The number of heads, or of experts for a token, shows in no shape: only the
 * metadata can tell. */
static fsdp_status_t
check_init(const cli_options_t *o)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(o->init, &file);
    if (status != FSDP_OK)
        return status;
    status =
        cli_metadata_check_option(file, o->init, "n_head", "heads", o->heads);
    if (status == FSDP_OK && o->experts > 0)
        status = cli_metadata_check_option(file, o->init, "num_experts_per_tok",
                                           "experts-per-token",
                                           o->experts_per_token);
    fsdp_safetensors_close(&file);
    return status;
}

static fsdp_status_t
settle_gpt2(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    if (o->width % o->heads != 0)
        return fsdp_error(
            FSDP_ERR_USAGE,
            "--heads %ld does not divide --width %ld; give --width "
            "%ld",
            o->heads, o->width, (o->width / o->heads + 1) * o->heads);
    task->gpt2 = fsdp_gpt2_config_default();
    task->gpt2.n_layer = (size_t)o->layers;
    task->gpt2.n_head = (size_t)o->heads;
    task->gpt2.n_embd = (size_t)o->width;
    task->gpt2.n_positions = (size_t)o->context;
    task->gpt2.vocab_size = (size_t)o->vocab_size;
    task->gpt2.resid_pdrop = o->dropout;
    task->gpt2.embd_pdrop = o->dropout;
    task->gpt2.attn_pdrop = o->dropout;
    task->gpt2.tie_word_embeddings = !o->untied;
    task->gpt2.n_experts = (size_t)o->experts;
    task->gpt2.n_experts_per_tok = (size_t)o->experts_per_token;
    task->gpt2.router_aux_loss_coef = o->router_aux_loss;
    task->gpt2.dtype = task->dtype;
    task->gpt2.seed = (uint64_t)o->seed;
    return o->init != NULL ? check_init(o) : FSDP_OK;
}

static fsdp_status_t
settle_folder(cli_task_t *task)
{
    fsdp_hf_config_t config;
    fsdp_status_t status = cli_folder_settle(task->options, &config);
    task->gpt2 = config.gpt2;
    task->llama = config.llama;
    return status;
}

static fsdp_status_t
settle_text(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    fsdp_status_t status = o->model_folder != NULL ? settle_folder(task)
                           : o->model == CLI_LLAMA
                               ? cli_llama_settle(o, task->dtype, &task->llama)
                               : settle_gpt2(task);
    if (status != FSDP_OK || o->data == NULL)
        return status;
    return cli_open_text_data(task);
}

/* "64,32" between the features and the classes of the data. */
static fsdp_status_t
settle_widths(cli_task_t *task)
{
    const char *text = task->options->hidden;
    fsdp_mlp_config_t *mlp = &task->mlp;
    mlp->width[0] = fsdp_dataset_features(task->data);
    for (const char *at = text;;) {
        char *end;
        long width = strtol(at, &end, 10);
        if (end == at || width < 1 || width > 1000000 ||
            (*end != '\0' && *end != ',') ||
            mlp->num_layers + 2 > FSDP_MLP_MAX_LAYERS)
            return fsdp_error(FSDP_ERR_USAGE,
                              "--hidden %s: widths separated by commas are "
                              "needed, for instance 64,32",
                              text);
        mlp->width[++mlp->num_layers] = (size_t)width;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    mlp->width[++mlp->num_layers] = fsdp_dataset_classes(task->data);
    return FSDP_OK;
}

static fsdp_status_t
settle_mlp(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    fsdp_status_t status = cli_open_table_data(task);
    task->mlp.dtype = task->dtype;
    task->mlp.seed = (uint64_t)o->seed;
    return status == FSDP_OK ? settle_widths(task) : status;
}

fsdp_status_t
cli_task_open_shape(cli_task_t *task, const cli_options_t *options)
{
    *task = (cli_task_t){.options = options,
                         .dtype = options->dtype == 1 ? FSDP_FP64 : FSDP_FP32};
    if (options->model != CLI_MLP)
        return settle_text(task);
    if (options->data == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--data FILE is needed: a perceptron has as many "
                          "inputs as the table has columns, and as many "
                          "outputs as it has classes");
    return settle_mlp(task);
}

/* The model of a trace. */
static fsdp_status_t
settle_source(cli_task_t *task)
{
    const trace_source_t *source = task->source;
    task->dtype = source->dtype;
    task->gpt2 = source->model.gpt2;
    task->llama = source->model.llama;
    task->mlp = source->model.mlp;
    task->gpt2.resid_pdrop = task->gpt2.embd_pdrop = task->gpt2.attn_pdrop =
        task->llama.attention_dropout = task->options->dropout;
    return FSDP_OK;
}

fsdp_status_t
cli_task_open(cli_task_t *task, const cli_options_t *options,
              const struct trace_source *source)
{
    *task = (cli_task_t){.options = options, .source = source};
    if (source != NULL)
        return settle_source(task);
    if (options->data == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--data FILE is needed: a text for gpt2 or llama, "
                          "a CSV file for mlp");
    return cli_task_open_shape(task, options);
}

void
cli_task_close(cli_task_t *task)
{
    fsdp_dataset_close(&task->data);
}

fsdp_module_t *
cli_task_model(const cli_task_t *task)
{
    switch (task->options->model) {
    case CLI_GPT2:
        return fsdp_gpt2_create(&task->gpt2);
    case CLI_LLAMA:
        return fsdp_llama_create(&task->llama);
    default:
        return fsdp_mlp_create(&task->mlp);
    }
}

/* ---- batches ------------------------------------------------------------ */

/* Samples `number[0..rows)` of a split as the model's input and target. */
static fsdp_values_t
text_batch(const cli_task_t *task, fsdp_tape_t *tape, fsdp_split_t split,
           const size_t *number, size_t rows)
{
    size_t context = (size_t)task->options->context;
    const size_t shape[] = {rows, context};
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    for (size_t b = 0; b < rows; b++)
        fsdp_dataset_text_sample(task->data, split, number[b],
                                 (int32_t *)x->data + b * context,
                                 (int32_t *)y->data + b * context);
    return fsdp_values2(x, y);
}

static fsdp_values_t
csv_batch(const cli_task_t *task, fsdp_tape_t *tape, fsdp_split_t split,
          const size_t *number, size_t rows)
{
    size_t features = task->mlp.width[0];
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, task->dtype, 2, (size_t[]){rows, features});
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 1, &rows);
    double *row = fsdp_alloc(FSDP_MEM_OTHER, features * sizeof *row);
    size_t size = fsdp_dtype_size(task->dtype);
    for (size_t b = 0; b < rows; b++) {
        fsdp_dataset_csv_sample(task->data, split, number[b], row,
                                (int32_t *)y->data + b);
        fsdp_convert(FSDP_FP64, row, task->dtype,
                     (char *)x->data + b * features * size, features);
    }
    fsdp_free(row);
    return fsdp_values2(x, y);
}

static fsdp_values_t
batch(const cli_task_t *task, fsdp_tape_t *tape, fsdp_split_t split,
      const size_t *number, size_t rows)
{
    return task->options->model != CLI_MLP
               ? text_batch(task, tape, split, number, rows)
               : csv_batch(task, tape, split, number, rows);
}

/* ---- what training and verification share ------------------------------- */

static fsdp_module_t *
build(void *context)
{
    cli_task_t *task = context;
    fsdp_module_t *model = cli_task_model(task);
    if (cli_parallelize(model, task->options, NULL) != FSDP_OK)
        task->failed = true; /* the run failed in the same way */
    if (task->options->init != NULL &&
        fsdp_model_load(model, NULL, task->options->init) != FSDP_OK)
        task->failed = true;
    if (task->source != NULL &&
        trace_source_load(task->source, model, NULL) != FSDP_OK)
        task->failed = true;
    return model;
}

/* Which samples a micro-batch has; the caller frees. */
static size_t *
samples_of(const cli_task_t *task, long step, int micro)
{
    const cli_options_t *o = task->options;
    size_t rows = (size_t)o->micro_batch_size;
    size_t *number = fsdp_alloc(FSDP_MEM_OTHER, rows * sizeof *number);
    for (size_t b = 0; b < rows; b++)
        number[b] =
            fsdp_dataset_draw(task->data, (uint64_t)o->seed, (uint64_t)step,
                              (size_t)micro * rows + b, (size_t)o->batch_size);
    return number;
}

/* A document ends at an empty line; the targets behind it do not count.  The
 * first one always does. */
static void
end_document(const int32_t *tokens, int32_t *targets, size_t context)
{
    bool ended = false;
    for (size_t t = 1; t < context; t++) {
        ended |= tokens[t] == '\n' && tokens[t - 1] == '\n';
        if (ended)
            targets[t] = FSDP_IGNORE_INDEX;
    }
}

fsdp_values_t
cli_task_batch(const cli_task_t *task, fsdp_tape_t *tape, long step, int micro)
{
    size_t rows = (size_t)task->options->micro_batch_size;
    size_t context = (size_t)task->options->context;
    if (task->source != NULL)
        return trace_source_batch(task->source, tape, step, micro);
    size_t *number = samples_of(task, step, micro);
    fsdp_values_t xy = batch(task, tape, FSDP_TRAIN, number, rows);
    for (size_t b = 0; task->options->documents && b < rows; b++)
        end_document((const int32_t *)xy.tensor[0]->data + b * context,
                     (int32_t *)xy.tensor[1]->data + b * context, context);
    fsdp_free(number);
    return xy;
}

fsdp_tensor_t *
cli_task_mean(const cli_task_t *task, fsdp_tape_t *tape, fsdp_module_t *model,
              fsdp_values_t xy)
{
    if (task->source != NULL)
        return trace_source_mean(task->source, tape, model, xy);
    return task->options->model != CLI_MLP
               ? fsdp_module_call(model, tape, xy).tensor[0]
               : fsdp_mlp_loss(tape, model, xy.tensor[0], xy.tensor[1]);
}

fsdp_tensor_t *
cli_task_weigh(fsdp_tape_t *tape, fsdp_tensor_t *mean, double weight)
{
    return weight == 1 ? mean : fsdp_scale(tape, mean, weight);
}

double
cli_task_scale(const cli_task_t *task)
{
    return task->source != NULL ? task->source->scale : 1;
}

double
cli_task_targets(const cli_task_t *task, long step, int micro)
{
    fsdp_tape_options_t options = {0};
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    double count =
        trace_source_targets(cli_task_batch(task, tape, step, micro));
    fsdp_tape_destroy(&tape);
    return count;
}

/* The baseline's, which counts the targets of all micro-batches itself. */
static fsdp_tensor_t *
loss(void *context, fsdp_tape_t *tape, fsdp_module_t *model, long step,
     int micro)
{
    const cli_task_t *task = context;
    const cli_options_t *o = task->options;
    int micros = (int)(o->batch_size / o->micro_batch_size);
    double all = 0, weight = 1;
    if (o->loss_average == CLI_TOKEN_MEAN) {
        for (int g = 0; g < micros; g++)
            all += cli_task_targets(task, step, g);
        weight = cli_task_targets(task, step, micro) * micros / all;
    }
    fsdp_values_t xy = cli_task_batch(task, tape, step, micro);
    return cli_task_weigh(tape, cli_task_mean(task, tape, model, xy),
                          weight * cli_task_scale(task));
}

static fsdp_tape_options_t
tape_options(void *context, long step, int micro)
{
    const cli_options_t *o = ((cli_task_t *)context)->options;
    fsdp_tape_options_t tape = fsdp_tape_options_default();
    tape.seed = (uint64_t)o->seed;
    tape.step = (uint32_t)step;
    tape.first_sample = (uint32_t)(micro * o->micro_batch_size);
    return tape;
}

fsdp_task_t
cli_task_callbacks(cli_task_t *task)
{
    return (fsdp_task_t){.context = task,
                         .build = build,
                         .loss = loss,
                         .tape_options = tape_options};
}

/* ---- held-out data ------------------------------------------------------ */

long
cli_task_held_out_count(const cli_task_t *task)
{
    const cli_options_t *o = task->options;
    size_t rows = (size_t)o->micro_batch_size;
    size_t held = fsdp_dataset_size(task->data, FSDP_VALIDATION);
    return o->model != CLI_MLP ? o->eval_batches
                               : (long)((held + rows - 1) / rows);
}

/* Text: samples spread evenly over the split.  CSV: all rows in turn. */
static size_t
held_out_samples(const cli_task_t *task, long index, size_t *number)
{
    size_t rows = (size_t)task->options->micro_batch_size;
    size_t held = fsdp_dataset_size(task->data, FSDP_VALIDATION);
    size_t all = (size_t)cli_task_held_out_count(task) * rows;
    size_t count = 0;
    for (size_t b = 0; b < rows; b++) {
        size_t i = (size_t)index * rows + b;
        if (task->options->model != CLI_MLP)
            number[count++] = (size_t)((double)held * (double)i / (double)all);
        else if (i < held)
            number[count++] = i;
    }
    return count;
}

static size_t
likeliest(const fsdp_tensor_t *logits, size_t row)
{
    size_t classes = logits->shape[1], best = 0;
    for (size_t c = 1; c < classes; c++)
        if (fsdp_tensor_get(logits, row * classes + c) >
            fsdp_tensor_get(logits, row * classes + best))
            best = c;
    return best;
}

static void
judge_csv(fsdp_tape_t *tape, fsdp_module_t *model, fsdp_values_t xy,
          cli_held_out_t *out)
{
    fsdp_tensor_t *logits = fsdp_module_call1(model, tape, xy.tensor[0]);
    fsdp_tensor_t *mean =
        fsdp_cross_entropy(tape, logits, xy.tensor[1], FSDP_IGNORE_INDEX);
    out->loss = fsdp_tensor_get(mean, 0);
    for (size_t b = 0; b < logits->shape[0]; b++)
        out->correct +=
            likeliest(logits, b) == (size_t)((int32_t *)xy.tensor[1]->data)[b];
}

cli_held_out_t
cli_task_held_out(const cli_task_t *task, fsdp_module_t *model, long index)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.grad_enabled = options.training = false;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    size_t *number =
        fsdp_alloc(FSDP_MEM_OTHER,
                   (size_t)task->options->micro_batch_size * sizeof *number);
    size_t rows = held_out_samples(task, index, number);
    fsdp_values_t xy = batch(task, tape, FSDP_VALIDATION, number, rows);
    cli_held_out_t out = {.rows = (double)rows};
    if (task->options->model != CLI_MLP)
        out.loss =
            fsdp_tensor_get(fsdp_module_call(model, tape, xy).tensor[0], 0);
    else
        judge_csv(tape, model, xy, &out);
    fsdp_free(number);
    fsdp_tape_destroy(&tape);
    return out;
}

/* ---- metadata ----------------------------------------------------------- */

static void
add_widths(cli_metadata_t *m, const fsdp_mlp_config_t *mlp)
{
    char *text = cli_metadata_add(m, "widths");
    size_t used = 0, size = sizeof m->text[0];
    for (int i = 0; i <= mlp->num_layers && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ",%zu" : "%zu",
                                 mlp->width[i]);
}

void
cli_task_metadata(const cli_task_t *task, cli_metadata_t *m)
{
    static const char *const activation[] = {[FSDP_MLP_RELU] = "relu",
                                             [FSDP_MLP_GELU] = "gelu",
                                             [FSDP_MLP_GELU_TANH] =
                                                 "gelu_tanh"};
    const fsdp_gpt2_config_t *g = &task->gpt2;
    m->count = 0;
    cli_metadata_text(m, "format", "pt");
    if (task->options->model == CLI_MLP) {
        cli_metadata_text(m, "model_type", "mlp");
        add_widths(m, &task->mlp);
        cli_metadata_text(m, "activation_function",
                          activation[task->mlp.activation]);
        return;
    }
    if (task->options->model == CLI_LLAMA) {
        cli_llama_metadata(&task->llama, m);
        return;
    }
    cli_metadata_text(m, "model_type", "gpt2");
    cli_metadata_number(m, "n_layer", (double)g->n_layer);
    cli_metadata_number(m, "n_head", (double)g->n_head);
    cli_metadata_number(m, "n_embd", (double)g->n_embd);
    cli_metadata_number(m, "vocab_size", (double)g->vocab_size);
    cli_metadata_number(m, "n_positions", (double)g->n_positions);
    cli_metadata_number(m, "layer_norm_epsilon", g->layer_norm_epsilon);
    cli_metadata_text(m, "tie_word_embeddings",
                      g->tie_word_embeddings ? "true" : "false");
    cli_metadata_text(m, "activation_function", "gelu_new");
    if (g->n_experts > 0) {
        cli_metadata_number(m, "num_local_experts", (double)g->n_experts);
        cli_metadata_number(m, "num_experts_per_tok",
                            (double)g->n_experts_per_tok);
    }
}
