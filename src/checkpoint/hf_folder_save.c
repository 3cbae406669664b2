/* A model's folder is written: tensors, index and texts. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/model_file.h"
#include "fsdp/memory.h"

/* Larger than any that is not made to do harm. */
enum { MAX_TEXT = 1 << 29 };

/* ---- text files ---------------------------------------------------------- */

static fsdp_status_t
write_text(const char *folder, const char *name, const char *text,
           size_t length)
{
    char *path = fsdp_weights_path(folder, name);
    fsdp_status_t status = fsdp_file_replace(path, text, length);
    fsdp_free(path);
    return status;
}

static fsdp_status_t
copy_text(const char *from, const char *folder, const char *name)
{
    char *path = fsdp_weights_is_folder(from) ? fsdp_weights_path(from, name)
                                              : fsdp_strdup(from);
    char *text = NULL;
    size_t length;
    fsdp_status_t status = FSDP_OK;
    if (access(path, F_OK) == 0)
        status = fsdp_file_read(path, MAX_TEXT, &text, &length);
    if (text != NULL && status == FSDP_OK)
        status = write_text(folder, name, text, length);
    fsdp_free(text);
    fsdp_free(path);
    return status;
}

static fsdp_status_t
write_config(const char *folder, const fsdp_hf_config_t *config)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_hf_config_write(config, json);
    fsdp_status_t status =
        write_text(folder, FSDP_HF_CONFIG_FILE, fsdp_json_writer_text(json),
                   fsdp_json_writer_length(json));
    fsdp_json_writer_destroy(&json);
    return status;
}

/* The model's own config.json, with all that is not known here, unless the type
 * that it names has changed. */
static fsdp_status_t
write_texts(const char *folder, const fsdp_hf_saving_t *s)
{
    static const char *const copied[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "generation_config.json"};
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        bool other = i == 0 && s->tokenizer != NULL;
        if ((other || s->from != NULL) && status == FSDP_OK)
            status =
                copy_text(other ? s->tokenizer : s->from, folder, copied[i]);
    }
    if (status != FSDP_OK)
        return status;
    return s->from != NULL && s->dtype == FSDP_DTYPE_NONE
               ? copy_text(s->from, folder, FSDP_HF_CONFIG_FILE)
               : write_config(folder, s->config);
}

/* ---- tensors ------------------------------------------------------------- */

static fsdp_dtype_t
type_of(const fsdp_hf_saving_t *s, const fsdp_parameter_t *parameter)
{
    bool twice;
    if (s->dtype != FSDP_DTYPE_NONE)
        return s->dtype;
    if (s->like == NULL)
        return parameter->dtype;
    fsdp_stored_t stored =
        fsdp_weights_find_bare(s->like, parameter->name, &twice);
    return stored.entry != NULL ? stored.entry->dtype : parameter->dtype;
}

/* How the parameters are dealt out: file f has those from first[f] on. */
typedef struct deal {
    fsdp_parameter_list_t list;
    fsdp_dtype_t *dtype; /* [list.count] */
    uint64_t *bytes;     /* [list.count] */
    size_t *first;       /* [files + 1] */
    size_t files;
} deal_t;

static uint64_t
whole_numel(const fsdp_parameter_t *parameter)
{
    size_t shape[FSDP_MAX_DIMS];
    uint64_t numel = 1;
    fsdp_parameter_whole_shape(parameter, shape);
    for (int d = 0; d < parameter->ndim; d++)
        numel *= shape[d];
    return numel;
}

