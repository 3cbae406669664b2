/* Both files of a rank's step are put together. */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "fsdp/memory.h"
#include "verify/trace/writing.h"

enum { BLOCK = 1 << 20 };

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
    return fsdp_file_replace(path, fsdp_json_writer_text(json),
                             fsdp_json_writer_length(json));
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
        trace_writer_fail(w, write_tensors(w));
    if (w->status == FSDP_OK) {
        fsdp_json_writer_t *json = write_json(w);
        char *path = fsdp_format("%s.json", w->stem);
        trace_writer_fail(w, trace_write_text(path, json));
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
