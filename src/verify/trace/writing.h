/** \file writing.h  Floor 6, verify: the insides of writer.h.
 *
 *  writer.c         what is added
 *  writer_finish.c  the two files, at the end
 */
#ifndef FSDP_VERIFY_TRACE_WRITING_H
#define FSDP_VERIFY_TRACE_WRITING_H

#include "checkpoint/index.h"
#include "verify/trace/internal.h"
#include "verify/trace/writer.h"

/** One tensor that was added. */
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

/** Keeps fsdp_error_message(), if `status` is the first error. */
void trace_writer_fail(trace_writer_t *writer, fsdp_status_t status);

#endif
