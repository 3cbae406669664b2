#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void
fuzz_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
    abort();
}

static void
write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        FUZZ_CHECK(n > 0);
        data += n;
        size -= (size_t)n;
    }
}

const char *
fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        FUZZ_CHECK(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    write_all(fd, data, size);
    return path;
}

static char folder[64];

/* Files first, then the folders they were in. */
static char *put[64];
static int num_put;

static void
remove_folder(void)
{
    for (int i = num_put - 1; i >= 0; i--)
        remove(put[i]);
    remove(folder);
}

const char *
fuzz_folder(void)
{
    if (folder[0] == '\0') {
        const char *in = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof folder, "%s/fsdp-fuzz-XXXXXX", in);
        FUZZ_CHECK(mkdtemp(folder) != NULL);
        atexit(remove_folder);
    }
    return folder;
}

static void
remember(const char *path)
{
    for (int i = 0; i < num_put; i++)
        if (strcmp(put[i], path) == 0)
            return;
    FUZZ_CHECK(num_put < (int)(sizeof put / sizeof *put));
    put[num_put++] = strdup(path);
}

void
fuzz_put(const char *name, const uint8_t *data, size_t size)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    char *slash = strchr(path + strlen(folder) + 1, '/');
    if (slash != NULL) {
        *slash = '\0';
        mkdir(path, 0700);
        remember(path);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL);
    FUZZ_CHECK(fwrite(data, 1, size, file) == size && fclose(file) == 0);
    remember(path);
}

fuzz_part_t
fuzz_next_part(const uint8_t **data, size_t *size)
{
    fuzz_part_t part = {*data, *size};
    const uint8_t *mark = *size > 0 ? memmem(*data, *size, "%%%%", 4) : NULL;
    if (mark != NULL)
        part.size = (size_t)(mark - *data);
    size_t step = part.size + (mark != NULL ? 4 : 0);
    *data += step;
    *size -= step;
    return part;
}
