#include "verify/trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "checkpoint/index.h"
#include "fsdp/memory.h"
#include "verify/trace/internal.h"

enum { BLOCK = 1 << 20 };

/* One tensor that was added. */
typedef struct added {
    fsdp_safetensors_entry_t entry; /**< its name is owned                   */
    int ndim;
    size_t shape[FSDP_MAX_DIMS]; /**< of the whole                           */
    fsdp_index_piece_t piece;    /**< no runs and `whole`: all of it         */
    bool whole;
} added_t;

struct trace_writer {
    char *dir, *stem; /**< of the step; of both files, without their ends    */
    long step;
    int rank, data_parallel_rank;
    int spool; /**< values in the order of `added`; has no name               */
    added_t *added;
    size_t count, room;
    trace_pool_t keys;
    fsdp_ledger_entry_t *ledger;
    size_t ledger_count, ledger_room;
    fsdp_status_t status;
    char *message; /**< of the first error                                    */
};

static void
fail(trace_writer_t *writer, fsdp_status_t status)
{
    if (writer->status != FSDP_OK || status == FSDP_OK)
        return;
    writer->status = status;
    writer->message = fsdp_strdup(fsdp_error_message());
}

static void
fail_io(trace_writer_t *writer, const char *what)
{
    fail(writer, fsdp_error(FSDP_ERR_IO,
                            "%s cannot be %s: %s; choose a folder with room "
                            "and write permission for --record",
                            writer->stem, what, strerror(errno)));
}

/* ---- create ---------------------------------------------------------------- */

static void
open_spool(trace_writer_t *writer)
{
    char *name = fsdp_format("%s.spool.tmp-%ld", writer->stem, (long)getpid());
    writer->spool = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->spool < 0)
        fail_io(writer, "written");
    else
        unlink(name);
    fsdp_free(name);
}

trace_writer_t *
trace_writer_create(const char *dir, long step, int rank,
                    int data_parallel_rank)
{
    trace_writer_t *w = fsdp_calloc(FSDP_MEM_OTHER, sizeof *w);
    w->dir = fsdp_format("%s/step-%06ld", dir, step);
    w->stem = fsdp_format("%s/rank-%05d", w->dir, rank);
    w->step = step;
    w->rank = rank;
    w->data_parallel_rank = data_parallel_rank;
    w->spool = -1;
    if (mkdir(w->dir, 0777) != 0 && errno != EEXIST)
        fail_io(w, "made");
    else
        open_spool(w);
    return w;
}

/* ---- adding ------------------------------------------------------------------ */

static void *
make_room(void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    *room = *room > 0 ? 2 * *room : 64;
    void *grown = fsdp_alloc(FSDP_MEM_OTHER, *room * size);
    if (count > 0)
        memcpy(grown, list, count * size);
    fsdp_free(list);
    return grown;
}

static char *
key_of(const trace_thing_t *thing)
{
    const char *phase = fsdp_trace_phase_name(thing->phase);
    char micro[16] = "-", call[16] = "";
    if (thing->micro >= 0)
        snprintf(micro, sizeof micro, "%d", thing->micro);
    if (thing->call > 1)
        snprintf(call, sizeof call, "#%d", thing->call - 1);
    return fsdp_format("%s/%s/%s%s", phase, micro, thing->name, call);
}

static fsdp_index_piece_t
columns_piece(const trace_thing_t *thing, size_t numel)
{
    size_t columns = thing->shape[thing->ndim - 1];
    fsdp_index_piece_t piece = {.num_runs = 1};
    piece.run = fsdp_alloc(FSDP_MEM_OTHER, sizeof *piece.run);
    piece.run[0] = (fsdp_index_run_t){thing->first_column, thing->columns,
                                      columns, numel / columns};
    piece.numel = thing->columns * (numel / columns);
    return piece;
}

