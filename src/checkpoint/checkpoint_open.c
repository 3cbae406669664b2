/* Opening a checkpoint: which one, and is it sound? */
#include <string.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "fsdp/memory.h"

enum { MAX_INDEX = 1 << 30 };

/* ---- which one ----------------------------------------------------------- */

static bool
has_index(const char *folder)
{
    char *path = fsdp_format("%s/index.json", folder);
    bool there = access(path, F_OK) == 0;
    fsdp_free(path);
    return there;
}

bool
fsdp_checkpoint_exists(const char *path)
{
    return has_index(path) || fsdp_folder_newest(path) >= 0;
}

/* Rank 0 looks, so that all open the same one. */
static char *
find_folder(const char *path, fsdp_comm_t *comm)
{
    int64_t step = -2; /* it is one itself */
    if (fsdp_comm_rank(comm) == 0 && !has_index(path))
        step = fsdp_folder_newest(path);
    fsdp_broadcast(comm, "checkpoint", FSDP_INT64, &step, 1, 0);
    if (step == -2)
        return fsdp_strdup(path);
    if (step >= 0)
        return fsdp_folder_of_step(path, (long)step);
    fsdp_error(FSDP_ERR_IO,
               "%s: no checkpoint is here; give the folder of one, or start "
               "without resuming",
               path);
    return NULL;
}

/* ---- is it sound? -------------------------------------------------------- */

static fsdp_status_t
read_index(fsdp_checkpoint_t *c)
{
    char *text, *path = fsdp_format("%s/index.json", c->path);
    size_t length;
    fsdp_status_t status = fsdp_file_read(path, MAX_INDEX, &text, &length);
    if (status == FSDP_OK)
        status = fsdp_index_read(path, text, length, &c->index);
    fsdp_free(text);
    fsdp_free(path);
    return status;
}

static fsdp_status_t
check_file(const char *path, const fsdp_index_file_t *file)
{
    uint64_t bytes, checksum;
    fsdp_status_t status = fsdp_file_checksum(path, &bytes, &checksum);
    if (status != FSDP_OK)
        return status;
    if (bytes != file->bytes)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s has %ju bytes, the checkpoint's index says %ju; "
                          "use another checkpoint",
                          path, (uintmax_t)bytes, (uintmax_t)file->bytes);
    if (checksum != file->checksum)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s has the checksum %016jx, the checkpoint's index "
                          "says %016jx: it was damaged; use another checkpoint",
                          path, (uintmax_t)checksum, (uintmax_t)file->checksum);
    return FSDP_OK;
}

/* The files are dealt out over the ranks. */
static fsdp_status_t
check_files(const fsdp_checkpoint_t *c)
{
    fsdp_status_t status = FSDP_OK;
    size_t rank = (size_t)fsdp_comm_rank(c->comm);
    size_t size = (size_t)fsdp_comm_size(c->comm);
    for (size_t i = rank; i < c->index.num_files && status == FSDP_OK;
         i += size) {
        const fsdp_index_file_t *file = &c->index.file[i];
        char *path = fsdp_format("%s/%s", c->path, file->name);
        status = check_file(path, file);
        fsdp_free(path);
    }
    return fsdp_comm_agree(c->comm, status);
}

static fsdp_status_t
open_files(fsdp_checkpoint_t *c)
{
    fsdp_status_t status = FSDP_OK;
    c->file = fsdp_calloc(FSDP_MEM_OTHER, c->index.num_files * sizeof *c->file);
    for (size_t i = 0; i < c->index.num_files && status == FSDP_OK; i++) {
        char *path = fsdp_format("%s/%s", c->path, c->index.file[i].name);
        status = fsdp_safetensors_open(path, &c->file[i]);
        fsdp_free(path);
    }
    return status;
}

