/* What bundle.json says of a run. */

#include <string.h>

#include "base/whole_file.h"
#include "cli/golden.h"

static void
write_checksum(fsdp_json_writer_t *json, const char *key, uint64_t checksum)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)checksum);
    fsdp_json_key(json, key);
    fsdp_json_string(json, digits);
}

static fsdp_status_t
add_file(fsdp_json_writer_t *json, const char *dir, const char *name)
{
    uint64_t bytes, checksum;
    char *path = fsdp_format("%s/%s", dir, name);
    fsdp_status_t status = fsdp_file_checksum(path, &bytes, &checksum);
    fsdp_free(path);
    if (status != FSDP_OK)
        return status;
    fsdp_json_open_object(json);
    fsdp_json_key(json, "path");
    fsdp_json_string(json, name);
    fsdp_json_key(json, "bytes");
    fsdp_json_integer(json, (int64_t)bytes);
    write_checksum(json, "xxh3_64", checksum);
    fsdp_json_close_object(json);
    return FSDP_OK;
}

static fsdp_status_t
add_files(fsdp_json_writer_t *json, const char *dir,
          const golden_config_t *config, int ranks, const char *folder)
{
    static const char *const plain[] = {"configuration.txt", "trace.json"};
    static const char *const kind[] = {"json", "safetensors"};
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < 2 && status == FSDP_OK; i++) {
        char *name = fsdp_format("%s/%s", folder, plain[i]);
        status = add_file(json, dir, name);
        fsdp_free(name);
    }
    long count = (config->steps + 1) * ranks * 2;
    for (long i = 0; i < count && status == FSDP_OK; i++) {
        char *name = fsdp_format("%s/step-%06ld/rank-%05ld.%s", folder,
                                 i / 2 / ranks, i / 2 % ranks, kind[i % 2]);
        status = add_file(json, dir, name);
        fsdp_free(name);
    }
    return status;
}

fsdp_status_t
golden_write_run(fsdp_json_writer_t *json, const char *dir,
                 const golden_config_t *config, int ranks, const char *folder,
                 const char *text)
{
    uint64_t bytes, hash = 0;
    char *path = fsdp_format("%s/%s/configuration.txt", dir, folder);
    fsdp_status_t status = fsdp_file_write(path, text, strlen(text));
    if (status == FSDP_OK)
        status = fsdp_file_checksum(path, &bytes, &hash);
    fsdp_free(path);
    if (status != FSDP_OK)
        return status;
    fsdp_json_open_object(json);
    fsdp_json_key(json, "name");
    fsdp_json_string(json, config->name);
    fsdp_json_key(json, "ranks");
    fsdp_json_integer(json, ranks);
    fsdp_json_key(json, "steps");
    fsdp_json_integer(json, config->steps);
    fsdp_json_key(json, "trace");
    fsdp_json_string(json, folder);
    write_checksum(json, "hash", hash);
    fsdp_json_key(json, "files");
    fsdp_json_open_array(json);
    status = add_files(json, dir, config, ranks, folder);
    fsdp_json_close_array(json);
    fsdp_json_close_object(json);
    return status;
}
