/* Writing all parameters of a model to one file. */
#include "fsdp/model_file.h"

#include "checkpoint/model_file.h"
#include "fsdp/memory.h"

static fsdp_status_t
create_file(const char *path, const fsdp_parameter_list_t *list,
            const char *const (*metadata)[2], size_t num_metadata,
            fsdp_safetensors_writer_t **writer)
{
    fsdp_safetensors_entry_t *entries =
        fsdp_calloc(FSDP_MEM_OTHER, list->count * sizeof *entries);
    for (size_t i = 0; i < list->count; i++) {
        const fsdp_parameter_t *p = list->parameter[i];
        entries[i].name = p->name;
        entries[i].dtype = p->dtype;
        entries[i].ndim = p->ndim;
        size_t shape[FSDP_MAX_DIMS];
        fsdp_parameter_whole_shape(p, shape);
        for (int d = 0; d < p->ndim; d++)
            entries[i].shape[d] = shape[d];
    }
    fsdp_status_t status = fsdp_safetensors_create(
        path, entries, list->count, metadata, num_metadata, writer);
    fsdp_free(entries);
    return status;
}

/* What is neither cut nor a part is whole on rank 0 already.  `writer` is NULL
 * on the other ranks. */
static fsdp_status_t
save_parameter(fsdp_parameter_t *parameter, fsdp_comm_t *comm,
               fsdp_safetensors_writer_t *writer)
{
    fsdp_status_t status = FSDP_OK;
    fsdp_local_t local = fsdp_parameter_local(parameter);
    size_t bytes = fsdp_layout_whole_numel(&local.layout) *
                   fsdp_dtype_size(parameter->dtype);
    bool scattered = local.comm != NULL || local.layout.num_parts > 1;
    void *whole = local.data;
    if (scattered) {
        whole = writer != NULL ? fsdp_alloc(FSDP_MEM_OTHER, bytes) : NULL;
        fsdp_parameter_gather(parameter, NULL, comm, 0, whole);
    }
    if (writer != NULL)
        status = fsdp_safetensors_append(writer, whole, bytes);
    if (scattered)
        fsdp_free(whole);
    return status;
}

/* After each parameter all ranks hear whether it could be written, so that a
 * full disk ends the saving at once and on all of them. */
static fsdp_status_t
save_parameters(const fsdp_parameter_list_t *list, fsdp_comm_t *comm,
                fsdp_safetensors_writer_t *writer)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < list->count && status == FSDP_OK; i++)
        status = fsdp_agree_if_several(
            comm, save_parameter(list->parameter[i], comm, writer));
    return status;
}

fsdp_status_t
fsdp_model_save(fsdp_module_t *model, fsdp_comm_t *comm, const char *path,
                const char *const (*metadata)[2], size_t num_metadata)
{
    bool writes = comm == NULL || fsdp_comm_rank(comm) == 0;
    fsdp_safetensors_writer_t *writer = NULL;
    fsdp_status_t status = FSDP_OK;
    fsdp_parameter_list_t list = fsdp_parameter_list_of(model);

    if (writes)
        status = create_file(path, &list, metadata, num_metadata, &writer);
    status = fsdp_agree_if_several(comm, status);
    if (status == FSDP_OK)
        status = save_parameters(&list, comm, writer);
    if (status == FSDP_OK)
        status = fsdp_agree_if_several(
            comm, writes ? fsdp_safetensors_commit(&writer) : FSDP_OK);
    else if (writer != NULL)
        fsdp_safetensors_abandon(&writer);
    fsdp_free(list.parameter);
    return status;
}
