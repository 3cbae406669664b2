/* Is a bundle whole, and of the configurations that this program has? */

#include <stdlib.h>
#include <string.h>

#include "base/whole_file.h"
#include "cli/golden.h"

/* Stays below the bundle's folder: no absolute path, no "..". */
static bool
is_inside(const char *path)
{
    return path != NULL && path[0] != '/' && path[0] != '\0' &&
           strstr(path, "..") == NULL;
}

static fsdp_status_t
malformed(const char *dir, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s/bundle.json: %s; make the bundle again", dir, what);
}

static fsdp_status_t
check_file(const char *dir, const fsdp_json_t *file)
{
    const char *name = fsdp_json_get_string(fsdp_json_member(file, "path"));
    int64_t bytes;
    uint64_t checksum, bytes_now, checksum_now;
    if (!is_inside(name) ||
        !fsdp_json_get_integer(fsdp_json_member(file, "bytes"), &bytes) ||
        !fsdp_json_get_hash(fsdp_json_member(file, "xxh3_64"), &checksum))
        return malformed(dir, "a file lacks a path inside, bytes or xxh3_64");
    char *path = fsdp_format("%s/%s", dir, name);
    fsdp_status_t status = fsdp_file_checksum(path, &bytes_now, &checksum_now);
    if (status == FSDP_OK &&
        (bytes_now != (uint64_t)bytes || checksum_now != checksum))
        status = fsdp_error(
            FSDP_ERR_INPUT,
            "%s is not as it was written; make the bundle again", path);
    fsdp_free(path);
    return status;
}

/* Compares what was run with what this program would run under that name. */
static fsdp_status_t
check_stale(const char *dir, const char *name, int64_t ranks,
            const char *folder, uint64_t hash)
{
    golden_config_t config;
    uint64_t bytes, now = 0;
    char *path = fsdp_format("%s/%s/configuration.txt", dir, folder);
    char *was = NULL, *is = NULL;
    size_t length;
    fsdp_status_t status = fsdp_file_checksum(path, &bytes, &now);
    if (status == FSDP_OK)
        status = fsdp_file_read(path, 1 << 20, &was, &length);
    if (status == FSDP_OK && now != hash)
        status =
            fsdp_error(FSDP_ERR_INPUT,
                       "%s has the hash %016llx, but bundle.json says "
                       "%016llx: one of them is stale; make the bundle "
                       "again",
                       path, (unsigned long long)now, (unsigned long long)hash);
    if (status == FSDP_OK && golden_config_built_in(name, &config)) {
        char *text = fsdp_format("%.*s", (int)length, was);
        const char *data = strstr(text, "\ndata ");
        uint64_t sum = data != NULL ? strtoull(data + 6, NULL, 16) : 0;
        is = golden_configuration_text(&config, (int)ranks, sum);
        if (strcmp(text, is) != 0)
            status = fsdp_error(FSDP_ERR_INPUT,
                                "%s: this program's \"%s\" is another one now; "
                                "make the bundle again",
                                path, name);
        golden_config_free(&config);
        fsdp_free(text);
    }
    fsdp_free(path);
    fsdp_free(was);
    fsdp_free(is);
    return status;
}

static fsdp_status_t
check_run(const char *dir, const fsdp_json_t *run)
{
    const char *name = fsdp_json_get_string(fsdp_json_member(run, "name"));
    const char *folder = fsdp_json_get_string(fsdp_json_member(run, "trace"));
    const fsdp_json_t *files = fsdp_json_member(run, "files");
    int64_t ranks = 0;
    uint64_t hash;
    fsdp_json_get_integer(fsdp_json_member(run, "ranks"), &ranks);
    if (name == NULL || !is_inside(folder) || ranks < 1 ||
        ranks > GOLDEN_MOST_RANKS || fsdp_json_size(files) == 0 ||
        !fsdp_json_get_hash(fsdp_json_member(run, "hash"), &hash))
        return malformed(dir, "a run lacks name, ranks, trace, hash or files");
    fsdp_status_t status = check_stale(dir, name, ranks, folder, hash);
    for (size_t i = 0; i < fsdp_json_size(files) && status == FSDP_OK; i++)
        status = check_file(dir, fsdp_json_at(files, i));
    return status;
}

static fsdp_status_t
check_runs(const char *dir, const fsdp_json_t *bundle)
{
    const char *format =
        fsdp_json_get_string(fsdp_json_member(bundle, "format"));
    const fsdp_json_t *runs = fsdp_json_member(bundle, "runs");
    int64_t version = 0;
    fsdp_json_get_integer(fsdp_json_member(bundle, "version"), &version);
    if (format == NULL || strcmp(format, "libfsdp-golden") != 0 || version != 1)
        return malformed(dir, "it is no libfsdp-golden of version 1");
    if (fsdp_json_size(runs) == 0)
        return malformed(dir, "it has no runs");
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < fsdp_json_size(runs) && status == FSDP_OK; i++)
        status = check_run(dir, fsdp_json_at(runs, i));
    return status;
}

fsdp_status_t
golden_check(const char *dir)
{
    char *path = fsdp_format("%s/bundle.json", dir), *text = NULL;
    size_t length;
    fsdp_json_t *bundle = NULL;
    fsdp_status_t status = fsdp_file_read(path, 1 << 26, &text, &length);
    if (status == FSDP_OK)
        status = fsdp_json_parse(path, text, length, &bundle);
    if (status == FSDP_OK)
        status = check_runs(dir, bundle);
    fsdp_json_destroy(&bundle);
    fsdp_free(text);
    fsdp_free(path);
    return status;
}
