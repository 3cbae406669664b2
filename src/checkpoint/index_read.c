/* Reading an index that anybody may have written. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/index.h"
#include "fsdp/memory.h"

/* Where we are, for messages. */
typedef struct reader {
    const char *name;
    fsdp_index_t *index;
} reader_t;

static fsdp_status_t
bad(const reader_t *r, const char *where, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s is no sound index of a checkpoint: %s %s; use "
                      "another checkpoint",
                      r->name, where, what);
}

/* ---- values ------------------------------------------------------------- */

/* A list of `size`-byte items for the elements of an array. */
static void *
room_for(const fsdp_json_t *array, size_t size, size_t *count)
{
    *count = fsdp_json_size(array);
    return fsdp_calloc(FSDP_MEM_OTHER, *count * size);
}

/* ---- files -------------------------------------------------------------- */

/* A name that stays in the checkpoint's folder. */
static bool
is_plain_name(const char *name)
{
    return name != NULL && name[0] != '\0' && name[0] != '.' &&
           strchr(name, '/') == NULL && strlen(name) < 200;
}

static fsdp_status_t
read_files(const reader_t *r, const fsdp_json_t *files)
{
    fsdp_index_t *index = r->index;
    if (!fsdp_json_is(files, FSDP_JSON_ARRAY))
        return bad(r, "\"files\"", "is no array");
    index->file = room_for(files, sizeof *index->file, &index->num_files);
    for (size_t i = 0; i < index->num_files; i++) {
        const fsdp_json_t *entry = fsdp_json_at(files, i);
        fsdp_index_file_t *file = &index->file[i];
        const char *name =
            fsdp_json_get_string(fsdp_json_member(entry, "name"));
        if (!is_plain_name(name))
            return bad(r, "a file", "has no name, or one with a folder in it");
        file->name = fsdp_strdup(name);
        if (!fsdp_json_get_count(fsdp_json_member(entry, "bytes"), INT64_MAX,
                                 &file->bytes))
            return bad(r, name, "has no size");
        if (!fsdp_json_get_hash(fsdp_json_member(entry, "xxh3_64"),
                                &file->checksum))
            return bad(r, name, "has no checksum of 16 digits");
    }
    return FSDP_OK;
}

/* ---- pieces ------------------------------------------------------------- */

/* The last element of all is within `numel`, and nothing overflows. */
static bool
run_fits(const fsdp_index_run_t *run, uint64_t numel)
{
    uint64_t way, end;
    if (run->count == 0 || run->repeat == 0)
        return false;
    if (run->repeat > 1 && run->stride < run->count)
        return false;
    return !__builtin_mul_overflow(run->repeat - 1, run->stride, &way) &&
           !__builtin_add_overflow(way, run->begin, &end) &&
           !__builtin_add_overflow(end, run->count, &end) && end <= numel;
}

const char *
fsdp_index_run_read(const fsdp_json_t *value, uint64_t numel,
                    fsdp_index_run_t *run)
{
    uint64_t *const field[] = {&run->begin, &run->count, &run->stride,
                               &run->repeat};
    bool good =
        fsdp_json_is(value, FSDP_JSON_ARRAY) && fsdp_json_size(value) == 4;
    for (size_t i = 0; i < 4 && good; i++)
        good = fsdp_json_get_count(fsdp_json_at(value, i), INT64_MAX, field[i]);
    if (!good)
        return "has a run that is not four whole numbers";
    return run_fits(run, numel) ? NULL : "has a run that lies outside of it";
}

static fsdp_status_t
read_piece(const reader_t *r, const fsdp_json_t *value,
           const fsdp_index_parameter_t *parameter, fsdp_index_piece_t *piece)
{
    uint64_t file;
    const fsdp_json_t *runs = fsdp_json_member(value, "runs");
    if (!fsdp_json_get_count(fsdp_json_member(value, "file"),
                             (int64_t)r->index->num_files - 1, &file))
        return bad(r, parameter->name, "has a piece in no file of the list");
    if (!fsdp_json_is(runs, FSDP_JSON_ARRAY))
        return bad(r, parameter->name, "has a piece without runs");
    piece->file = (int)file;
    piece->run = room_for(runs, sizeof *piece->run, &piece->num_runs);
    for (size_t i = 0; i < piece->num_runs; i++) {
        const char *fault = fsdp_index_run_read(
            fsdp_json_at(runs, i), parameter->numel, &piece->run[i]);
        if (fault != NULL)
            return bad(r, parameter->name, fault);
        piece->numel += piece->run[i].count * piece->run[i].repeat;
        if (piece->numel > parameter->numel ||
            piece->numel > r->index->file[file].bytes)
            return bad(r, parameter->name,
                       "has a piece larger than itself or than its file");
    }
    return FSDP_OK;
}

