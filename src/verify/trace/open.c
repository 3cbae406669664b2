/* The folder of a trace: which files there are, and what they hold. */

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/whole_file.h"
#include "fsdp/memory.h"
#include "verify/trace/internal.h"

/* ---- JSON files ---------------------------------------------------------- */

typedef enum found { FOUND_FILE, FOUND_NOTHING, FOUND_OTHER } found_t;

static found_t
look_at(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return errno == ENOENT ? FOUND_NOTHING : FOUND_OTHER;
    return S_ISREG(about.st_mode) && about.st_size <= TRACE_MAX_JSON
               ? FOUND_FILE
               : FOUND_OTHER;
}

static fsdp_status_t
read_json(const char *path, char **text, size_t *length)
{
    if (look_at(path) == FOUND_OTHER)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no readable file of at most %d bytes", path,
                          TRACE_MAX_JSON);
    return fsdp_file_read(path, TRACE_MAX_JSON, text, length);
}

static fsdp_status_t
read_about(fsdp_trace_t *trace)
{
    struct stat about;
    if (stat(trace->path, &about) != 0)
        return trace_cannot_open(trace->path);
    if (!S_ISDIR(about.st_mode))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no folder; a trace is the folder that fsdp "
                          "train --record or fsdp_trace.record() made",
                          trace->path);
    char *path = fsdp_format("%s/trace.json", trace->path), *text = NULL;
    size_t length;
    fsdp_status_t status;
    if (look_at(path) == FOUND_NOTHING)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s has no trace.json, which is written last: the "
                            "recording was not finished, or this is no trace",
                            trace->path);
    else
        status = read_json(path, &text, &length);
    if (status == FSDP_OK)
        status = trace_about_parse(path, text, length, &trace->about);
    fsdp_free(text);
    fsdp_free(path);
    return status;
}

/* ---- one rank's step ----------------------------------------------------- */

static fsdp_status_t
open_tensors(fsdp_trace_t *trace, trace_part_t *part)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(part->path, &file);
    if (status == FSDP_OK)
        status = trace_part_list(file, &trace->pool, part);
    fsdp_safetensors_close(&file);
    return status;
}

static fsdp_status_t
open_json(fsdp_trace_t *trace, const char *path, trace_part_t *part)
{
    size_t length;
    char *text = NULL;
    fsdp_status_t status = read_json(path, &text, &length);
    if (status == FSDP_OK)
        status =
            trace_part_parse(path, text, length, trace->about.about.world_size,
                             &trace->pool, part);
    fsdp_free(text);
    return status;
}

/* `part` has its step and rank; either file may be missing, not both. */
static fsdp_status_t
open_part(fsdp_trace_t *trace, const char *dir, trace_part_t *part)
{
    char *stem = fsdp_format("%s/rank-%05d", dir, part->rank);
    char *json = fsdp_format("%s.json", stem);
    part->path = fsdp_format("%s.safetensors", stem);
    fsdp_status_t status = FSDP_OK;
    if (look_at(part->path) == FOUND_NOTHING) {
        fsdp_free(part->path);
        part->path = NULL;
    } else {
        status = open_tensors(trace, part);
    }
    if (status == FSDP_OK && look_at(json) != FOUND_NOTHING)
        status = open_json(trace, json, part);
    else
        trace_order_part(part);
    fsdp_free(json);
    fsdp_free(stem);
    return status;
}

/* ---- steps --------------------------------------------------------------- */

static bool
is_listed_step(const fsdp_trace_about_t *about, long step)
{
    if (step == 0 || about->num_steps == 0 ||
        step == about->step[0].step - 1) /* what the first begins with */
        return true;
    for (int i = 0; i < about->num_steps; i++)
        if (about->step[i].step == step)
            return true;
    return false;
}

