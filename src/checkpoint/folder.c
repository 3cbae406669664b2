#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsdp/memory.h"

char *
fsdp_folder_of_step(const char *dir, long step)
{
    return fsdp_format("%s/step-%08ld", dir, step);
}

static char *
partial_of_step(const char *dir, long step)
{
    return fsdp_format("%s/.partial-step-%08ld", dir, step);
}

/* The number in "step-00000010"; -1 if it is no such name. */
static long
step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0 ||
        strspn(name + 5, "0123456789") != strlen(name + 5) ||
        strlen(name) < 13 || strlen(name) > 23)
        return -1;
    return strtol(name + 5, NULL, 10);
}

/* Calls fn(dir, name, value) for each entry of a folder. */
static void
for_each(const char *dir, void (*fn)(const char *, const char *, void *),
         void *value)
{
    struct dirent *entry;
    DIR *folder = opendir(dir);
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fn(dir, entry->d_name, value);
    if (folder != NULL)
        closedir(folder);
}

/* ---- removing ------------------------------------------------------------ */

static void
remove_file(const char *dir, const char *name, void *value)
{
    char *path = fsdp_format("%s/%s", dir, name);
    (void)value;
    unlink(path);
    fsdp_free(path);
}

/* A checkpoint's folder has no folders in it. */
static void
remove_folder(const char *path)
{
    for_each(path, remove_file, NULL);
    rmdir(path);
}

static void
sweep_one(const char *dir, const char *name, void *value)
{
    (void)value;
    if (strncmp(name, ".partial-step-", 14) != 0 &&
        strncmp(name, ".old-step-", 10) != 0)
        return;
    char *path = fsdp_format("%s/%s", dir, name);
    remove_folder(path);
    fsdp_free(path);
}

void
fsdp_folder_sweep(const char *dir)
{
    for_each(dir, sweep_one, NULL);
}

/* Another name first, so that one that is half removed is not taken for whole. */
static void
retire(const char *dir, long step)
{
    char *path = fsdp_folder_of_step(dir, step);
    char *old = fsdp_format("%s/.old-step-%08ld", dir, step);
    if (rename(path, old) == 0)
        remove_folder(old);
    fsdp_free(path);
    fsdp_free(old);
}

/* ---- which there are ----------------------------------------------------- */

static void
note_newest(const char *dir, const char *name, void *value)
{
    long step = step_of(name), *newest = value;
    (void)dir;
    if (step > *newest)
        *newest = step;
}

long
fsdp_folder_newest(const char *dir)
{
    long newest = -1;
    for_each(dir, note_newest, &newest);
    return newest;
}

typedef struct steps {
    long *step;
    size_t count, room;
} steps_t;

static void
note_step(const char *dir, const char *name, void *value)
{
    steps_t *steps = value;
    long step = step_of(name);
    (void)dir;
    if (step < 0)
        return;
    if (steps->count == steps->room) {
        steps->room = steps->room > 0 ? 2 * steps->room : 64;
        long *more = fsdp_alloc(FSDP_MEM_OTHER, steps->room * sizeof *more);
        if (steps->count > 0)
            memcpy(more, steps->step, steps->count * sizeof *more);
        fsdp_free(steps->step);
        steps->step = more;
    }
    steps->step[steps->count++] = step;
}

static int
newest_first(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x < y) - (x > y);
}

void
fsdp_folder_keep(const char *dir, int keep)
{
    steps_t steps = {0};
    if (keep <= 0)
        return;
    for_each(dir, note_step, &steps);
    if (steps.count > 0)
        qsort(steps.step, steps.count, sizeof *steps.step, newest_first);
    for (size_t i = (size_t)keep; i < steps.count; i++)
        retire(dir, steps.step[i]);
    fsdp_free(steps.step);
}

/* ---- making one ---------------------------------------------------------- */

fsdp_status_t
fsdp_folder_begin(const char *dir, long step, char **path)
{
    *path = partial_of_step(dir, step);
    remove_folder(*path);
    if (mkdir(*path, 0777) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_IO,
                      "%s: no checkpoint can be made here: %s; make the folder "
                      "or choose another",
                      dir, strerror(errno));
}

static bool
flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    if (fd >= 0)
        close(fd);
    return good;
}

/* An older one of the same step changes places with it in one move. */
static bool
take_name(const char *partial, const char *path)
{
    if (rename(partial, path) == 0)
        return true;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return false;
    if (renameat2(AT_FDCWD, partial, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
        return false;
    remove_folder(partial);
    return true;
}

fsdp_status_t
fsdp_folder_commit(const char *dir, long step)
{
    char *partial = partial_of_step(dir, step);
    char *path = fsdp_folder_of_step(dir, step);
    fsdp_status_t status = FSDP_OK;
    if (!flush_folder(partial) || !take_name(partial, path) ||
        !flush_folder(dir))
        status = fsdp_error(FSDP_ERR_IO,
                            "%s: the checkpoint cannot be put in place: %s; "
                            "the one before is unharmed",
                            path, strerror(errno));
    fsdp_free(partial);
    fsdp_free(path);
    return status;
}

void
fsdp_folder_abandon(const char *dir, long step)
{
    char *partial = partial_of_step(dir, step);
    remove_folder(partial);
    fsdp_free(partial);
}
