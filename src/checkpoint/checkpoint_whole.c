/* What can be done with a checkpoint without a model. */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "fsdp/memory.h"

/* ---- one parameter ------------------------------------------------------- */

static const fsdp_index_parameter_t *
find(const fsdp_checkpoint_t *c, const char *name)
{
    for (size_t i = 0; i < c->index.num_parameters; i++)
        if (strcmp(c->index.parameter[i].name, name) == 0)
            return &c->index.parameter[i];
    return NULL;
}

/* Which thing of it that is; -1: there is none. */
static int
find_state(const fsdp_checkpoint_t *c, const fsdp_index_parameter_t *p,
           const char *state)
{
    if (state == NULL)
        return 0;
    for (int k = 0; k < FSDP_INDEX_MAX_STATES && c->index.state[k] != NULL; k++)
        if (p->optimizer_step > 0 && strcmp(c->index.state[k], state) == 0)
            return k + 1;
    return -1;
}

fsdp_status_t
fsdp_checkpoint_read(const fsdp_checkpoint_t *checkpoint, const char *name,
                     const char *state, fsdp_dtype_t dtype, size_t numel,
                     void *out)
{
    const fsdp_index_parameter_t *p = find(checkpoint, name);
    int k = p != NULL ? find_state(checkpoint, p, state) : -1;
    if (k < 0 || p->dtype != dtype || p->numel != numel)
        return fsdp_error(
            FSDP_ERR_INPUT, "%s: there is no %s%s%s of %zu elements of type %s",
            checkpoint->path, state != NULL ? state : "",
            state != NULL ? " of " : "", name, numel, fsdp_dtype_name(dtype));
    checkpoint_map_t map = checkpoint_map_of(checkpoint, p);
    char *tensor = checkpoint_tensor_name(checkpoint, p, k);
    fsdp_status_t status = checkpoint_read(&map, tensor, 0, numel, out);
    fsdp_free(tensor);
    checkpoint_map_free(&map);
    return status;
}

long
fsdp_checkpoint_updates(const fsdp_checkpoint_t *checkpoint, const char *name)
{
    const fsdp_index_parameter_t *p = find(checkpoint, name);
    return p != NULL ? p->optimizer_step : 0;
}

/* ---- all of them --------------------------------------------------------- */

enum { CHUNK = 1 << 18 }; /* elements at a time */

static fsdp_status_t
create(const fsdp_index_t *index, const char *path,
       const char *const (*metadata)[2], size_t num_metadata,
       fsdp_safetensors_writer_t **writer)
{
    size_t n = index->num_parameters;
    fsdp_safetensors_entry_t *entries =
        fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *entries);
    for (size_t i = 0; i < n; i++) {
        entries[i].name = index->parameter[i].name;
        entries[i].dtype = index->parameter[i].dtype;
        entries[i].ndim = index->parameter[i].ndim;
        for (int d = 0; d < entries[i].ndim; d++)
            entries[i].shape[d] = index->parameter[i].shape[d];
    }
    fsdp_status_t status = fsdp_safetensors_create(path, entries, n, metadata,
                                                   num_metadata, writer);
    fsdp_free(entries);
    return status;
}

static fsdp_status_t
append_parameter(const fsdp_checkpoint_t *c, const fsdp_index_parameter_t *p,
                 fsdp_safetensors_writer_t *writer)
{
    size_t size = fsdp_dtype_size(p->dtype);
    checkpoint_map_t map = checkpoint_map_of(c, p);
    char *name = checkpoint_tensor_name(c, p, 0);
    void *piece = fsdp_alloc(FSDP_MEM_OTHER, CHUNK * size);
    fsdp_status_t status = FSDP_OK;
    for (uint64_t at = 0; at < p->numel && status == FSDP_OK; at += CHUNK) {
        uint64_t n = p->numel - at < CHUNK ? p->numel - at : CHUNK;
        status = checkpoint_read(&map, name, at, n, piece);
        if (status == FSDP_OK)
            status = fsdp_safetensors_append(writer, piece, n * size);
    }
    fsdp_free(piece);
    fsdp_free(name);
    checkpoint_map_free(&map);
    return status;
}

fsdp_status_t
fsdp_checkpoint_consolidate(const fsdp_checkpoint_t *checkpoint,
                            const char *path, const char *const (*metadata)[2],
                            size_t num_metadata)
{
    const fsdp_index_t *index = &checkpoint->index;
    fsdp_safetensors_writer_t *writer = NULL;
    fsdp_status_t status = create(index, path, metadata, num_metadata, &writer);
    for (size_t i = 0; i < index->num_parameters && status == FSDP_OK; i++)
        status = append_parameter(checkpoint, &index->parameter[i], writer);
    if (status == FSDP_OK)
        return fsdp_safetensors_commit(&writer);
    if (writer != NULL)
        fsdp_safetensors_abandon(&writer);
    return status;
}

/* ---- printing ------------------------------------------------------------ */

static void
print_parameter(const fsdp_index_t *index, const fsdp_index_parameter_t *p,
                FILE *out)
{
    fprintf(out, "%s  %s [", p->name, fsdp_dtype_name(p->dtype));
    for (int d = 0; d < p->ndim; d++)
        fprintf(out, "%s%ju", d > 0 ? ", " : "", (uintmax_t)p->shape[d]);
    fprintf(out, "]  %ld optimizer step%s\n", p->optimizer_step,
            p->optimizer_step == 1 ? "" : "s");
    for (size_t i = 0; i < p->num_pieces; i++) {
        const fsdp_index_piece_t *piece = &p->piece[i];
        const fsdp_index_run_t *run = piece->run;
        fprintf(out, "    %s: %ju elements", index->file[piece->file].name,
                (uintmax_t)piece->numel);
        if (piece->num_runs == 1 && run->repeat == 1)
            fprintf(out, ", from %ju", (uintmax_t)run->begin);
        else if (piece->num_runs == 1)
            fprintf(out, ", %ju times %ju, from %ju every %ju",
                    (uintmax_t)run->repeat, (uintmax_t)run->count,
                    (uintmax_t)run->begin, (uintmax_t)run->stride);
        else
            fprintf(out, ", in %zu kinds of runs", piece->num_runs);
        fputc('\n', out);
    }
}

void
fsdp_checkpoint_print(const fsdp_checkpoint_t *checkpoint, FILE *out)
{
    const fsdp_index_t *index = &checkpoint->index;
    uint64_t bytes = 0;
    for (size_t i = 0; i < index->num_files; i++)
        bytes += index->file[i].bytes;
    fprintf(out, "%s: step %ld, %d rank%s, %zu parameters, %ju bytes\n",
            checkpoint->path, index->step, index->world_size,
            index->world_size == 1 ? "" : "s", index->num_parameters,
            (uintmax_t)bytes);
    fputs("optimizer states:", out);
    for (int k = 0; k < FSDP_INDEX_MAX_STATES && index->state[k] != NULL; k++)
        fprintf(out, " %s", index->state[k]);
    fputs(index->state[0] == NULL ? " none\n" : "\n", out);
    for (fsdp_json_iter_t i =
             fsdp_json_first(fsdp_json_member(index->document, "metadata"));
         i.key != NULL; fsdp_json_next(&i))
        fprintf(out, "%s: %s\n", i.key,
                fsdp_json_get_string(i.value) != NULL
                    ? fsdp_json_get_string(i.value)
                    : "?");
    for (size_t i = 0; i < index->num_parameters; i++)
        print_parameter(index, &index->parameter[i], out);
}
