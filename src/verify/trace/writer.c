/* What is recorded goes into the spool, in the order in which it comes. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "fsdp/memory.h"
#include "verify/trace/writing.h"

void
trace_writer_fail(trace_writer_t *writer, fsdp_status_t status)
{
    if (writer->status != FSDP_OK || status == FSDP_OK)
        return;
    writer->status = status;
    writer->message = fsdp_strdup(fsdp_error_message());
}

static void
fail_io(trace_writer_t *writer, const char *what)
{
    trace_writer_fail(
        writer, fsdp_error(FSDP_ERR_IO,
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
    writer->added = fsdp_grow(FSDP_MEM_OTHER, writer->added, writer->count,
                              &writer->room, 64, sizeof *writer->added);
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
    writer->ledger =
        fsdp_grow(FSDP_MEM_OTHER, writer->ledger, writer->ledger_count,
                  &writer->ledger_room, 64, sizeof *writer->ledger);
    writer->ledger[writer->ledger_count++] = *entry;
}
