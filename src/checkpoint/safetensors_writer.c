/* Writing: everything goes to a temporary file beside the final one, which the
 * final name shows only when all of it is on the disk. */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors_internal.h"
#include "fsdp/memory.h"

enum { MAX_TRIES = 100 }; /* temporary names that may stand there already */

struct fsdp_safetensors_writer {
    int fd;
    char *path, *temporary;
    uint64_t expected, written; /**< bytes of the data section */
    bool failed; /**< a write failed: it must never get the final name      */
};

static fsdp_status_t
io_error(const fsdp_safetensors_writer_t *writer, const char *what)
{
    return fsdp_error(FSDP_ERR_IO,
                      "%s cannot be %s: %s; nothing half-written stands under "
                      "that name, choose a folder with room and write "
                      "permission",
                      writer->path, what, strerror(errno));
}

static fsdp_status_t
write_all(fsdp_safetensors_writer_t *writer, const void *data, uint64_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        size_t want = bytes < (1u << 30) ? (size_t)bytes : (1u << 30);
        ssize_t done = write(writer->fd, from, want);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            writer->failed = true;
            return io_error(writer, "written");
        }
        from += done;
        bytes -= (uint64_t)done;
    }
    return FSDP_OK;
}

static void
write_metadata(fsdp_json_writer_t *json, const char *const (*metadata)[2],
               size_t num_metadata)
{
    if (num_metadata == 0)
        return;
    fsdp_json_key(json, "__metadata__");
    fsdp_json_open_object(json);
    for (size_t i = 0; i < num_metadata; i++) {
        fsdp_json_key(json, metadata[i][0]);
        fsdp_json_string(json, metadata[i][1]);
    }
    fsdp_json_close_object(json);
}

static void
write_entry(fsdp_json_writer_t *json, const fsdp_safetensors_entry_t *entry,
            uint64_t begin, uint64_t end)
{
    fsdp_json_key(json, entry->name);
    fsdp_json_open_object(json);
    fsdp_json_key(json, "dtype");
    fsdp_json_string(json, fsdp_dtype_safetensors_name(entry->dtype));
    fsdp_json_key(json, "shape");
    fsdp_json_open_array(json);
    for (int i = 0; i < entry->ndim; i++)
        fsdp_json_integer(json, (int64_t)entry->shape[i]);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "data_offsets");
    fsdp_json_open_array(json);
    fsdp_json_integer(json, (int64_t)begin);
    fsdp_json_integer(json, (int64_t)end);
    fsdp_json_close_array(json);
    fsdp_json_close_object(json);
}

/* The header's length, its text, and spaces up to a multiple of 8. */
static fsdp_status_t
write_text(fsdp_safetensors_writer_t *writer, const fsdp_json_writer_t *json)
{
    static const char spaces[8] = "        ";
    size_t length = fsdp_json_writer_length(json);
    size_t padding = (8 - length % 8) % 8;
    unsigned char raw[8];
    for (int i = 0; i < 8; i++)
        raw[i] = (unsigned char)((uint64_t)(length + padding) >> (8 * i));
    fsdp_status_t status = write_all(writer, raw, sizeof raw);
    if (status == FSDP_OK)
        status = write_all(writer, fsdp_json_writer_text(json), length);
    return status == FSDP_OK ? write_all(writer, spaces, padding) : status;
}

/* What a reader would find: each name once and as it was given, which JSON
 * cannot promise for names that are not UTF-8. */
static void
check_header(const fsdp_safetensors_writer_t *writer,
             const fsdp_json_writer_t *json,
             const fsdp_safetensors_entry_t *entries, size_t count)
{
    fsdp_json_t *header;
    size_t length = fsdp_json_writer_length(json);
    FSDP_CHECK(length <= FSDP_SAFETENSORS_MAX_HEADER - 8,
               "%s: a header of %zu bytes", writer->path, length);
    fsdp_status_t status = fsdp_json_parse(
        writer->path, fsdp_json_writer_text(json), length, &header);
    FSDP_CHECK(status == FSDP_OK, "%s: two tensors of one name? %s",
               writer->path, fsdp_error_message());
    for (size_t i = 0; i < count; i++)
        FSDP_CHECK(strcmp(entries[i].name, "__metadata__") != 0 &&
                       fsdp_json_member(header, entries[i].name) != NULL,
                   "%s: a tensor cannot be called \"%s\"", writer->path,
                   entries[i].name);
    fsdp_json_destroy(&header);
}