/* ---- does each element come once? ---------------------------------------- */

typedef struct range {
    uint64_t begin, end;
} range_t;

static int
by_begin(const void *a, const void *b)
{
    const range_t *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* All runs of a parameter, one by one.  There are no more of them than elements,
 * which the files have room for. */
static range_t *
all_ranges(const fsdp_index_parameter_t *parameter, size_t *count)
{
    *count = 0;
    for (size_t p = 0; p < parameter->num_pieces; p++)
        for (size_t i = 0; i < parameter->piece[p].num_runs; i++)
            *count += parameter->piece[p].run[i].repeat;
    range_t *range = fsdp_alloc(FSDP_MEM_OTHER, *count * sizeof *range);
    size_t at = 0;
    for (size_t p = 0; p < parameter->num_pieces; p++)
        for (size_t i = 0; i < parameter->piece[p].num_runs; i++) {
            const fsdp_index_run_t *run = &parameter->piece[p].run[i];
            for (uint64_t k = 0; k < run->repeat; k++, at++) {
                range[at].begin = run->begin + k * run->stride;
                range[at].end = range[at].begin + run->count;
            }
        }
    return range;
}

static fsdp_status_t
check_cover(const reader_t *r, const fsdp_index_parameter_t *parameter)
{
    size_t count;
    uint64_t numel = 0, at = 0;
    for (size_t p = 0; p < parameter->num_pieces; p++)
        if (__builtin_add_overflow(numel, parameter->piece[p].numel, &numel))
            numel = UINT64_MAX;
    if (numel != parameter->numel)
        return bad(r, parameter->name,
                   "has pieces that have not the number of its elements");
    range_t *range = all_ranges(parameter, &count);
    qsort(range, count, sizeof *range, by_begin);
    bool good = true;
    for (size_t i = 0; i < count && good; at = range[i++].end)
        good = range[i].begin == at;
    fsdp_free(range);
    if (!good || at != parameter->numel)
        return bad(r, parameter->name,
                   "has elements that are in two pieces or in none");
    return FSDP_OK;
}

/* ---- parameters --------------------------------------------------------- */

static fsdp_status_t
read_shape(const reader_t *r, const fsdp_json_t *shape,
           fsdp_index_parameter_t *parameter)
{
    size_t ndim = fsdp_json_size(shape);
    if (!fsdp_json_is(shape, FSDP_JSON_ARRAY) || ndim < 1 ||
        ndim > FSDP_MAX_DIMS)
        return bad(r, parameter->name, "has no shape of 1 to 4 numbers");
    parameter->ndim = (int)ndim;
    parameter->numel = 1;
    for (size_t d = 0; d < ndim; d++)
        if (!fsdp_json_get_count(fsdp_json_at(shape, d), INT64_MAX,
                                 &parameter->shape[d]) ||
            __builtin_mul_overflow(parameter->numel, parameter->shape[d],
                                   &parameter->numel) ||
            parameter->numel > INT64_MAX)
            return bad(r, parameter->name, "has a shape whose size overflows");
    return FSDP_OK;
}

static fsdp_status_t
read_parameter(const reader_t *r, const fsdp_json_t *value,
               fsdp_index_parameter_t *parameter)
{
    const char *name = fsdp_json_get_string(fsdp_json_member(value, "name"));
    const char *dtype = fsdp_json_get_string(fsdp_json_member(value, "dtype"));
    const fsdp_json_t *pieces = fsdp_json_member(value, "pieces");
    uint64_t step;
    if (name == NULL)
        return bad(r, "a parameter", "has no name");
    parameter->name = fsdp_strdup(name);
    parameter->dtype =
        dtype != NULL ? fsdp_dtype_from_name(dtype) : FSDP_DTYPE_NONE;
    if (!fsdp_dtype_is_floating(parameter->dtype))
        return bad(r, name, "has no floating \"dtype\"");
    if (!fsdp_json_get_count(fsdp_json_member(value, "optimizer_step"),
                             INT32_MAX, &step))
        return bad(r, name, "has no \"optimizer_step\"");
    parameter->optimizer_step = (long)step;
    fsdp_status_t status =
        read_shape(r, fsdp_json_member(value, "shape"), parameter);
    if (status != FSDP_OK)
        return status;
    if (!fsdp_json_is(pieces, FSDP_JSON_ARRAY))
        return bad(r, name, "has no array \"pieces\"");
    parameter->piece =
        room_for(pieces, sizeof *parameter->piece, &parameter->num_pieces);
    for (size_t i = 0; i < parameter->num_pieces && status == FSDP_OK; i++)
        status = read_piece(r, fsdp_json_at(pieces, i), parameter,
                            &parameter->piece[i]);
    return status;
}

static fsdp_status_t
read_parameters(const reader_t *r, const fsdp_json_t *list)
{
    fsdp_index_t *index = r->index;
    fsdp_status_t status = FSDP_OK;
    if (!fsdp_json_is(list, FSDP_JSON_ARRAY))
        return bad(r, "\"parameters\"", "is no array");
    index->parameter =
        room_for(list, sizeof *index->parameter, &index->num_parameters);
    for (size_t i = 0; i < index->num_parameters && status == FSDP_OK; i++)
        status = read_parameter(r, fsdp_json_at(list, i), &index->parameter[i]);
    return status;
}

/* ---- the whole ---------------------------------------------------------- */

static fsdp_status_t
read_states(const reader_t *r, const fsdp_json_t *states)
{
    if (!fsdp_json_is(states, FSDP_JSON_ARRAY) ||
        fsdp_json_size(states) > FSDP_INDEX_MAX_STATES)
        return bad(r, "\"optimizer_states\"", "is no array of up to 4 names");
    for (size_t i = 0; i < fsdp_json_size(states); i++) {
        const char *name = fsdp_json_get_string(fsdp_json_at(states, i));
        if (name == NULL)
            return bad(r, "\"optimizer_states\"", "has one that is no name");
        r->index->state[i] = fsdp_strdup(name);
    }
    return FSDP_OK;
}

static fsdp_status_t
read_head(const reader_t *r, const fsdp_json_t *all)
{
    const char *format = fsdp_json_get_string(fsdp_json_member(all, "format"));
    uint64_t version, step, world;
    if (format == NULL || strcmp(format, "libfsdp-checkpoint") != 0)
        return bad(r, "\"format\"", "is not \"libfsdp-checkpoint\"");
    if (!fsdp_json_get_count(fsdp_json_member(all, "version"), INT32_MAX,
                             &version) ||
        version != FSDP_INDEX_VERSION)
        return bad(r, "\"version\"", "is not 1");
    if (!fsdp_json_get_count(fsdp_json_member(all, "step"), INT64_MAX, &step))
        return bad(r, "\"step\"", "is no whole number");
    if (!fsdp_json_get_count(fsdp_json_member(all, "world_size"), 1 << 20,
                             &world) ||
        world < 1)
        return bad(r, "\"world_size\"", "is no number of ranks");
    if (!fsdp_json_is(fsdp_json_member(all, "metadata"), FSDP_JSON_OBJECT))
        return bad(r, "\"metadata\"", "is no object");
    r->index->step = (long)step;
    r->index->world_size = (int)world;
    return read_states(r, fsdp_json_member(all, "optimizer_states"));
}

fsdp_status_t
fsdp_index_read(const char *name, const char *text, size_t length,
                fsdp_index_t *index)
{
    *index = (fsdp_index_t){0};
    reader_t r = {name, index};
    fsdp_status_t status =
        fsdp_json_parse(name, text, length, &index->document);
    if (status != FSDP_OK)
        return status;
    status = read_head(&r, index->document);
    if (status == FSDP_OK)
        status = read_files(&r, fsdp_json_member(index->document, "files"));
    if (status == FSDP_OK && index->num_files != (size_t)index->world_size)
        status = bad(&r, "\"files\"", "is not one for each rank");
    if (status == FSDP_OK)
        status = read_parameters(
            &r, fsdp_json_member(index->document, "parameters"));
    return status;
}

fsdp_status_t
fsdp_index_check_cover(const char *name, const fsdp_index_t *index)
{
    const reader_t r = {name, NULL};
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < index->num_parameters && status == FSDP_OK; i++)
        status = check_cover(&r, &index->parameter[i]);
    return status;
}
