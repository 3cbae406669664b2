#include "verify/trace/recorder.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fsdp/memory.h"

/* ---- create ----------------------------------------------------------------- */

static bool
is_of_trace(const char *name)
{
    return strcmp(name, "trace.json") == 0 || strncmp(name, "step-", 5) == 0;
}

/* Another trace in the same folder would be mixed with this one. */
static fsdp_status_t
check_folder(const char *dir)
{
    fsdp_status_t status = FSDP_OK;
    if (mkdir(dir, 0777) == 0)
        return FSDP_OK;
    if (errno != EEXIST)
        return fsdp_error(FSDP_ERR_IO, "%s cannot be made: %s; choose another",
                          dir, strerror(errno));
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return fsdp_error(FSDP_ERR_IO, "%s cannot be opened: %s", dir,
                          strerror(errno));
    const struct dirent *entry;
    while (status == FSDP_OK && (entry = readdir(folder)) != NULL)
        if (is_of_trace(entry->d_name))
            status = fsdp_error(FSDP_ERR_USAGE,
                                "%s holds %s of an earlier recording; choose "
                                "another folder, or remove it",
                                dir, entry->d_name);
    closedir(folder);
    return status;
}

static const char *
unit_name(const char *name)
{
    if (name == NULL)
        return NULL;
    return name[0] != '\0' ? name : "(root)";
}

static void
list_units(fsdp_trace_recorder_t *r)
{
    size_t count = fsdp_module_modules(r->options.model, NULL, 0);
    fsdp_module_t **list = fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_modules(r->options.model, list, count);
    r->unit = fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *r->unit);
    r->order = fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *r->order);
    for (size_t i = 0; i < count; i++)
        if (list[i]->fsdp_state != NULL || fsdp1_is_wrapped(list[i]))
            r->unit[r->num_units++] =
                (recorded_unit_t){.recorder = r,
                                  .module = list[i],
                                  .name = unit_name(list[i]->name),
                                  .is_root = list[i] == r->options.model};
    fsdp_free(list);
}

static void
list_parameters(fsdp_trace_recorder_t *r)
{
    size_t count = fsdp_module_parameters(r->options.model, NULL, 0);
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_parameters(r->options.model, list, count);
    r->param = fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *r->param);
    r->num_params = (int)count;
    for (size_t p = 0; p < count; p++) {
        r->param[p] = (recorded_parameter_t){
            .parameter = list[p],
            .local = fsdp_parameter_local(list[p]).layout,
            .whole = fsdp_layout_whole(list[p])};
        fsdp_parameter_whole_shape(list[p], r->param[p].shape);
    }
    fsdp_free(list);
}

static void
list_ranks(fsdp_trace_recorder_t *r)
{
    const fsdp_trace_about_t *about = r->options.about;
    r->rank = fsdp_comm_rank(r->comm);
    r->size = fsdp_comm_size(r->comm);
    r->replicas = about->replicas;
    r->shards = about->shards;
    r->data_parallel_rank = r->rank / r->options.tensor;
    FSDP_CHECK(r->replicas * r->shards * r->options.tensor == r->size,
               "%d replicas of %d shards of %d parts are not %d ranks",
               r->replicas, r->shards, r->options.tensor, r->size);
    for (int d = 0; d < fsdp_mesh_ndim(r->options.mesh); d++)
        if (r->num_watched < RECORDER_MAX_COMMS)
            r->watched[r->num_watched++] = fsdp_mesh_comm(r->options.mesh, d);
}

fsdp_status_t
fsdp_trace_recorder_create(const fsdp_trace_recorder_options_t *options,
                           fsdp_trace_recorder_t **recorder)
{
    fsdp_status_t status = FSDP_OK;
    *recorder = NULL;
    if (fsdp_comm_rank(fsdp_comm_world()) == 0)
        status = check_folder(options->dir);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        return status;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    fsdp_trace_recorder_t *r = fsdp_calloc(FSDP_MEM_BASELINE, sizeof *r);
    r->options = *options;
    r->comm = fsdp_comm_dup(fsdp_comm_world(), "record");
    list_ranks(r);
    list_units(r);
    list_parameters(r);
    recorder_watch(r);
    fsdp_memory_override(former);
    *recorder = r;
    return FSDP_OK;
}

/* ---- steps ------------------------------------------------------------------- */