/* The ranks that have files are those that trace.json lists. */
static fsdp_status_t
check_ranks(const fsdp_trace_t *trace, const char *dir,
            const trace_numbers_t *ranks)
{
    const fsdp_trace_about_t *about = &trace->about.about;
    for (size_t i = 0; i < ranks->count; i++)
        if (ranks->list[i] >= about->world_size)
            return fsdp_error(FSDP_ERR_INPUT,
                              "%s holds a file of rank %ld, but trace.json "
                              "says \"world_size\" %d",
                              dir, ranks->list[i], about->world_size);
    if (about->num_ranks == 0)
        return FSDP_OK;
    size_t at = 0;
    for (int i = 0; i < about->num_ranks; i++) {
        if (at < ranks->count && ranks->list[at] < about->rank[i])
            break;
        if (at == ranks->count || ranks->list[at] != about->rank[i])
            return fsdp_error(FSDP_ERR_INPUT,
                              "%s has no file of rank %d, which trace.json "
                              "lists in \"ranks\"; copy it too, or take the "
                              "rank off the list",
                              dir, about->rank[i]);
        at++;
    }
    if (at < ranks->count)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s holds a file of rank %ld, which trace.json does "
                          "not list in \"ranks\"",
                          dir, ranks->list[at]);
    return FSDP_OK;
}

static trace_part_t *
add_part(fsdp_trace_t *trace, long step, long rank)
{
    size_t n = trace->num_parts;
    if ((n & (n - 1)) == 0) { /* room for 1, 2, 4, ... */
        size_t room = n > 0 ? 2 * n : 1;
        trace_part_t *grown = fsdp_alloc(FSDP_MEM_OTHER, room * sizeof *grown);
        if (n > 0)
            memcpy(grown, trace->part, n * sizeof *grown);
        fsdp_free(trace->part);
        trace->part = grown;
    }
    trace->part[n] = (trace_part_t){
        .step = step, .rank = (int)rank, .data_parallel_rank = -1};
    trace->num_parts++;
    return &trace->part[n];
}

static fsdp_status_t
open_step(fsdp_trace_t *trace, long step)
{
    char *dir = fsdp_format("%s/step-%06ld", trace->path, step);
    trace_numbers_t ranks = {0};
    fsdp_status_t status;
    if (is_listed_step(&trace->about.about, step))
        status = trace_numbers_list(dir, true, &ranks);
    else
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s is a step that trace.json does not list; is "
                            "it left from another recording?",
                            dir);
    if (status == FSDP_OK)
        status = check_ranks(trace, dir, &ranks);
    for (size_t i = 0; i < ranks.count && status == FSDP_OK; i++)
        status = open_part(trace, dir, add_part(trace, step, ranks.list[i]));
    fsdp_free(ranks.list);
    fsdp_free(dir);
    return status;
}

static fsdp_status_t
open_steps(fsdp_trace_t *trace)
{
    trace_numbers_t steps = {0};
    fsdp_status_t status = trace_numbers_list(trace->path, false, &steps);
    for (size_t i = 0; i < steps.count && status == FSDP_OK; i++)
        status = open_step(trace, steps.list[i]);
    if (status == FSDP_OK && trace->num_parts == 0)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s holds no step: a folder step-000001 and so on "
                            "is needed",
                            trace->path);
    fsdp_free(steps.list);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

fsdp_status_t
fsdp_trace_open(const char *dir, fsdp_trace_t **trace)
{
    fsdp_trace_t *t = fsdp_calloc(FSDP_MEM_OTHER, sizeof *t);
    t->path = fsdp_strdup(dir);
    fsdp_status_t status = read_about(t);
    if (status == FSDP_OK)
        trace_learn_names(t);
    if (status == FSDP_OK)
        status = open_steps(t);
    if (status == FSDP_OK)
        status = trace_join(t);
    if (status == FSDP_OK)
        trace_order_records(t);
    else
        fsdp_trace_close(&t);
    *trace = t;
    return status;
}

void
fsdp_trace_close(fsdp_trace_t **trace)
{
    fsdp_trace_t *t = *trace;
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->num_parts; i++)
        trace_part_free(&t->part[i]);
    fsdp_free(t->part);
    fsdp_free(t->item);
    fsdp_free(t->piece);
    fsdp_free(t->record);
    fsdp_free(t->happened);
    fsdp_free(t->place);
    trace_about_free(&t->about);
    trace_pool_free(&t->pool);
    fsdp_free(t->path);
    fsdp_free(t);
    *trace = NULL;
}