/* Which elements there are. */
static void
describe(const trace_thing_t *thing, added_t *added)
{
    size_t numel = 1;
    added->ndim = thing->ndim;
    for (int d = 0; d < thing->ndim; d++) {
        added->shape[d] = thing->shape[d];
        numel *= thing->shape[d];
    }
    if (thing->layout != NULL)
        added->piece = fsdp_index_piece_of(thing->layout, 0);
    else if (thing->columns > 0)
        added->piece = columns_piece(thing, numel);
    else
        added->whole = true;
    bool one_run = added->piece.num_runs == 1 &&
                   added->piece.run[0].begin == 0 &&
                   added->piece.run[0].count == numel;
    added->whole |= one_run;
    fsdp_safetensors_entry_t *entry = &added->entry;
    entry->dtype = thing->dtype;
    entry->ndim = added->whole ? thing->ndim : 1;
    entry->numel = added->whole ? numel : added->piece.numel;
    entry->shape[0] = entry->numel;
    for (int d = 0; d < entry->ndim && added->whole; d++)
        entry->shape[d] = thing->shape[d];
}

static void
spool(trace_writer_t *writer, const void *data, uint64_t bytes)
{
    const char *from = data;
    while (bytes > 0 && writer->status == FSDP_OK) {
        ssize_t done = write(writer->spool, from,
                             bytes < (1u << 30) ? (size_t)bytes : 1u << 30);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            fail_io(writer, "written");
            return;
        }
        from += done;
        bytes -= (uint64_t)done;
    }
}

void
trace_writer_add(trace_writer_t *writer, const trace_thing_t *thing,
                 const void *data)
{
    if (writer->status != FSDP_OK)
        return;
    char *key = key_of(thing);
    if (trace_pool_find(&writer->keys, key) != NULL) {
        fsdp_free(key);
        return;
    }
    trace_pool_add(&writer->keys, key, strlen(key));
    writer->added = make_room(writer->added, writer->count, &writer->room,
                              sizeof *writer->added);
    added_t *added = &writer->added[writer->count++];
    *added = (added_t){.entry.name = key};
    describe(thing, added);
    spool(writer, data,
          added->entry.numel * fsdp_dtype_size(added->entry.dtype));
}

void
trace_writer_add_collective(trace_writer_t *writer,
                            const fsdp_ledger_entry_t *entry)
{
    writer->ledger = make_room(writer->ledger, writer->ledger_count,
                               &writer->ledger_room, sizeof *writer->ledger);
    writer->ledger[writer->ledger_count++] = *entry;
}

/* ---- JSON ----------------------------------------------------------------------- */

static void
write_piece(fsdp_json_writer_t *json, const added_t *added)
{
    fsdp_json_key(json, added->entry.name);
    fsdp_json_open_object(json);
    fsdp_json_key(json, "shape");
    fsdp_json_open_array(json);
    for (int d = 0; d < added->ndim; d++)
        fsdp_json_integer(json, (int64_t)added->shape[d]);
    fsdp_json_close_array(json);
    fsdp_index_runs_write(&added->piece, json);
    fsdp_json_close_object(json);
}

static void
write_collective(fsdp_json_writer_t *json, const fsdp_ledger_entry_t *entry)
{
    static const char *const op[] = {
        [FSDP_SUM] = "sum", [FSDP_MAX] = "max", [FSDP_MIN] = "min"};
    bool adds =
        entry->kind == FSDP_REDUCE_SCATTER || entry->kind == FSDP_ALL_REDUCE;
    fsdp_json_open_object(json);
    fsdp_json_key(json, "sequence");
    fsdp_json_integer(json, (int64_t)entry->sequence);
    fsdp_json_put_string(json, "kind", fsdp_collective_name(entry->kind));
    fsdp_json_put_string(json, "unit", entry->unit);
    fsdp_json_put_string(json, "dtype", fsdp_dtype_name(entry->dtype));
    fsdp_json_key(json, "bytes");
    fsdp_json_integer(json, (int64_t)entry->bytes);
    fsdp_json_put_string(json, "op", adds ? op[entry->op] : NULL);
    fsdp_json_put_string(json, "group", entry->comm);
    fsdp_json_close_object(json);
}

