#include "checkpoint/weights.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsdp/memory.h"

static const char *const prefix[] = {"transformer.", "model."};
enum { PREFIXES = 2 };

const char *
fsdp_weights_bare_name(const char *name)
{
    for (int i = 0; i < PREFIXES; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return name + strlen(prefix[i]);
    return name;
}

char *
fsdp_weights_path(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    return fsdp_format("%.*s/%s", (int)length, folder, name);
}

bool
fsdp_weights_is_folder(const char *path)
{
    struct stat kind;
    return stat(path, &kind) == 0 && S_ISDIR(kind.st_mode);
}

/* ---- opening ------------------------------------------------------------- */

static bool
exists(const char *folder, const char *name)
{
    char *path = fsdp_weights_path(folder, name);
    bool there = access(path, F_OK) == 0;
    fsdp_free(path);
    return there;
}

/* The files of a folder, whose paths the caller frees. */
static fsdp_status_t
list_files(const char *folder, char ***path, size_t *count)
{
    *path = NULL;
    *count = 0;
    if (!exists(folder, FSDP_WEIGHTS_FILE) &&
        exists(folder, FSDP_WEIGHTS_INDEX))
        return fsdp_weights_read_index(folder, path, count);
    if (!exists(folder, FSDP_WEIGHTS_FILE))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s holds neither " FSDP_WEIGHTS_FILE
                          " nor " FSDP_WEIGHTS_INDEX
                          "; save the model with save_pretrained()",
                          folder);
    *path = fsdp_alloc(FSDP_MEM_OTHER, sizeof **path);
    **path = fsdp_weights_path(folder, FSDP_WEIGHTS_FILE);
    *count = 1;
    return FSDP_OK;
}

static fsdp_status_t
check_once(const fsdp_weights_t *w)
{
    for (size_t f = 1; f < w->count; f++)
        for (size_t i = 0; i < fsdp_safetensors_count(w->file[f]); i++) {
            const char *name = fsdp_safetensors_entry(w->file[f], i)->name;
            fsdp_stored_t first = fsdp_weights_find(w, name);
            if (first.file != w->file[f])
                return fsdp_error(FSDP_ERR_INPUT,
                                  "%s: tensor %s is in %s too; save the model "
                                  "again",
                                  w->path[f], name, first.path);
        }
    return FSDP_OK;
}

fsdp_status_t
fsdp_weights_open(const char *path, fsdp_weights_t **weights)
{
    fsdp_weights_t *w = fsdp_calloc(FSDP_MEM_OTHER, sizeof *w);
    bool folder = fsdp_weights_is_folder(path);
    size_t files = 1;
    fsdp_status_t status = FSDP_OK;
    if (folder) {
        status = list_files(path, &w->path, &files);
    } else {
        w->path = fsdp_alloc(FSDP_MEM_OTHER, sizeof *w->path);
        w->path[0] = fsdp_strdup(path);
    }
    w->file = fsdp_calloc(FSDP_MEM_OTHER, files * sizeof *w->file);
    w->count = files;
    for (size_t f = 0; f < files && status == FSDP_OK; f++)
        status = fsdp_safetensors_open(w->path[f], &w->file[f]);
    if (status == FSDP_OK && folder && exists(path, FSDP_WEIGHTS_INDEX) &&
        !exists(path, FSDP_WEIGHTS_FILE))
        status = fsdp_weights_check_index(path, w);
    if (status == FSDP_OK)
        status = check_once(w);
    if (status != FSDP_OK)
        fsdp_weights_close(&w);
    *weights = w;
    return status;
}

void
fsdp_weights_close(fsdp_weights_t **weights)
{
    fsdp_weights_t *w = *weights;
    if (w == NULL)
        return;
    for (size_t f = 0; f < w->count; f++) {
        fsdp_safetensors_close(&w->file[f]);
        fsdp_free(w->path[f]);
    }
    fsdp_free(w->file);
    fsdp_free(w->path);
    fsdp_free(w);
    *weights = NULL;
}

/* ---- looking up ---------------------------------------------------------- */

fsdp_stored_t
fsdp_weights_find(const fsdp_weights_t *w, const char *name)
{
    for (size_t f = 0; f < w->count; f++) {
        const fsdp_safetensors_entry_t *entry =
            fsdp_safetensors_find(w->file[f], name);
        if (entry != NULL)
            return (fsdp_stored_t){w->path[f], w->file[f], entry};
    }
    return (fsdp_stored_t){0};
}

fsdp_stored_t
fsdp_weights_find_bare(const fsdp_weights_t *w, const char *name, bool *twice)
{
    const char *bare = fsdp_weights_bare_name(name);
    fsdp_stored_t found = fsdp_weights_find(w, bare);
    *twice = false;
    for (int i = 0; i < PREFIXES; i++) {
        char *full = fsdp_format("%s%s", prefix[i], bare);
        fsdp_stored_t with = fsdp_weights_find(w, full);
        *twice |= found.entry != NULL && with.entry != NULL;
        if (found.entry == NULL)
            found = with;
        fsdp_free(full);
    }
    return found;
}
