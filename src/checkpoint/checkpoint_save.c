/* Writing a checkpoint: each rank its own elements, rank 0 the index. */
#include <string.h>

#include "base/whole_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/index.h"
#include "checkpoint/model_file.h"
#include "fsdp/checkpoint.h"
#include "fsdp/safetensors.h"

/* What one rank needs while it saves. */
typedef struct saving {
    fsdp_parameter_list_t list;
    fsdp_local_t *local; /* [list.count], owned */
    fsdp_optimizer_t *optimizer;
    fsdp_comm_t *comm;
    int rank, size;
    char *folder; /* being written, owned */
} saving_t;

static char *
file_name(int rank)
{
    return fsdp_format("rank-%05d.safetensors", rank);
}

/* ---- this rank's file ---------------------------------------------------- */

/* Replicas are written by one rank; empty parts by none. */
static bool
is_ours(const saving_t *s, size_t i)
{
    const fsdp_local_t *local = &s->local[i];
    if (local->comm == NULL && local->layout.num_parts == 1)
        return s->rank == 0;
    return local->layout.primary && local->numel > 0;
}

static const char *
state_name(const saving_t *s, int k)
{
    return s->optimizer != NULL ? fsdp_optimizer_state_name(s->optimizer, k)
                                : NULL;
}

/* The k-th thing of a parameter: its data, then its states; NULL past the
 * last.  `name` is the caller's. */
static const void *
thing(const saving_t *s, size_t i, int k, char **name)
{
    const char *parameter = s->list.parameter[i]->name;
    if (k == 0) {
        *name = fsdp_format("model.%s", parameter);
        return s->local[i].data;
    }
    *name = NULL;
    if (state_name(s, k - 1) == NULL)
        return NULL;
    const void *state =
        fsdp_optimizer_state(s->optimizer, s->list.parameter[i], k - 1);
    if (state != NULL)
        *name = fsdp_format("optimizer.%s.%s", state_name(s, k - 1), parameter);
    return state;
}

static size_t
list_entries(const saving_t *s, fsdp_safetensors_entry_t *entries,
             const void **data)
{
    size_t count = 0;
    for (size_t i = 0; i < s->list.count; i++)
        for (int k = 0; is_ours(s, i) && k <= FSDP_INDEX_MAX_STATES; k++) {
            fsdp_safetensors_entry_t *entry = &entries[count];
            data[count] = thing(s, i, k, &entry->name);
            if (data[count] == NULL)
                break;
            entry->dtype = s->list.parameter[i]->dtype;
            entry->ndim = 1;
            entry->shape[0] = s->local[i].numel;
            count++;
        }
    return count;
}

static fsdp_status_t
write_entries(const char *path, const fsdp_safetensors_entry_t *entries,
              const void *const *data, size_t count)
{
    fsdp_safetensors_writer_t *writer = NULL;
    fsdp_status_t status =
        fsdp_safetensors_create(path, entries, count, NULL, 0, &writer);
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        status = fsdp_safetensors_append(writer, data[i],
                                         entries[i].shape[0] *
                                             fsdp_dtype_size(entries[i].dtype));
    if (status == FSDP_OK)
        return fsdp_safetensors_commit(&writer);
    if (writer != NULL)
        fsdp_safetensors_abandon(&writer);
    return status;
}

static fsdp_status_t
write_file(const saving_t *s, uint64_t *bytes, uint64_t *checksum)
{
    size_t most = s->list.count * (1 + FSDP_INDEX_MAX_STATES);
    fsdp_safetensors_entry_t *entries =
        fsdp_calloc(FSDP_MEM_OTHER, most * sizeof *entries);
    const void **data = fsdp_calloc(FSDP_MEM_OTHER, most * sizeof *data);
    char *name = file_name(s->rank);
    char *path = fsdp_format("%s/%s", s->folder, name);
    size_t count = list_entries(s, entries, data);
    fsdp_status_t status = write_entries(path, entries, data, count);
    if (status == FSDP_OK)
        status = fsdp_file_checksum(path, bytes, checksum);
    for (size_t i = 0; i < count; i++)
        fsdp_free(entries[i].name);
    fsdp_free(entries);
    fsdp_free(data);
    fsdp_free(path);
    fsdp_free(name);
    return status;
}

/* ---- the index ----------------------------------------------------------- */

/* What each rank tells rank 0 of its file and of each of its parameters. */
typedef struct told {
    uint64_t bytes, checksum;
} told_t;

typedef struct told_parameter {
    fsdp_layout_t layout;
    int64_t ours;
} told_parameter_t;

