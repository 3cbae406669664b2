/* Held-out figures. */

#include "cli/task.h"

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
    fsdp_values_t xy = cli_task_rows(task, tape, FSDP_VALIDATION, number, rows);
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
