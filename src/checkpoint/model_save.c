/* Writing parameters of a model to one file. */
#include "fsdp/model_file.h"

#include "checkpoint/model_file.h"
#include "fsdp/memory.h"
#include "fsdp/tensor.h"

/* Some parameters and what they become. */
typedef struct saving {
    fsdp_parameter_t *const *parameter;
    const fsdp_dtype_t *dtype; /* NULL: their own */
    size_t count;
    fsdp_comm_t *comm;
    fsdp_safetensors_writer_t *writer; /* NULL on ranks other than 0 */
} saving_t;

static fsdp_dtype_t
type_of(const saving_t *s, size_t i)
{
    return s->dtype != NULL ? s->dtype[i] : s->parameter[i]->dtype;
}

static fsdp_status_t
create_file(saving_t *s, const char *path, const char *const (*metadata)[2],
            size_t num_metadata)
{
    fsdp_safetensors_entry_t *entries =
        fsdp_calloc(FSDP_MEM_OTHER, s->count * sizeof *entries);
    for (size_t i = 0; i < s->count; i++) {
        const fsdp_parameter_t *p = s->parameter[i];
        entries[i].name = p->name;
        entries[i].dtype = type_of(s, i);
        entries[i].ndim = p->ndim;
        size_t shape[FSDP_MAX_DIMS];
        fsdp_parameter_whole_shape(p, shape);
        for (int d = 0; d < p->ndim; d++)
            entries[i].shape[d] = shape[d];
    }
    fsdp_status_t status = fsdp_safetensors_create(
        path, entries, s->count, metadata, num_metadata, &s->writer);
    fsdp_free(entries);
    return status;
}

/* Some elements at a time if they must be converted. */
static fsdp_status_t
append(fsdp_safetensors_writer_t *writer, fsdp_dtype_t from, const char *data,
       size_t numel, fsdp_dtype_t to)
{
    enum { CHUNK = 1 << 16 };
    fsdp_status_t status = FSDP_OK;
    if (from == to)
        return fsdp_safetensors_append(writer, data,
                                       numel * fsdp_dtype_size(to));
    void *piece = fsdp_alloc(FSDP_MEM_OTHER, CHUNK * fsdp_dtype_size(to));
    for (size_t at = 0; at < numel && status == FSDP_OK; at += CHUNK) {
        size_t n = numel - at < CHUNK ? numel - at : CHUNK;
        fsdp_convert(from, data + at * fsdp_dtype_size(from), to, piece, n);
        status =
            fsdp_safetensors_append(writer, piece, n * fsdp_dtype_size(to));
    }
    fsdp_free(piece);
    return status;
}

/* What is neither cut nor a part is whole on rank 0 already. */
static fsdp_status_t
save_parameter(const saving_t *s, size_t i)
{
    fsdp_parameter_t *parameter = s->parameter[i];
    fsdp_status_t status = FSDP_OK;
    fsdp_local_t local = fsdp_parameter_local(parameter);
    size_t numel = fsdp_layout_whole_numel(&local.layout);
    size_t bytes = numel * fsdp_dtype_size(parameter->dtype);
    bool scattered = local.comm != NULL || local.layout.num_parts > 1;
    void *whole = local.data;
    if (scattered) {
        whole = s->writer != NULL ? fsdp_alloc(FSDP_MEM_OTHER, bytes) : NULL;
        fsdp_parameter_gather(parameter, NULL, s->comm, 0, whole);
    }
    if (s->writer != NULL)
        status =
            append(s->writer, parameter->dtype, whole, numel, type_of(s, i));
    if (scattered)
        fsdp_free(whole);
    return status;
}

/* After each parameter all ranks hear whether it could be written, so that a
 * full disk ends the saving at once and on all of them. */
static fsdp_status_t
save_parameters(const saving_t *s)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < s->count && status == FSDP_OK; i++)
        status = fsdp_agree_if_several(s->comm, save_parameter(s, i));
    return status;
}

fsdp_status_t
fsdp_model_write_file(fsdp_parameter_t *const *parameters,
                      const fsdp_dtype_t *dtypes, size_t count,
                      fsdp_comm_t *comm, const char *path,
                      const char *const (*metadata)[2], size_t num_metadata)
{
    bool writes = comm == NULL || fsdp_comm_rank(comm) == 0;
    saving_t s = {
        .parameter = parameters, .dtype = dtypes, .count = count, .comm = comm};
    fsdp_status_t status = FSDP_OK;

    if (writes)
        status = create_file(&s, path, metadata, num_metadata);
    status = fsdp_agree_if_several(comm, status);
    if (status == FSDP_OK)
        status = save_parameters(&s);
    if (status == FSDP_OK)
        return fsdp_agree_if_several(
            comm, writes ? fsdp_safetensors_commit(&s.writer) : FSDP_OK);
    if (s.writer != NULL)
        fsdp_safetensors_abandon(&s.writer);
    return status;
}

fsdp_status_t
fsdp_model_save(fsdp_module_t *model, fsdp_comm_t *comm, const char *path,
                const char *const (*metadata)[2], size_t num_metadata)
{
    fsdp_parameter_list_t list = fsdp_parameter_list_of(model);
    fsdp_status_t status = fsdp_model_write_file(
        list.parameter, NULL, list.count, comm, path, metadata, num_metadata);
    fsdp_free(list.parameter);
    return status;
}