static void
fill_parameter(const saving_t *s, size_t i, const told_parameter_t *all,
               fsdp_index_parameter_t *out)
{
    const fsdp_parameter_t *p = s->list.parameter[i];
    size_t shape[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(p, shape);
    out->name = fsdp_strdup(p->name);
    out->dtype = p->dtype;
    out->ndim = p->ndim;
    for (int d = 0; d < p->ndim; d++)
        out->shape[d] = shape[d];
    if (s->optimizer != NULL)
        out->optimizer_step = fsdp_optimizer_steps_of(s->optimizer, p);
    out->piece =
        fsdp_calloc(FSDP_MEM_OTHER, (size_t)s->size * sizeof *out->piece);
    for (int r = 0; r < s->size; r++) {
        const told_parameter_t *told = &all[(size_t)r * s->list.count + i];
        if (told->ours)
            out->piece[out->num_pieces++] =
                fsdp_index_piece_of(&told->layout, r);
    }
}

static fsdp_status_t
write_index(const saving_t *s, long step, const told_t *files,
            const told_parameter_t *all, const char *const (*metadata)[2],
            size_t num_metadata)
{
    size_t world = (size_t)s->size;
    fsdp_index_t index = {.step = step, .world_size = s->size};
    for (int k = 0; k < FSDP_INDEX_MAX_STATES && state_name(s, k) != NULL; k++)
        index.state[k] = fsdp_strdup(state_name(s, k));
    index.file = fsdp_calloc(FSDP_MEM_OTHER, world * sizeof *index.file);
    index.num_files = world;
    for (size_t r = 0; r < world; r++)
        index.file[r] = (fsdp_index_file_t){file_name((int)r), files[r].bytes,
                                            files[r].checksum};
    index.parameter =
        fsdp_calloc(FSDP_MEM_OTHER, s->list.count * sizeof *index.parameter);
    index.num_parameters = s->list.count;
    for (size_t i = 0; i < s->list.count; i++)
        fill_parameter(s, i, all, &index.parameter[i]);

    fsdp_json_writer_t *w = fsdp_index_write(&index, metadata, num_metadata);
    char *path = fsdp_format("%s/index.json", s->folder);
    fsdp_status_t status = fsdp_file_write(path, fsdp_json_writer_text(w),
                                           fsdp_json_writer_length(w));
    fsdp_free(path);
    fsdp_json_writer_destroy(&w);
    fsdp_index_free(&index);
    return status;
}

/* All tell rank 0, which writes. */
static fsdp_status_t
gather_index(const saving_t *s, long step, told_t mine,
             const char *const (*metadata)[2], size_t num_metadata)
{
    size_t n = s->list.count, world = s->rank == 0 ? (size_t)s->size : 0;
    told_parameter_t *own = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *own);
    told_parameter_t *all = fsdp_alloc(FSDP_MEM_OTHER, world * n * sizeof *all);
    told_t *files = fsdp_alloc(FSDP_MEM_OTHER, world * sizeof *files);
    for (size_t i = 0; i < n; i++) {
        own[i].layout = s->local[i].layout;
        own[i].ours = is_ours(s, i);
    }
    fsdp_gather(s->comm, "checkpoint", FSDP_UINT8, own, all, n * sizeof *own,
                0);
    fsdp_gather(s->comm, "checkpoint", FSDP_UINT8, &mine, files, sizeof mine,
                0);
    fsdp_status_t status = FSDP_OK;
    if (s->rank == 0)
        status = write_index(s, step, files, all, metadata, num_metadata);
    fsdp_free(own);
    fsdp_free(all);
    fsdp_free(files);
    return fsdp_comm_agree(s->comm, status);
}

/* ---- the whole ----------------------------------------------------------- */

/* Rank 0 makes the folder, and all see it. */
static fsdp_status_t
begin(saving_t *s, const char *dir, long step)
{
    fsdp_status_t status = FSDP_OK;
    if (s->rank == 0) {
        fsdp_folder_sweep(dir);
        status = fsdp_folder_begin(dir, step, &s->folder);
    }
    status = fsdp_comm_agree(s->comm, status);
    if (s->rank != 0)
        s->folder = fsdp_format("%s/.partial-step-%08ld", dir, step);
    return status;
}

static saving_t
open_saving(fsdp_module_t *model, fsdp_optimizer_t *optimizer,
            fsdp_comm_t *comm)
{
    saving_t s = {.list = fsdp_parameter_list_of(model),
                  .optimizer = optimizer,
                  .comm = comm,
                  .rank = fsdp_comm_rank(comm),
                  .size = fsdp_comm_size(comm)};
    s.local = fsdp_alloc(FSDP_MEM_OTHER, s.list.count * sizeof *s.local);
    for (size_t i = 0; i < s.list.count; i++)
        s.local[i] = fsdp_parameter_local(s.list.parameter[i]);
    return s;
}

fsdp_status_t
fsdp_checkpoint_save(const char *dir, long step, fsdp_module_t *model,
                     fsdp_optimizer_t *optimizer, fsdp_comm_t *comm,
                     const char *const (*metadata)[2], size_t num_metadata,
                     int keep)
{
    saving_t s = open_saving(model, optimizer, comm);
    told_t mine = {0};
    fsdp_status_t status = begin(&s, dir, step);
    bool begun = status == FSDP_OK;
    if (status == FSDP_OK)
        status =
            fsdp_comm_agree(comm, write_file(&s, &mine.bytes, &mine.checksum));
    if (status == FSDP_OK)
        status = gather_index(&s, step, mine, metadata, num_metadata);
    if (status == FSDP_OK)
        status = fsdp_comm_agree(
            comm, s.rank == 0 ? fsdp_folder_commit(dir, step) : FSDP_OK);
    if (status != FSDP_OK && begun && s.rank == 0)
        fsdp_folder_abandon(dir, step);
    if (status == FSDP_OK && s.rank == 0)
        fsdp_folder_keep(dir, keep);
    fsdp_free(s.folder);
    fsdp_free(s.local);
    fsdp_free(s.list.parameter);
    return status;
}
