/* The data of a task, in whatever format it is. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/weights.h"
#include "cli/task.h"

/* As --data-format's words. */
enum { AUTO, TEXT, CSV, LLMC, NANOGPT, IDX };

static fsdp_status_t
wrong_format(const cli_options_t *o, const char *needed)
{
    return fsdp_error(FSDP_ERR_USAGE,
                      "--data %s: %s; choose another --data-format or --model",
                      o->data, needed);
}

char *
cli_tokenizer_path(const cli_options_t *o)
{
    const char *folder =
        o->model_folder != NULL ? o->model_folder : o->model_file;
    if (o->tokenizer != NULL)
        return fsdp_strdup(o->tokenizer);
    if (folder == NULL || !fsdp_weights_is_folder(folder))
        return NULL;
    char *path = fsdp_weights_path(folder, "tokenizer.json");
    if (access(path, F_OK) == 0)
        return path;
    fsdp_free(path);
    return NULL;
}

void
cli_say_replaced(const char *path, size_t replaced)
{
    if (replaced > 0 && cli_speaks())
        fsdp_warn("%s is no UTF-8 in %zu places, which are read as U+FFFD",
                  path, replaced);
}

/* A text, by its tokenizer or its bytes. */
static fsdp_status_t
open_text(cli_task_t *task, char *tokenizer_path)
{
    const cli_options_t *o = task->options;
    size_t context = (size_t)o->context, replaced = 0;
    fsdp_tokenizer_t *tokenizer = NULL;
    if (tokenizer_path == NULL)
        return fsdp_dataset_open_text(o->data, context, &task->data);
    fsdp_status_t status = fsdp_tokenizer_open(tokenizer_path, &tokenizer);
    if (status == FSDP_OK)
        status = fsdp_dataset_open_tokenized(o->data, context, tokenizer,
                                             &task->data, &replaced);
    fsdp_tokenizer_close(&tokenizer);
    cli_say_replaced(o->data, replaced);
    return status;
}

/* What the file is, if it is not said. */
static fsdp_status_t
settle_format(const cli_options_t *o, int *format)
{
    static const int found[] = {[FSDP_DATA_PLAIN] = AUTO,
                                [FSDP_DATA_LLMC] = LLMC,
                                [FSDP_DATA_NANOGPT] = NANOGPT,
                                [FSDP_DATA_IDX] = IDX,
                                [FSDP_DATA_GZIP] = AUTO};
    fsdp_data_format_t is = fsdp_data_detect(o->data);
    size_t length = strlen(o->data);
    bool text = o->model != CLI_MLP;
    *format = o->data_format;
    if (*format != AUTO)
        return FSDP_OK;
    *format = found[is];
    if (is == FSDP_DATA_GZIP)
        return wrong_format(o, "it is compressed: unpack it with gunzip");
    if (text && is == FSDP_DATA_PLAIN && length > 4 &&
        strcmp(o->data + length - 4, ".bin") == 0)
        return wrong_format(o, "a file of tokens without llm.c's header: say "
                               "--data-format nanogpt, or text");
    if (*format == AUTO)
        *format = text ? TEXT : CSV;
    return FSDP_OK;
}

static fsdp_status_t
check_text(const cli_task_t *task, int format, bool bytes)
{
    const cli_options_t *o = task->options;
    size_t classes = fsdp_dataset_classes(task->data);
    if (o->documents && !(format == TEXT && bytes))
        return fsdp_error(FSDP_ERR_USAGE,
                          "--documents: empty lines are looked for in bytes, "
                          "but the data is tokens; leave --documents out");
    if (classes <= (size_t)o->vocab_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--data %s has tokens up to %zu, the model's vocabulary "
                      "has %ld; give --vocab-size %zu, or another tokenizer",
                      o->data, classes - 1, o->vocab_size, classes);
}

fsdp_status_t
cli_open_text_data(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    int format;
    char *tokenizer = cli_tokenizer_path(o);
    bool bytes = tokenizer == NULL;
    fsdp_status_t status = settle_format(o, &format);
    if (status == FSDP_OK && o->tokenizer != NULL && format != TEXT)
        status = fsdp_error(FSDP_ERR_USAGE,
                            "--tokenizer: --data %s holds tokens already; "
                            "leave --tokenizer out",
                            o->data);
    else if (status == FSDP_OK && (format == CSV || format == IDX))
        status = wrong_format(o, "rows of numbers are for --model mlp");
    else if (status == FSDP_OK && format == TEXT)
        status = open_text(task, tokenizer);
    else if (status == FSDP_OK)
        status = fsdp_dataset_open_tokens(
            o->data, format == LLMC ? FSDP_DATA_LLMC : FSDP_DATA_NANOGPT,
            (size_t)o->context, &task->data);
    fsdp_free(tokenizer);
    return status == FSDP_OK ? check_text(task, format, bytes) : status;
}

fsdp_status_t
cli_open_table_data(cli_task_t *task)
{
    const cli_options_t *o = task->options;
    int format;
    fsdp_status_t status = settle_format(o, &format);
    if (status != FSDP_OK)
        return status;
    if (format == IDX)
        return fsdp_dataset_open_idx(o->data, o->labels, &task->data);
    if (format != CSV)
        return wrong_format(o, "tokens are for --model gpt2 or llama");
    if (o->labels != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--labels has a meaning with IDX files only; a CSV "
                          "file has its own: --label-column");
    return fsdp_dataset_open_csv(o->data, (int)o->label_column, &task->data);
}
