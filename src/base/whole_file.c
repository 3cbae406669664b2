#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fsdp/memory.h"

enum { BLOCK = 1 << 20 };

static fsdp_status_t
cannot(const char *verb, const char *path)
{
    return fsdp_error(FSDP_ERR_IO, "%s: cannot be %s: %s", path, verb,
                      strerror(errno));
}

/* -1: an error; 0: the end. */
static ssize_t
read_some(int fd, void *buffer, size_t size)
{
    ssize_t got;
    do
        got = read(fd, buffer, size);
    while (got < 0 && errno == EINTR);
    return got;
}

fsdp_status_t
fsdp_file_checksum(const char *path, uint64_t *bytes, uint64_t *checksum)
{
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cannot("opened", path);
    void *block = fsdp_alloc(FSDP_MEM_OTHER, BLOCK);
    XXH3_state_t *state = XXH3_createState();
    FSDP_CHECK(state != NULL, "no memory for a checksum");
    XXH3_64bits_reset(state);
    *bytes = 0;
    while ((got = read_some(fd, block, BLOCK)) > 0) {
        XXH3_64bits_update(state, block, (size_t)got);
        *bytes += (uint64_t)got;
    }
    *checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    fsdp_free(block);
    fsdp_status_t status = got < 0 ? cannot("read", path) : FSDP_OK;
    close(fd);
    return status;
}

fsdp_status_t
fsdp_file_read(const char *path, size_t max, char **text, size_t *length)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *text = NULL;
    *length = 0;
    if (fd < 0)
        return cannot("opened", path);
    fsdp_status_t status = FSDP_OK;
    if (fstat(fd, &about) != 0) {
        status = cannot("read", path);
    } else if (!S_ISREG(about.st_mode) || (uint64_t)about.st_size > max) {
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s is no regular file of at most %zu bytes; "
                            "use another",
                            path, max);
    } else {
        size_t size = (size_t)about.st_size;
        ssize_t got = 1;
        *text = fsdp_alloc(FSDP_MEM_OTHER, size + 1);
        while (*length < size &&
               (got = read_some(fd, *text + *length, size - *length)) > 0)
            *length += (size_t)got;
        if (got < 0)
            status = cannot("read", path);
    }
    close(fd);
    return status;
}

fsdp_status_t
fsdp_file_write(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return cannot("made", path);
    size_t done = 0;
    while (done < length) {
        ssize_t wrote = write(fd, text + done, length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        done += (size_t)wrote;
    }
    bool good = done == length && (fsync(fd) == 0 || errno == EINVAL);
    fsdp_status_t status = good ? FSDP_OK : cannot("written", path);
    if (close(fd) != 0 && good)
        status = cannot("written", path);
    return status;
}

fsdp_status_t
fsdp_file_replace(const char *path, const char *text, size_t length)
{
    char *partial = fsdp_format("%s.tmp-%ld", path, (long)getpid());
    unlink(partial);
    fsdp_status_t status = fsdp_file_write(partial, text, length);
    if (status == FSDP_OK && rename(partial, path) != 0)
        status = cannot("written", path);
    if (status != FSDP_OK)
        unlink(partial);
    fsdp_free(partial);
    return status;
}
