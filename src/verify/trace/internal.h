/** \file internal.h  Floor 6, verify: an open trace's insides.
 *
 *  names.c   phases, keys "PHASE/MICRO/NAME", a pool of strings
 *  about.c   trace.json; fields.c: its members
 *  rank.c    rank-RRRRR.json: pieces, order, ledger
 *  folder.c  which steps and ranks the names of files tell of
 *  open.c    the folder: what is in its files
 *  join.c    what all ranks have of one thing is one record
 *  order.c   in which order records happened
 *  read.c    values
 */
#ifndef FSDP_VERIFY_TRACE_INTERNAL_H
#define FSDP_VERIFY_TRACE_INTERNAL_H

#include "base/json.h"
#include "checkpoint/index.h"
#include "fsdp/trace.h"

enum {
    TRACE_VERSION = 1,
    TRACE_MAX_JSON = 16 << 20, /**< bytes of one JSON file                  */
    TRACE_MAX_WORLD = 1 << 16,
    TRACE_MAX_MICRO = 1 << 30,
    TRACE_SMALL = 1 << 20, /**< elements that need no other evidence       */
    TRACE_OPEN_FILES = 32  /**< kept open while values are read            */
};

/* ---- names.c ------------------------------------------------------------ */

/** A string that a trace keeps once, and what trace.json says of it. */
typedef struct trace_name {
    const char *text;
    int unit;      /**< place in forward order; -1: no unit of the list   */
    int parameter; /**< place in model order; -1: no parameter of it      */
    int of_unit;   /**< of a parameter: place of its unit; -1: unknown    */
    struct trace_name *next; /**< with the same slot                      */
} trace_name_t;

typedef struct trace_pool {
    trace_name_t **slot; /**< [num_slots] */
    size_t num_slots, count;
} trace_pool_t;

/** The one copy of `text` (its first `length` bytes). */
trace_name_t *trace_pool_add(trace_pool_t *pool, const char *text,
                             size_t length);
/** NULL stays NULL. */
const char *trace_pool_text(trace_pool_t *pool, const char *text);
trace_name_t *trace_pool_find(const trace_pool_t *pool, const char *text);
void trace_pool_free(trace_pool_t *pool);

typedef enum trace_key_kind {
    TRACE_KEY_GOOD,
    TRACE_KEY_BAD,
    TRACE_KEY_UNKNOWN_STATE /**< "state.NAME/-/...": of an optimizer that we
                                 do not have                              */
} trace_key_kind_t;

/** Takes "PHASE/MICRO/NAME" apart; `name` points into `key`. */
trace_key_kind_t trace_key_parse(const char *key, fsdp_trace_phase_t *phase,
                                 int *micro, const char **name);
/** Does the phase have a micro-batch?  May its values be whole numbers? */
bool trace_phase_has_micro(fsdp_trace_phase_t phase);
bool trace_phase_may_be_integer(fsdp_trace_phase_t phase);
/** Is NAME a parameter there? */
bool trace_phase_is_of_parameter(fsdp_trace_phase_t phase);

/* ---- about.c ------------------------------------------------------------ */

typedef struct trace_about {
    fsdp_json_t *document;
    fsdp_trace_about_t about;
    int *rank; /**< owned lists of `about` */
    fsdp_trace_step_t *step;
    fsdp_trace_parameter_t *parameter;
    const char **unit;
} trace_about_t;

/** Reads the text of trace.json; `name` is for messages.  To be freed, also
 *  after an error. */
fsdp_status_t trace_about_parse(const char *name, const char *text,
                                size_t length, trace_about_t *about);
void trace_about_free(trace_about_t *about);

/* ---- rank.c ------------------------------------------------------------- */

/** One tensor of one file. */
typedef struct trace_item {
    trace_name_t *name;
    fsdp_trace_phase_t phase;
    int micro;
    size_t part;  /**< which file                                          */
    size_t entry; /**< which tensor of it                                  */
    uint64_t position; /**< in the order of the file's rank                */
    size_t record;     /**< which record it is a piece of                  */
    fsdp_dtype_t dtype;
    uint64_t numel; /**< of the piece                                      */
    int ndim;
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS]; /**< of the whole           */
    uint64_t whole_numel;
    bool whole;
    fsdp_index_run_t
        *run; /**< owned; NULL: all of it                          */
    size_t num_runs;
} trace_item_t;

/** The two files of one rank's step. */
typedef struct trace_part {
    long step;
    int rank, data_parallel_rank; /**< -1: unknown                          */
    char *path;                   /**< of the tensors; NULL: there are none  */
    trace_item_t *item;           /**< owned                                */
    size_t num_items;
    fsdp_trace_collective_t *collective; /**< owned                         */
    size_t num_collectives;
    uint64_t numel;           /**< of all tensors                            */
    fsdp_safetensors_t *file; /**< open, or NULL                            */
    uint64_t used;            /**< when it was last                         */
} trace_part_t;

/** Makes items of the tensors of a file: all whole, in no order. */
fsdp_status_t trace_part_list(const fsdp_safetensors_t *file,
                              trace_pool_t *pool, trace_part_t *part);
/** Reads the text of a rank's JSON: `part` has its step, rank and items, and
 *  gets pieces, positions and the ledger. */
fsdp_status_t trace_part_parse(const char *name, const char *text,
                               size_t length, int world_size,
                               trace_pool_t *pool, trace_part_t *part);
void trace_part_free(trace_part_t *part);

/* ---- folder.c ----------------------------------------------------------- */

/** The numbers of a folder's entries, sorted, each once. */
typedef struct trace_numbers {
    long *list; /**< owned */
    size_t count, room;
} trace_numbers_t;

/** Ranks of "rank-RRRRR.json" and ".safetensors", or steps of "step-NNNNNN".  The
 *  list is to be freed, also after an error. */
fsdp_status_t trace_numbers_list(const char *dir, bool ranks,
                                 trace_numbers_t *numbers);
/** FSDP_ERR_IO with errno's reason. */
fsdp_status_t trace_cannot_open(const char *path);

/* ---- the whole ---------------------------------------------------------- */

struct fsdp_trace {
    char *path;
    trace_about_t about;
    trace_pool_t pool;
    trace_part_t *part; /**< by step, then rank                            */
    size_t num_parts;
    trace_item_t **item; /**< [num_pieces], as `piece`                     */
    fsdp_trace_piece_t *piece;
    size_t num_pieces;
    fsdp_trace_record_t *record; /**< by what they are: trace_record_order() */
    size_t num_records;
    size_t *happened; /**< [num_records], which record is the i-th          */
    size_t *place;    /**< [num_records], the reverse                       */
    uint64_t clock;
    int num_open;
};

/** By step, phase, micro-batch and name. */
int trace_record_order(const fsdp_trace_record_t *a,
                       const fsdp_trace_record_t *b);
/** Fills piece, record from the parts. */
fsdp_status_t trace_join(fsdp_trace_t *trace);
/** What trace.json says of names becomes known to the pool. */
void trace_learn_names(fsdp_trace_t *trace);
/** Gives the items of a part without an order the one of the page. */
void trace_order_part(trace_part_t *part);
/** Fills happened and place. */
void trace_order_records(fsdp_trace_t *trace);

#endif
