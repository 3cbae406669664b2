#include "base/offload_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/grow.h"

typedef struct range {
    size_t offset, bytes;
    bool zeros;
} range_t;

static fsdp_offload_t *open_files;

size_t
fsdp_offload_page(void)
{
    static size_t page;
    if (page == 0)
        page = (size_t)sysconf(_SC_PAGESIZE);
    return page;
}

size_t
fsdp_offload_in_pages(size_t bytes)
{
    size_t page = fsdp_offload_page();
    return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

/* ---- ranges -------------------------------------------------------------- */

/* From those given back, else behind the last. */
static range_t
find_range(fsdp_offload_t *file, size_t bytes)
{
    for (size_t i = 0; i < file->num_unused; i++) {
        range_t range = file->unused[i];
        if (range.bytes != bytes)
            continue;
        file->unused[i] = file->unused[--file->num_unused];
        return range;
    }
    range_t range = {.offset = file->end, .bytes = bytes, .zeros = true};
    file->end += bytes;
    return range;
}

static void
keep_range(fsdp_offload_t *file, range_t range)
{
    file->unused = fsdp_grow(FSDP_MEM_OTHER, file->unused, file->num_unused,
                             &file->unused_room, 64, sizeof *file->unused);
    file->unused[file->num_unused++] = range;
}

int
fsdp_offload_file_take(fsdp_offload_t *file, size_t bytes, size_t *offset,
                       bool *zeros)
{
    int error;
    range_t range = find_range(file, bytes);
    do /* the disk says now that it is full, and not when a page is written */
        error = posix_fallocate(file->fd, (off_t)range.offset, (off_t)bytes);
    while (error == EINTR);
    if (error != 0)
        keep_range(file, range);
    *offset = range.offset;
    *zeros = range.zeros;
    return error;
}

void
fsdp_offload_file_give(fsdp_offload_t *file, size_t bytes, size_t offset)
{
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    bool punched = fallocate(file->fd, hole, (off_t)offset, (off_t)bytes) == 0;
    keep_range(file, (range_t){offset, bytes, punched});
}

void *
fsdp_offload_file_map(const fsdp_offload_t *file, size_t bytes, size_t offset)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
                (off_t)offset);
}

/* ---- opening ------------------------------------------------------------- */

int
fsdp_offload_file_unnamed(const char *directory)
{
    char *name = fsdp_format("%s/fsdp-offload-XXXXXX", directory);
    int fd = mkostemp(name, O_CLOEXEC);
    int error = errno;
    if (fd >= 0)
        unlink(name);
    fsdp_free(name);
    errno = error;
    return fd;
}

static int
open_nameless(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    return fsdp_offload_file_unnamed(directory);
}

static fsdp_status_t
cannot_open(const char *directory, int error)
{
    if (error == ENOENT && access(directory, F_OK) == 0)
        error = EOPNOTSUPP; /* it is there, but no file can be made in it */
    switch (error) {
    case ENOENT:
        return fsdp_error(FSDP_ERR_IO,
                          "offload directory %s does not exist; create it",
                          directory);
    case ENOTDIR:
        return fsdp_error(FSDP_ERR_IO,
                          "offload directory %s is no directory; give one "
                          "that files can be made in",
                          directory);
    case EACCES:
    case EPERM:
    case EROFS:
        return fsdp_error(FSDP_ERR_IO,
                          "offload directory %s is not writable (%s); change "
                          "its permissions or give another",
                          directory, strerror(error));
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return fsdp_error(FSDP_ERR_IO,
                          "offload directory %s has no room (%s); free some "
                          "or give one on another disk",
                          directory, strerror(error));
    default:
        return fsdp_error(FSDP_ERR_IO,
                          "the file system of offload directory %s cannot "
                          "hold offloaded blocks (%s); give one on a local "
                          "disk",
                          directory, strerror(error));
    }
}

/* One page, there and back: what the file system cannot do shows now.  0 or
 * errno. */
static int
try_page(fsdp_offload_t *file)
{
    size_t page = fsdp_offload_page(), offset;
    bool zeros;
    int error = fsdp_offload_file_take(file, page, &offset, &zeros);
    if (error != 0)
        return error;
    char *memory = fsdp_offload_file_map(file, page, offset);
    error = memory == MAP_FAILED ? errno : 0;
    if (error == 0) {
        memory[0] = 1;
        munmap(memory, page);
    }
    fsdp_offload_file_give(file, page, offset);
    return error;
}

static void
close_file(fsdp_offload_t *file)
{
    close(file->fd);
    fsdp_free(file->unused);
    fsdp_free(file->directory);
    fsdp_free(file);
}

fsdp_offload_t *
fsdp_offload_file_open(const char *directory)
{
    for (fsdp_offload_t *f = open_files; f != NULL; f = f->next)
        if (strcmp(f->directory, directory) == 0) {
            f->users++;
            return f;
        }
    int fd = open_nameless(directory);
    if (fd < 0) {
        cannot_open(directory, errno);
        return NULL;
    }
    fsdp_offload_t *file = fsdp_calloc(FSDP_MEM_OTHER, sizeof *file);
    file->directory = fsdp_strdup(directory);
    file->fd = fd;
    file->users = 1;
    int error = try_page(file);
    if (error != 0) {
        cannot_open(directory, error);
        close_file(file);
        return NULL;
    }
    file->next = open_files;
    open_files = file;
    return file;
}

void
fsdp_offload_file_drop(fsdp_offload_t *file)
{
    if (--file->users > 0)
        return;
    fsdp_offload_t **link = &open_files;
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    close_file(file);
}