static fsdp_status_t
write_header(fsdp_safetensors_writer_t *writer,
             const fsdp_safetensors_entry_t *entries, size_t count,
             const char *const (*metadata)[2], size_t num_metadata)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_json_open_object(json);
    write_metadata(json, metadata, num_metadata);
    for (size_t i = 0; i < count; i++) {
        uint64_t numel, bytes, begin = writer->expected;
        bool fits = fsdp_safetensors_sizes(entries[i].dtype, entries[i].ndim,
                                           entries[i].shape, &numel, &bytes);
        FSDP_CHECK(fits && bytes <= INT64_MAX - begin,
                   "the size of tensor %s overflows", entries[i].name);
        writer->expected += bytes;
        write_entry(json, &entries[i], begin, writer->expected);
    }
    fsdp_json_close_object(json);
    check_header(writer, json, entries, count);
    fsdp_status_t status = write_text(writer, json);
    fsdp_json_writer_destroy(&json);
    return status;
}

/* A name nobody uses yet, beside the final one.  What is no regular file (a
 * folder, /dev/null) must not be replaced by one. */
static fsdp_status_t
create_temporary(fsdp_safetensors_writer_t *writer)
{
    struct stat st;
    if (stat(writer->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EEXIST;
        return io_error(writer, "replaced by a file");
    }
    errno = EEXIST;
    for (int i = 0; writer->fd < 0 && errno == EEXIST && i < MAX_TRIES; i++) {
        fsdp_free(writer->temporary);
        writer->temporary =
            fsdp_format("%s.tmp-%ld-%d", writer->path, (long)getpid(), i);
        writer->fd = open(writer->temporary,
                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (writer->fd >= 0)
        return FSDP_OK;
    fsdp_status_t status = io_error(writer, "created");
    fsdp_free(writer->temporary); /* not ours to remove */
    writer->temporary = NULL;
    return status;
}

fsdp_status_t
fsdp_safetensors_create(const char *path,
                        const fsdp_safetensors_entry_t *entries, size_t count,
                        const char *const (*metadata)[2], size_t num_metadata,
                        fsdp_safetensors_writer_t **writer)
{
    fsdp_safetensors_writer_t *w = fsdp_calloc(FSDP_MEM_OTHER, sizeof *w);
    w->path = fsdp_strdup(path);
    w->fd = -1;
    fsdp_status_t status = create_temporary(w);
    if (status == FSDP_OK)
        status = write_header(w, entries, count, metadata, num_metadata);
    if (status != FSDP_OK)
        fsdp_safetensors_abandon(&w);
    *writer = w;
    return status;
}

fsdp_status_t
fsdp_safetensors_append(fsdp_safetensors_writer_t *writer, const void *data,
                        uint64_t bytes)
{
    FSDP_CHECK(bytes <= writer->expected - writer->written,
               "%llu bytes more than the header of %s announces",
               (unsigned long long)(writer->written + bytes - writer->expected),
               writer->path);
    writer->written += bytes;
    return write_all(writer, data, bytes);
}

/* The rename itself is on the disk only when the folder is. */
static void
sync_folder(const char *path)
{
    char *copy = fsdp_strdup(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    fsdp_free(copy);
}

fsdp_status_t
fsdp_safetensors_commit(fsdp_safetensors_writer_t **writer)
{
    fsdp_safetensors_writer_t *w = *writer;
    FSDP_CHECK(w->written == w->expected,
               "%s: %llu of %llu bytes were appended", w->path,
               (unsigned long long)w->written, (unsigned long long)w->expected);
    fsdp_status_t status = FSDP_OK;
    if (w->failed) {
        errno = EIO;
        status = io_error(w, "written");
    }
    /* Some file systems cannot sync, and say EINVAL. */
    if (status == FSDP_OK && fsync(w->fd) != 0 && errno != EINVAL)
        status = io_error(w, "written");
    int closed = close(w->fd);
    w->fd = -1;
    if (status == FSDP_OK && closed != 0)
        status = io_error(w, "written");
    if (status == FSDP_OK && rename(w->temporary, w->path) != 0)
        status = io_error(w, "put in place");
    if (status == FSDP_OK) {
        sync_folder(w->path);
        fsdp_free(w->temporary); /* there is nothing to remove */
        w->temporary = NULL;
    }
    fsdp_safetensors_abandon(writer);
    return status;
}

void
fsdp_safetensors_abandon(fsdp_safetensors_writer_t **writer)
{
    fsdp_safetensors_writer_t *w = *writer;
    if (w == NULL)
        return;
    if (w->fd >= 0) /* else it was never created, or commit() closed it */
        close(w->fd);
    if (w->temporary != NULL)
        unlink(w->temporary);
    fsdp_free(w->temporary);
    fsdp_free(w->path);
    fsdp_free(w);
    *writer = NULL;
}
