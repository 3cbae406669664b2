/* model.safetensors.index.json: which tensor is in which file. */
#include <string.h>

#include "base/json.h"
#include "base/whole_file.h"
#include "checkpoint/weights.h"
#include "fsdp/memory.h"

/* More than any model needs: the largest have some hundred files. */
enum { MAX_INDEX = 1 << 28, MAX_FILES = 1000 };

static fsdp_status_t
bad_name(const char *index, const char *tensor, const char *file)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: tensor %s is said to be in \"%.80s\"; a file of the "
                      "same folder must stand there, without a path",
                      index, tensor, file);
}

/* What the index says must not lead out of its folder. */
static bool
is_plain_name(const char *file)
{
    size_t length = strlen(file);
    if (length == 0 || length > 255 || file[0] == '.' ||
        strchr(file, '/') != NULL)
        return false;
    for (; *file != '\0'; file++)
        if ((unsigned char)*file < ' ' || *file == '\\' || *file == 127)
            return false;
    return true;
}

static fsdp_status_t
parse(const char *index, fsdp_json_t **document, const fsdp_json_t **map)
{
    char *text = NULL;
    size_t length;
    *document = NULL;
    fsdp_status_t status = fsdp_file_read(index, MAX_INDEX, &text, &length);
    if (status == FSDP_OK)
        status = fsdp_json_parse(index, text, length, document);
    fsdp_free(text);
    if (status != FSDP_OK)
        return status;
    *map = fsdp_json_member(*document, "weight_map");
    if (!fsdp_json_is(*map, FSDP_JSON_OBJECT) || fsdp_json_size(*map) == 0)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s: \"weight_map\" is %s; an object is needed, of "
                            "tensors' names and their files",
                            index,
                            fsdp_json_is(*map, FSDP_JSON_OBJECT)
                                ? "empty"
                                : fsdp_json_kind_name(*map));
    if (status != FSDP_OK)
        fsdp_json_destroy(document);
    return status;
}

static bool
is_known(char *const *path, size_t count, const char *folder, const char *file)
{
    char *full = fsdp_weights_path(folder, file);
    bool known = false;
    for (size_t i = 0; i < count && !known; i++)
        known = strcmp(path[i], full) == 0;
    fsdp_free(full);
    return known;
}

static fsdp_status_t
add_file(const char *folder, const char *index, const char *file, char **path,
         size_t *count)
{
    if (is_known(path, *count, folder, file))
        return FSDP_OK;
    if (*count == MAX_FILES)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s names more than %d files; save the model in "
                          "fewer",
                          index, MAX_FILES);
    path[(*count)++] = fsdp_weights_path(folder, file);
    return FSDP_OK;
}

fsdp_status_t
fsdp_weights_read_index(const char *folder, char ***path, size_t *count)
{
    char *index = fsdp_weights_path(folder, FSDP_WEIGHTS_INDEX);
    fsdp_json_t *document;
    const fsdp_json_t *map;
    *path = NULL;
    *count = 0;
    fsdp_status_t status = parse(index, &document, &map);
    if (status == FSDP_OK)
        *path = fsdp_alloc(FSDP_MEM_OTHER, MAX_FILES * sizeof **path);
    for (fsdp_json_iter_t at = fsdp_json_first(status == FSDP_OK ? map : NULL);
         at.key != NULL && status == FSDP_OK; fsdp_json_next(&at)) {
        const char *file = fsdp_json_get_string(at.value);
        if (file == NULL || !is_plain_name(file))
            status = bad_name(index, at.key, file != NULL ? file : "");
        else
            status = add_file(folder, index, file, *path, count);
    }
    fsdp_json_destroy(&document);
    fsdp_free(index);
    return status;
}

/* ---- do index and files agree? ------------------------------------------- */

static fsdp_status_t
check_tensors(const char *index, const fsdp_json_t *map, const char *path,
              const fsdp_safetensors_t *file)
{
    const char *base = strrchr(path, '/') + 1;
    for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
        const char *name = fsdp_safetensors_entry(file, i)->name;
        const char *said = fsdp_json_get_string(fsdp_json_member(map, name));
        if (said == NULL || strcmp(said, base) != 0)
            return fsdp_error(FSDP_ERR_INPUT,
                              "%s: tensor %s of %s is %s; are they of one "
                              "model?",
                              index, name, path,
                              said == NULL ? "missing" : "in another file");
    }
    return FSDP_OK;
}

fsdp_status_t
fsdp_weights_check_index(const char *folder, const fsdp_weights_t *weights)
{
    char *index = fsdp_weights_path(folder, FSDP_WEIGHTS_INDEX);
    fsdp_json_t *document;
    const fsdp_json_t *map = NULL;
    size_t tensors = 0;
    fsdp_status_t status = parse(index, &document, &map);
    for (size_t f = 0; f < weights->count && status == FSDP_OK; f++) {
        status = check_tensors(index, map, weights->path[f], weights->file[f]);
        tensors += fsdp_safetensors_count(weights->file[f]);
    }
    if (status == FSDP_OK && tensors != fsdp_json_size(map))
        for (fsdp_json_iter_t at = fsdp_json_first(map);
             at.key != NULL && status == FSDP_OK; fsdp_json_next(&at))
            if (fsdp_weights_find(weights, at.key).entry == NULL)
                status = fsdp_error(FSDP_ERR_INPUT,
                                    "%s: tensor %s is not in the file that it "
                                    "names; are they of one model?",
                                    index, at.key);
    fsdp_json_destroy(&document);
    fsdp_free(index);
    return status;
}
