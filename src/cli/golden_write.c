/* What bundle.json says of a run. */

#include <string.h>

#include "base/whole_file.h"
#include "cli/golden.h"

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
    fsdp_json_put_string(json, "path", name);
    fsdp_json_put_integer(json, "bytes", (int64_t)bytes);
    fsdp_json_put_hash(json, "xxh3_64", checksum);
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
    fsdp_json_put_string(json, "name", config->name);
    fsdp_json_put_integer(json, "ranks", ranks);
    fsdp_json_put_integer(json, "steps", config->steps);
    fsdp_json_put_string(json, "trace", folder);
    fsdp_json_put_hash(json, "hash", hash);
    fsdp_json_key(json, "files");
    fsdp_json_open_array(json);
    status = add_files(json, dir, config, ranks, folder);
    fsdp_json_close_array(json);
    fsdp_json_close_object(json);
    return status;
}
