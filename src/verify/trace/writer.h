/** \file writer.h  Floor 6, verify: one rank's files of one step, being written.
 *
 *  Values go into a file without a name as they come, so that no step must fit
 *  into memory; what they are is kept.  At the end both files are put together
 *  under temporary names and renamed.  The first error is kept, and told at the
 *  end: nothing after it is written.  Not collective.
 */
#ifndef FSDP_VERIFY_TRACE_WRITER_H
#define FSDP_VERIFY_TRACE_WRITER_H

#include "base/json.h"
#include "fsdp/layout.h"
#include "fsdp/trace.h"

/** What is added.  `layout` or `columns` tell where the values belong in the
 *  whole; neither: they are all of it. */
typedef struct trace_thing {
    fsdp_trace_phase_t phase;
    int micro;
    const char *name;
    int call; /**< 2 for the second call of a unit: "NAME#1"; else 1 or 0     */
    fsdp_dtype_t dtype;
    int ndim;
    size_t shape[FSDP_MAX_DIMS]; /**< of the whole                           */
    const fsdp_layout_t *layout;
    /** Columns [first_column, + columns) of the last dimension; 0: all. */
    size_t first_column, columns;
} trace_thing_t;

typedef struct trace_writer trace_writer_t;

/** Of DIR/step-NNNNNN/rank-RRRRR. */
trace_writer_t *trace_writer_create(const char *dir, long step, int rank,
                                    int data_parallel_rank);
/** `data` has as many elements as the thing says; one that is there already is
 *  passed over.  */
void trace_writer_add(trace_writer_t *writer, const trace_thing_t *thing,
                      const void *data);
void trace_writer_add_collective(trace_writer_t *writer,
                                 const fsdp_ledger_entry_t *entry);
/** Writes both files; frees, nulls. */
fsdp_status_t trace_writer_finish(trace_writer_t **writer);
/** Without writing them. */
void trace_writer_abandon(trace_writer_t **writer);

/** Writes a text under a temporary name and renames it. */
fsdp_status_t trace_write_text(const char *path,
                               const fsdp_json_writer_t *json);
/** The text of trace.json. */
fsdp_json_writer_t *trace_about_write(const fsdp_trace_about_t *about);
/** Any JSON value again. */
void trace_json_copy(fsdp_json_writer_t *json, const fsdp_json_t *value);

#endif
