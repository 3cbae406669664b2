#include "fsdp/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors_internal.h"
#include "fsdp/memory.h"

static fsdp_status_t
io_error(const char *path, const char *what)
{
    return fsdp_error(FSDP_ERR_IO,
                      "%s cannot be %s: %s; check its name and permissions",
                      path, what, strerror(errno));
}

/* All of it, or an error; a read may be cut short by a signal. */
static fsdp_status_t
read_at(const fsdp_safetensors_t *file, uint64_t offset, void *out,
        uint64_t bytes)
{
    char *to = out;
    while (bytes > 0) {
        size_t want = bytes < (1u << 30) ? (size_t)bytes : (1u << 30);
        ssize_t got = pread(file->fd, to, want, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_error(file->path, "read");
        if (got == 0)
            return fsdp_error(FSDP_ERR_IO,
                              "%s became shorter while it was "
                              "read",
                              file->path);
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return FSDP_OK;
}

/* Its size; only a regular file is accepted, so that nothing blocks. */
static fsdp_status_t
open_regular(fsdp_safetensors_t *file, uint64_t *size)
{
    struct stat st;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return io_error(file->path, "opened");
    if (fstat(file->fd, &st) != 0)
        return io_error(file->path, "read");
    if (!S_ISREG(st.st_mode))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no regular file; give a "
                          "safetensors file",
                          file->path);
    *size = (uint64_t)st.st_size;
    return FSDP_OK;
}

static fsdp_status_t
read_header(fsdp_safetensors_t *file, uint64_t size)
{
    unsigned char raw[8];
    uint64_t length = 0;
    if (size < sizeof raw)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no safetensors file: it has "
                          "only %llu bytes",
                          file->path, (unsigned long long)size);
    fsdp_status_t status = read_at(file, 0, raw, sizeof raw);
    if (status != FSDP_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length > FSDP_SAFETENSORS_MAX_HEADER || length > size - sizeof raw)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no safetensors file or "
                          "truncated: it claims a header of %llu bytes and has "
                          "%llu in all",
                          file->path, (unsigned long long)length,
                          (unsigned long long)size);
    file->data_begin = sizeof raw + length;
    file->data_bytes = size - file->data_begin;

    char *text = fsdp_alloc(FSDP_MEM_OTHER, (size_t)length);
    status = read_at(file, sizeof raw, text, length);
    if (status == FSDP_OK)
        status = fsdp_safetensors_parse_header(file, text, (size_t)length);
    fsdp_free(text);
    return status;
}

fsdp_status_t
fsdp_safetensors_open(const char *path, fsdp_safetensors_t **file)
{
    fsdp_safetensors_t *f = fsdp_calloc(FSDP_MEM_OTHER, sizeof *f);
    uint64_t size = 0;
    f->path = fsdp_strdup(path);
    fsdp_status_t status = open_regular(f, &size);
    if (status == FSDP_OK)
        status = read_header(f, size);
    if (status != FSDP_OK)
        fsdp_safetensors_close(&f);
    *file = f;
    return status;
}

void
fsdp_safetensors_close(fsdp_safetensors_t **file)
{
    fsdp_safetensors_t *f = *file;
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->count; i++)
        fsdp_free(f->entry[i].name);
    fsdp_free(f->entry);
    fsdp_json_destroy(&f->header);
    if (f->fd >= 0)
        close(f->fd);
    fsdp_free(f->path);
    fsdp_free(f);
    *file = NULL;
}

size_t
fsdp_safetensors_count(const fsdp_safetensors_t *file)
{
    return file->count;
}

const fsdp_safetensors_entry_t *
fsdp_safetensors_entry(const fsdp_safetensors_t *file, size_t i)
{
    return &file->entry[i];
}

const fsdp_safetensors_entry_t *
fsdp_safetensors_find(const fsdp_safetensors_t *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entry[i].name, name) == 0)
            return &file->entry[i];
    return NULL;
}

const char *
fsdp_safetensors_metadata(const fsdp_safetensors_t *file, const char *key)
{
    const fsdp_json_t *all = fsdp_json_member(file->header, "__metadata__");
    return fsdp_json_get_string(fsdp_json_member(all, key));
}

bool
fsdp_safetensors_metadata_pair(const fsdp_safetensors_t *file, size_t i,
                               const char **key, const char **value)
{
    fsdp_json_iter_t at =
        fsdp_json_first(fsdp_json_member(file->header, "__metadata__"));
    for (; at.key != NULL && i > 0; i--)
        fsdp_json_next(&at);
    *key = at.key;
    *value = at.key != NULL ? fsdp_json_get_string(at.value) : NULL;
    return at.key != NULL;
}

fsdp_status_t
fsdp_safetensors_read(const fsdp_safetensors_t *file,
                      const fsdp_safetensors_entry_t *entry, uint64_t begin,
                      uint64_t count, void *out)
{
    FSDP_CHECK(begin <= entry->numel && count <= entry->numel - begin,
               "elements %llu to %llu of tensor %s, which has %llu",
               (unsigned long long)begin, (unsigned long long)(begin + count),
               entry->name, (unsigned long long)entry->numel);
    uint64_t size = fsdp_dtype_size(entry->dtype);
    return read_at(file, file->data_begin + entry->begin + begin * size, out,
                   count * size);
}