static fsdp_json_writer_t *
write_json(const trace_writer_t *writer)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_json_open_object(json);
    fsdp_json_key(json, "rank");
    fsdp_json_integer(json, writer->rank);
    fsdp_json_key(json, "step");
    fsdp_json_integer(json, writer->step);
    fsdp_json_key(json, "data_parallel_rank");
    fsdp_json_integer(json, writer->data_parallel_rank);
    fsdp_json_key(json, "order");
    fsdp_json_open_array(json);
    for (size_t i = 0; i < writer->count; i++)
        fsdp_json_string(json, writer->added[i].entry.name);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "pieces");
    fsdp_json_open_object(json);
    for (size_t i = 0; i < writer->count; i++)
        if (!writer->added[i].whole)
            write_piece(json, &writer->added[i]);
    fsdp_json_close_object(json);
    fsdp_json_key(json, "ledger");
    fsdp_json_open_array(json);
    for (size_t i = 0; i < writer->ledger_count; i++)
        write_collective(json, &writer->ledger[i]);
    fsdp_json_close_array(json);
    fsdp_json_close_object(json);
    return json;
}

fsdp_status_t
trace_write_text(const char *path, const fsdp_json_writer_t *json)
{
    char *temporary = fsdp_format("%s.tmp-%ld", path, (long)getpid());
    fsdp_status_t status = fsdp_file_write(
        temporary, fsdp_json_writer_text(json), fsdp_json_writer_length(json));
    if (status == FSDP_OK && rename(temporary, path) != 0)
        status = fsdp_error(FSDP_ERR_IO, "%s: cannot be written: %s", path,
                            strerror(errno));
    if (status != FSDP_OK)
        unlink(temporary);
    fsdp_free(temporary);
    return status;
}

/* ---- the end --------------------------------------------------------------------- */

static fsdp_status_t
append_spool(const trace_writer_t *writer, fsdp_safetensors_writer_t *file)
{
    char *block = fsdp_alloc(FSDP_MEM_OTHER, BLOCK);
    fsdp_status_t status = FSDP_OK;
    off_t at = 0;
    ssize_t got;
    while (status == FSDP_OK &&
           (got = pread(writer->spool, block, BLOCK, at)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = fsdp_error(FSDP_ERR_IO, "%s cannot be read back: %s",
                                writer->stem, strerror(errno));
            break;
        }
        status = fsdp_safetensors_append(file, block, (uint64_t)got);
        at += got;
    }
    fsdp_free(block);
    return status;
}

static fsdp_status_t
write_tensors(const trace_writer_t *writer)
{
    char *path = fsdp_format("%s.safetensors", writer->stem);
    fsdp_safetensors_entry_t *entries =
        fsdp_alloc(FSDP_MEM_OTHER, writer->count * sizeof *entries);
    for (size_t i = 0; i < writer->count; i++)
        entries[i] = writer->added[i].entry;
    fsdp_safetensors_writer_t *file;
    fsdp_status_t status =
        fsdp_safetensors_create(path, entries, writer->count, NULL, 0, &file);
    if (status == FSDP_OK)
        status = append_spool(writer, file);
    if (status == FSDP_OK)
        status = fsdp_safetensors_commit(&file);
    else
        fsdp_safetensors_abandon(&file);
    fsdp_free(entries);
    fsdp_free(path);
    return status;
}

fsdp_status_t
trace_writer_finish(trace_writer_t **writer)
{
    trace_writer_t *w = *writer;
    if (w->status == FSDP_OK)
        fail(w, write_tensors(w));
    if (w->status == FSDP_OK) {
        fsdp_json_writer_t *json = write_json(w);
        char *path = fsdp_format("%s.json", w->stem);
        fail(w, trace_write_text(path, json));
        fsdp_json_writer_destroy(&json);
        fsdp_free(path);
    }
    fsdp_status_t status = FSDP_OK;
    if (w->status != FSDP_OK)
        status = fsdp_error(w->status, "%s", w->message);
    trace_writer_abandon(writer);
    return status;
}

void
trace_writer_abandon(trace_writer_t **writer)
{
    trace_writer_t *w = *writer;
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->count; i++) {
        fsdp_free(w->added[i].entry.name);
        fsdp_free(w->added[i].piece.run);
    }
    if (w->spool >= 0)
        close(w->spool);
    trace_pool_free(&w->keys);
    fsdp_free(w->added);
    fsdp_free(w->ledger);
    fsdp_free(w->message);
    fsdp_free(w->stem);
    fsdp_free(w->dir);
    fsdp_free(w);
    *writer = NULL;
}
