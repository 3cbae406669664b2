/* Micro-batches, their losses, and what training and verification share. */

#include "cli/task.h"
#include "verify/trace/source.h"

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

fsdp_values_t
cli_task_rows(const cli_task_t *task, fsdp_tape_t *tape, fsdp_split_t split,
              const size_t *number, size_t rows)
{
    return task->options->model != CLI_MLP
               ? text_batch(task, tape, split, number, rows)
               : csv_batch(task, tape, split, number, rows);
}

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

/* Which samples a micro-cli_task_rows has; the caller frees. */
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
    fsdp_values_t xy = cli_task_rows(task, tape, FSDP_TRAIN, number, rows);
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