/* The tensor of a piece: there, of the right type, as long as the piece. */
static fsdp_status_t
check_tensor(const fsdp_checkpoint_t *c, const fsdp_index_parameter_t *p,
             const fsdp_index_piece_t *piece, const char *name)
{
    const fsdp_safetensors_entry_t *entry =
        fsdp_safetensors_find(c->file[piece->file], name);
    if (entry != NULL && entry->dtype == p->dtype &&
        entry->numel == piece->numel)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s/%s: tensor %s is missing, or has not the type and "
                      "the %ju elements of the index; use another checkpoint",
                      c->path, c->index.file[piece->file].name, name,
                      (uintmax_t)piece->numel);
}

static fsdp_status_t
check_parameter(const fsdp_checkpoint_t *c, const fsdp_index_parameter_t *p)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < p->num_pieces && status == FSDP_OK; i++)
        for (int k = 0; k <= FSDP_INDEX_MAX_STATES && status == FSDP_OK; k++) {
            char *name = checkpoint_tensor_name(c, p, k);
            if (name == NULL)
                break;
            status = check_tensor(c, p, &p->piece[i], name);
            fsdp_free(name);
        }
    return status;
}

static fsdp_status_t
check_contents(const fsdp_checkpoint_t *c)
{
    fsdp_status_t status = fsdp_index_check_cover(c->path, &c->index);
    for (size_t i = 0; i < c->index.num_parameters && status == FSDP_OK; i++)
        status = check_parameter(c, &c->index.parameter[i]);
    return status;
}

char *
checkpoint_tensor_name(const fsdp_checkpoint_t *c,
                       const fsdp_index_parameter_t *p, int k)
{
    if (k == 0)
        return fsdp_format("model.%s", p->name);
    if (k > FSDP_INDEX_MAX_STATES || p->optimizer_step == 0 ||
        c->index.state[k - 1] == NULL)
        return NULL;
    return fsdp_format("optimizer.%s.%s", c->index.state[k - 1], p->name);
}

/* ---- the whole ----------------------------------------------------------- */

fsdp_status_t
fsdp_checkpoint_open(const char *path, fsdp_comm_t *comm,
                     fsdp_checkpoint_t **checkpoint)
{
    fsdp_checkpoint_t *c = fsdp_calloc(FSDP_MEM_OTHER, sizeof *c);
    fsdp_status_t status = FSDP_ERR_IO;
    c->comm = comm;
    c->path = find_folder(path, comm);
    if (c->path != NULL)
        status = fsdp_comm_agree(comm, read_index(c));
    if (status == FSDP_OK)
        status = check_files(c);
    if (status == FSDP_OK)
        status = open_files(c);
    if (status == FSDP_OK)
        status = check_contents(c);
    status = fsdp_comm_agree(comm, status);
    *checkpoint = c;
    if (status != FSDP_OK)
        fsdp_checkpoint_close(checkpoint);
    return status;
}

void
fsdp_checkpoint_close(fsdp_checkpoint_t **checkpoint)
{
    fsdp_checkpoint_t *c = *checkpoint;
    if (c == NULL)
        return;
    for (size_t i = 0; c->file != NULL && i < c->index.num_files; i++)
        if (c->file[i] != NULL)
            fsdp_safetensors_close(&c->file[i]);
    fsdp_free(c->file);
    fsdp_index_free(&c->index);
    fsdp_free(c->path);
    fsdp_free(c);
    *checkpoint = NULL;
}

const char *
fsdp_checkpoint_path(const fsdp_checkpoint_t *checkpoint)
{
    return checkpoint->path;
}

long
fsdp_checkpoint_step(const fsdp_checkpoint_t *checkpoint)
{
    return checkpoint->index.step;
}

int
fsdp_checkpoint_world_size(const fsdp_checkpoint_t *checkpoint)
{
    return checkpoint->index.world_size;
}

const char *
fsdp_checkpoint_metadata(const fsdp_checkpoint_t *checkpoint, const char *key)
{
    const fsdp_json_t *all =
        fsdp_json_member(checkpoint->index.document, "metadata");
    return fsdp_json_get_string(fsdp_json_member(all, key));
}
