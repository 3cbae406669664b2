/* The numbers in a folder's names: of steps, of ranks. */

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "fsdp/memory.h"
#include "verify/trace/internal.h"

/* Reads "PREFIXdigits" + SUFFIX, at least `width` digits, no more zeros in front
 * than they need; -1 if the name is not so. */
static long
number_of(const char *name, const char *prefix, size_t width,
          const char *suffix)
{
    size_t skip = strlen(prefix);
    if (strncmp(name, prefix, skip) != 0)
        return -1;
    name += skip;
    size_t digits = strspn(name, "0123456789");
    if (digits < width || digits > 9 || (digits > width && name[0] == '0') ||
        strcmp(name + digits, suffix) != 0)
        return -1;
    return strtol(name, NULL, 10);
}

static bool
begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static fsdp_status_t
bad_name(const char *dir, const char *name, const char *must)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s/%s: such a name must be %s; see "
                      "python/trace_format.md",
                      dir, name, must);
}

fsdp_status_t
trace_cannot_open(const char *path)
{
    return fsdp_error(FSDP_ERR_IO, "%s cannot be opened: %s", path,
                      strerror(errno));
}

static void
add_number(trace_numbers_t *numbers, long number)
{
    numbers->list = fsdp_grow(FSDP_MEM_OTHER, numbers->list, numbers->count,
                              &numbers->room, 64, sizeof *numbers->list);
    numbers->list[numbers->count++] = number;
}

static int
by_number(const void *a, const void *b)
{
    return (*(const long *)a > *(const long *)b) -
           (*(const long *)a < *(const long *)b);
}

static void
sort_numbers(trace_numbers_t *numbers)
{
    size_t kept = 0;
    if (numbers->count > 0)
        qsort(numbers->list, numbers->count, sizeof *numbers->list, by_number);
    for (size_t i = 0; i < numbers->count; i++)
        if (kept == 0 || numbers->list[kept - 1] != numbers->list[i])
            numbers->list[kept++] = numbers->list[i];
    numbers->count = kept;
}

/* Names that are nothing of a trace's are left alone: a person may keep notes in
 * the folder, and a recording that failed its temporary files. */
fsdp_status_t
trace_numbers_list(const char *dir, bool ranks, trace_numbers_t *numbers)
{
    fsdp_status_t status = FSDP_OK;
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return trace_cannot_open(dir);
    const struct dirent *entry;
    while (status == FSDP_OK && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (!begins_with(name, ranks ? "rank-" : "step-"))
            continue;
        long number = ranks ? number_of(name, "rank-", 5, ".json")
                            : number_of(name, "step-", 6, "");
        if (ranks && number < 0)
            number = number_of(name, "rank-", 5, ".safetensors");
        if (number >= 0)
            add_number(numbers, number);
        else if (strstr(name, ".tmp") == NULL)
            status = bad_name(dir, name,
                              ranks ? "rank-RRRRR.safetensors or .json (five "
                                      "digits)"
                                    : "step-NNNNNN (six digits)");
    }
    closedir(folder);
    sort_numbers(numbers);
    return status;
}
