/* What a bundle's runs are trained on, by formulas. */

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/whole_file.h"
#include "cli/golden.h"

/* Eight features and one of four classes, by a formula. */
static fsdp_status_t
write_rows(const char *path)
{
    char text[64 * 40], *at = text;
    for (int r = 0; r < 64; r++) {
        for (int c = 0; c < 8; c++)
            at += sprintf(at, "%d,", (r * 7 + c * 3 + r * r * (c + 1)) % 17);
        at += sprintf(at, "%d\n", (r * 5 + r / 3) % 4);
    }
    return fsdp_file_write(path, text, (size_t)(at - text));
}

static fsdp_status_t
write_words(const char *path)
{
    static const char *const word[] = {"shard", "gather", "sum", "step",
                                       "rank",  "the",    "a",   "unit"};
    char text[1000 * 8], *at = text;
    unsigned state = 1;
    for (int i = 0; i < 1000; i++) {
        state = state * 1664525u + 1013904223u; /* Knuth's, of 32 bits */
        at += sprintf(at, "%s%c", word[state >> 29], i % 12 == 11 ? '\n' : ' ');
    }
    return fsdp_file_write(path, text, (size_t)(at - text));
}

fsdp_status_t
golden_make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_IO, "cannot make the folder %s: %s%s", path, strerror(errno),
        errno == EEXIST ? "; remove it, or choose another --out" : "");
}

fsdp_status_t
golden_make_data(const char *dir)
{
    char *data = fsdp_format("%s/data", dir);
    char *rows = fsdp_format("%s/rows.csv", data);
    char *words = fsdp_format("%s/text.txt", data);
    fsdp_status_t status = golden_make_folder(dir);
    if (status == FSDP_OK)
        status = golden_make_folder(data);
    if (status == FSDP_OK)
        status = write_rows(rows);
    if (status == FSDP_OK)
        status = write_words(words);
    fsdp_free(data);
    fsdp_free(rows);
    fsdp_free(words);
    return status;
}