/* What the first recorded step begins with stands as the step before it. */
static void
write_initial(fsdp_trace_recorder_t *r, long step)
{
    trace_writer_t *writer = trace_writer_create(r->options.dir, step, r->rank,
                                                 r->data_parallel_rank);
    recorder_add_state(r, writer);
    r->status = trace_writer_finish(&writer);
}

void
fsdp_trace_recorder_begin_step(fsdp_trace_recorder_t *r, long step)
{
    r->now = step;
    if (step < r->options.first_step || step > r->options.last_step)
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    if (r->num_steps == 0)
        write_initial(r, step - 1);
    r->writer = trace_writer_create(r->options.dir, step, r->rank,
                                    r->data_parallel_rank);
    recorder_skip_ledger(r);
    fsdp_memory_override(former);
}

void
fsdp_trace_recorder_micro_batch(fsdp_trace_recorder_t *r, int j)
{
    const fsdp_trace_about_t *about = r->options.about;
    recorder_forget_calls(r);
    r->j = j;
    r->micro = fsdp_global_micro_batch(
        (fsdp_gradient_sync_t)about->gradient_sync, r->replicas, r->shards,
        about->micro_batches, r->data_parallel_rank, j);
}

fsdp_status_t
fsdp_trace_recorder_end_step(fsdp_trace_recorder_t *r)
{
    fsdp_status_t status = r->status;
    if (r->writer == NULL)
        return FSDP_OK;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    recorder_forget_calls(r);
    if (status == FSDP_OK)
        status = trace_writer_finish(&r->writer);
    else
        trace_writer_abandon(&r->writer);
    status = fsdp_comm_agree(r->comm, status);
    r->status = status;
    fsdp_memory_override(former);
    return status;
}

/* ---- the end ------------------------------------------------------------------- */

static void
fill_parameters(const fsdp_trace_recorder_t *r, fsdp_trace_parameter_t *list)
{
    for (int p = 0; p < r->num_params; p++) {
        const fsdp_parameter_t *parameter = r->param[p].parameter;
        list[p] = (fsdp_trace_parameter_t){
            .name = parameter->name,
            .unit = unit_name(fsdp_parameter_unit(parameter)),
            .dtype = parameter->dtype,
            .ndim = parameter->ndim,
            .weight_decay = NAN,
            .lr_factor = NAN};
        for (int d = 0; d < parameter->ndim; d++)
            list[p].shape[d] = r->param[p].shape[d];
    }
}

static fsdp_status_t
write_about(const fsdp_trace_recorder_t *r)
{
    fsdp_trace_about_t about = *r->options.about;
    fsdp_trace_parameter_t *parameters = fsdp_alloc(
        FSDP_MEM_BASELINE, (size_t)r->num_params * sizeof *parameters);
    int *ranks = fsdp_alloc(FSDP_MEM_BASELINE, (size_t)r->size * sizeof *ranks);
    for (int i = 0; i < r->size; i++)
        ranks[i] = i;
    fill_parameters(r, parameters);
    about.world_size = about.num_ranks = r->size;
    about.rank = ranks;
    about.num_steps = r->num_steps;
    about.step = r->step;
    about.num_parameters = r->num_params;
    about.parameter = parameters;
    about.num_units = r->num_ordered;
    about.unit = r->order;
    fsdp_json_writer_t *json = trace_about_write(&about);
    char *path = fsdp_format("%s/trace.json", r->options.dir);
    fsdp_status_t status = trace_write_text(path, json);
    fsdp_free(path);
    fsdp_json_writer_destroy(&json);
    fsdp_free(ranks);
    fsdp_free(parameters);
    return status;
}

fsdp_status_t
fsdp_trace_recorder_finish(fsdp_trace_recorder_t **recorder)
{
    fsdp_trace_recorder_t *r = *recorder;
    if (r == NULL)
        return FSDP_OK;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    fsdp_status_t status = FSDP_OK;
    if (r->rank == 0 && r->status == FSDP_OK && r->num_steps > 0)
        status = write_about(r);
    status = fsdp_comm_agree(r->comm, status);
    recorder_unwatch(r);
    recorder_forget_calls(r);
    trace_writer_abandon(&r->writer);
    fsdp_comm_destroy(&r->comm);
    fsdp_free(r->step);
    fsdp_free(r->order);
    fsdp_free(r->param);
    fsdp_free(r->unit);
    fsdp_free(r);
    fsdp_memory_override(former);
    *recorder = NULL;
    return status;
}