static deal_t
deal_out(fsdp_module_t *model, const fsdp_hf_saving_t *s)
{
    deal_t d = {.list = fsdp_parameter_list_of(model)};
    size_t count = d.list.count;
    uint64_t full = 0;
    d.dtype = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *d.dtype);
    d.bytes = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *d.bytes);
    d.first = fsdp_alloc(FSDP_MEM_OTHER, (count + 1) * sizeof *d.first);
    for (size_t i = 0; i < count; i++) {
        d.dtype[i] = type_of(s, d.list.parameter[i]);
        d.bytes[i] =
            whole_numel(d.list.parameter[i]) * fsdp_dtype_size(d.dtype[i]);
        if (i == 0 || full + d.bytes[i] > s->max_shard_size) {
            d.first[d.files++] = i;
            full = 0;
        }
        full += d.bytes[i];
    }
    d.first[d.files] = count;
    return d;
}

static void
deal_free(deal_t *d)
{
    fsdp_free(d->first);
    fsdp_free(d->bytes);
    fsdp_free(d->dtype);
    fsdp_free(d->list.parameter);
}

static char *
name_of_file(const deal_t *d, size_t f)
{
    return d->files == 1 ? fsdp_strdup(FSDP_WEIGHTS_FILE)
                         : fsdp_format("model-%05zu-of-%05zu.safetensors",
                                       f + 1, d->files);
}

static fsdp_status_t
write_index(const char *folder, const deal_t *d)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    uint64_t total = 0;
    for (size_t i = 0; i < d->list.count; i++)
        total += d->bytes[i];
    fsdp_json_open_object(json);
    fsdp_json_key(json, "metadata");
    fsdp_json_open_object(json);
    fsdp_json_key(json, "total_size");
    fsdp_json_integer(json, (int64_t)total);
    fsdp_json_close_object(json);
    fsdp_json_key(json, "weight_map");
    fsdp_json_open_object(json);
    for (size_t f = 0; f < d->files; f++) {
        char *name = name_of_file(d, f);
        for (size_t i = d->first[f]; i < d->first[f + 1]; i++) {
            fsdp_json_key(json, d->list.parameter[i]->name);
            fsdp_json_string(json, name);
        }
        fsdp_free(name);
    }
    fsdp_json_close_object(json);
    fsdp_json_close_object(json);
    fsdp_status_t status =
        write_text(folder, FSDP_WEIGHTS_INDEX, fsdp_json_writer_text(json),
                   fsdp_json_writer_length(json));
    fsdp_json_writer_destroy(&json);
    return status;
}

static fsdp_status_t
write_tensors(const char *folder, const deal_t *d, fsdp_comm_t *comm,
              const fsdp_hf_saving_t *s)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t f = 0; f < d->files && status == FSDP_OK; f++) {
        size_t first = d->first[f], count = d->first[f + 1] - first;
        char *name = name_of_file(d, f);
        char *path = fsdp_weights_path(folder, name);
        status = fsdp_model_write_file(d->list.parameter + first,
                                       d->dtype + first, count, comm, path,
                                       s->metadata, s->num_metadata);
        fsdp_free(path);
        fsdp_free(name);
    }
    return status;
}

/* ---- all of it ----------------------------------------------------------- */

static fsdp_status_t
make_folder(const char *folder)
{
    if (mkdir(folder, 0777) == 0 || fsdp_weights_is_folder(folder))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_IO, "%s cannot be made: %s", folder,
                      strerror(errno));
}

fsdp_status_t
fsdp_hf_folder_save(fsdp_module_t *model, fsdp_comm_t *comm, const char *folder,
                    const fsdp_hf_saving_t *saving)
{
    bool writes = comm == NULL || fsdp_comm_rank(comm) == 0;
    fsdp_status_t status =
        fsdp_agree_if_several(comm, writes ? make_folder(folder) : FSDP_OK);
    if (status != FSDP_OK)
        return status;
    deal_t deal = deal_out(model, saving);
    status = write_tensors(folder, &deal, comm, saving);
    if (status == FSDP_OK && writes && deal.files > 1)
        status = write_index(folder, &deal);
    if (status == FSDP_OK && writes)
        status = write_texts(folder, saving);
    deal_free(&deal);
    return fsdp_agree_if_several(comm, status);
}
