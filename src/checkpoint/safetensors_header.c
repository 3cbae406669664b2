/* The header of a safetensors file, believed in nothing. */

#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors_internal.h"
#include "fsdp/memory.h"

bool
fsdp_safetensors_sizes(fsdp_dtype_t dtype, int ndim, const uint64_t *shape,
                       uint64_t *numel, uint64_t *bytes)
{
    *numel = 1;
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(*numel, shape[i], numel))
            return false;
    return !__builtin_mul_overflow(*numel, (uint64_t)fsdp_dtype_size(dtype),
                                   bytes);
}

static fsdp_status_t
bad(const fsdp_safetensors_t *file, const char *tensor, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s is no sound safetensors file: tensor \"%s\" %s; "
                      "write it again or choose another",
                      file->path, tensor, what);
}

static bool
get_size(const fsdp_json_t *value, uint64_t *size)
{
    int64_t number;
    if (!fsdp_json_get_integer(value, &number) || number < 0)
        return false;
    *size = (uint64_t)number;
    return true;
}

static fsdp_status_t
parse_shape(const fsdp_safetensors_t *file, const fsdp_json_t *shape,
            fsdp_safetensors_entry_t *entry)
{
    if (!fsdp_json_is(shape, FSDP_JSON_ARRAY))
        return bad(file, entry->name, "has no array \"shape\"");
    if (fsdp_json_size(shape) > FSDP_SAFETENSORS_MAX_DIMS)
        return bad(file, entry->name, "has more than 8 dimensions");
    entry->ndim = (int)fsdp_json_size(shape);
    for (int i = 0; i < entry->ndim; i++)
        if (!get_size(fsdp_json_at(shape, (size_t)i), &entry->shape[i]))
            return bad(file, entry->name,
                       "has a shape that is not whole numbers");
    return FSDP_OK;
}

static fsdp_status_t
parse_offsets(const fsdp_safetensors_t *file, const fsdp_json_t *offsets,
              fsdp_safetensors_entry_t *entry)
{
    uint64_t bytes;
    if (!fsdp_json_is(offsets, FSDP_JSON_ARRAY) ||
        fsdp_json_size(offsets) != 2 ||
        !get_size(fsdp_json_at(offsets, 0), &entry->begin) ||
        !get_size(fsdp_json_at(offsets, 1), &entry->end))
        return bad(file, entry->name,
                   "has no \"data_offsets\" of two whole numbers");
    if (entry->begin > entry->end || entry->end > file->data_bytes)
        return bad(file, entry->name,
                   "lies outside the data (is the file truncated?)");
    if (!fsdp_safetensors_sizes(entry->dtype, entry->ndim, entry->shape,
                                &entry->numel, &bytes))
        return bad(file, entry->name, "has a shape whose size overflows");
    if (bytes != entry->end - entry->begin)
        return bad(file, entry->name,
                   "has another number of bytes than its shape and type need");
    return FSDP_OK;
}

static fsdp_status_t
parse_entry(const fsdp_safetensors_t *file, const fsdp_json_t *value,
            fsdp_safetensors_entry_t *entry)
{
    if (!fsdp_json_is(value, FSDP_JSON_OBJECT))
        return bad(file, entry->name, "is described by no object");
    for (fsdp_json_iter_t it = fsdp_json_first(value); it.key != NULL;
         fsdp_json_next(&it))
        if (strcmp(it.key, "dtype") != 0 && strcmp(it.key, "shape") != 0 &&
            strcmp(it.key, "data_offsets") != 0)
            return bad(file, entry->name, "has a field that is not known");

    const char *dtype = fsdp_json_get_string(fsdp_json_member(value, "dtype"));
    entry->dtype =
        dtype != NULL ? fsdp_dtype_from_name(dtype) : FSDP_DTYPE_NONE;
    /* Only the format's own spelling counts.  Masks of old models are of type
     * BOOL, a byte each. */
    if (dtype != NULL && strcmp(dtype, "BOOL") == 0)
        entry->dtype = FSDP_UINT8;
    else if (entry->dtype == FSDP_DTYPE_NONE ||
             strcmp(dtype, fsdp_dtype_safetensors_name(entry->dtype)) != 0)
        return bad(file, entry->name,
                   "has a type other than F64, F32, F16, BF16, I64, I32, U8, "
                   "BOOL");
    fsdp_status_t status =
        parse_shape(file, fsdp_json_member(value, "shape"), entry);
    if (status != FSDP_OK)
        return status;
    return parse_offsets(file, fsdp_json_member(value, "data_offsets"), entry);
}

static fsdp_status_t
check_metadata(const fsdp_safetensors_t *file, const fsdp_json_t *metadata)
{
    bool sound = fsdp_json_is(metadata, FSDP_JSON_OBJECT);
    for (fsdp_json_iter_t it = fsdp_json_first(metadata);
         sound && it.key != NULL; fsdp_json_next(&it))
        sound = fsdp_json_get_string(it.value) != NULL;
    if (sound)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: \"__metadata__\" must map strings to strings",
                      file->path);
}

static int
by_place(const void *a, const void *b)
{
    const fsdp_safetensors_entry_t *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* No holes, no overlap, nothing after the last tensor. */
static fsdp_status_t
check_places(fsdp_safetensors_t *file)
{
    uint64_t end = 0;
    qsort(file->entry, file->count, sizeof *file->entry, by_place);
    for (size_t i = 0; i < file->count; i++) {
        if (file->entry[i].begin != end)
            return bad(file, file->entry[i].name,
                       file->entry[i].begin < end ? "overlaps the one before it"
                                                  : "leaves a hole before it");
        end = file->entry[i].end;
    }
    if (end != file->data_bytes)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no sound safetensors file: %llu bytes follow "
                          "the last tensor",
                          file->path,
                          (unsigned long long)(file->data_bytes - end));
    return FSDP_OK;
}

fsdp_status_t
fsdp_safetensors_parse_header(fsdp_safetensors_t *file, const char *text,
                              size_t length)
{
    if (length == 0 || text[0] != '{')
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s is no safetensors file: its header does not "
                          "begin with {",
                          file->path);
    fsdp_status_t status =
        fsdp_json_parse(file->path, text, length, &file->header);
    if (status != FSDP_OK)
        return status;
    if (!fsdp_json_is(file->header, FSDP_JSON_OBJECT))
        return fsdp_error(FSDP_ERR_INPUT, "%s: the header is no object",
                          file->path);

    file->entry = fsdp_calloc(FSDP_MEM_OTHER, fsdp_json_size(file->header) *
                                                  sizeof *file->entry);
    for (fsdp_json_iter_t it = fsdp_json_first(file->header);
         it.key != NULL && status == FSDP_OK; fsdp_json_next(&it)) {
        if (strcmp(it.key, "__metadata__") == 0) {
            status = check_metadata(file, it.value);
            continue;
        }
        fsdp_safetensors_entry_t *entry = &file->entry[file->count++];
        entry->name = fsdp_strdup(it.key);
        status = parse_entry(file, it.value, entry);
    }
    return status == FSDP_OK ? check_places(file) : status;
}
