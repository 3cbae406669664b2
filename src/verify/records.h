/** \file records.h  Floor 6, verify: what happens in a micro-batch, in order.
 *
 *  Hooks on the units of a model copy their outputs and the gradients of their
 *  inputs.  The same hooks stand on the sharded model and on the baseline.
 */
#ifndef FSDP_VERIFY_RECORDS_H
#define FSDP_VERIFY_RECORDS_H

#include "fsdp/module.h"

typedef enum record_kind {
    RECORD_OUTPUT,
    RECORD_INPUT_GRAD,
    RECORD_REDUCED, /**< a reduced gradient: this rank's rows, padded */
    RECORD_KINDS
} record_kind_t;

typedef struct record {
    record_kind_t kind;
    uint64_t sequence; /**< when it happened                           */
    const char *unit;  /**< borrowed                                   */
    int param;         /**< RECORD_REDUCED: which                      */
    fsdp_dtype_t dtype;
    size_t numel;
    size_t columns; /**< of an activation: its last dimension   */
    void *data;     /**< owned                                      */
    int32_t *rows;  /**< of experts that ranks share out: how many of
                         each source and expert, [num_rows]; owned  */
    size_t num_rows;
} record_t;

typedef struct recorder {
    bool on;
    uint64_t sequence;    /**< of the next event                       */
    uint64_t last_output; /**< sequence of the latest RECORD_OUTPUT    */
    record_t *list;
    int count;
    size_t room;
    struct watched_call *calls; /**< of this micro-batch               */
} recorder_t;

/** A hooked module. */
typedef struct watch {
    recorder_t **recorder; /**< where to; borrowed                     */
    fsdp_module_t *module; /**< borrowed                               */
    const char *unit;      /**< borrowed                               */
    bool shared_out; /**< experts: the second input counts their rows  */
    bool recomputed; /**< within a checkpoint: outputs only, once      */
} watch_t;

/** Hooks the module; `watch` must stay where it is.  The flags are the caller's to
 *  set. */
void watch_begin(watch_t *watch, recorder_t **recorder, fsdp_module_t *module,
                 const char *unit);
void watch_end(watch_t *watch);

/** Adds a record; takes over nothing, copies `numel` elements and fills up to
 *  `padded_numel` with zeros. */
void recorder_add(recorder_t *recorder, record_kind_t kind, const char *unit,
                  int param, fsdp_dtype_t dtype, const void *data, size_t numel,
                  size_t padded_numel);
/** Forgets everything. */
void recorder_clear(recorder_t *recorder);
void recorder_destroy(recorder_t *recorder);

#endif
