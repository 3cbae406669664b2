/** \file recorded_run.h  Three steps of a perceptron on all ranks, of which the
 *  last two are recorded. */
#ifndef RECORDED_RUN_H
#define RECORDED_RUN_H

#include "fsdp.h"
#include "fsdp/trace.h"

enum {
    ROWS = 4,
    IN = 5,
    HIDDEN = 6,
    OUT = 3,
    MICROS = 2,
    STEPS = 3,
    MOST = 64, /**< elements of a record                                     */
    VARIANTS = 11
};
static const double lr = 0.125, clip = 0.0625;

typedef struct variant {
    fsdp_gradient_sync_t sync;
    bool fsdp1;
    int replicas; /* of an even number of ranks; else 1 */
    fsdp_dtype_t low;
    int tensor; /* the same, of ranks that share a batch */
    fsdp_reduce_order_t order;
    bool aligned; /* FSDP1: use_orig_params */
} variant_t;

extern const variant_t variants[VARIANTS];

typedef struct run {
    const variant_t *variant;
    int size, rank; /* of those with batches of their own */
    int tensor, replicas, shards;
    fsdp_mesh_t *mesh, *data_mesh; /* the latter is sharded over */
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
    fsdp_trace_recorder_t *recorder;
} run_t;

/** Before and after each test: all ranks write into one folder, whose name rank 0
 *  chooses. */
void make_folder(void);
void remove_folder(void);

/** The whole of it. */
void run_record(run_t *run, const variant_t *variant);
/** Or in its steps: model and optimizer; what is said of it; the recorder; all
 *  of a step but its end. */
void run_begin(run_t *run, const variant_t *variant);
fsdp_trace_about_t run_about(const run_t *run);
void run_begin_recording(run_t *run, const fsdp_trace_about_t *about);
void run_step(run_t *run, long step);
void run_end(run_t *run);

/** What was recorded, on rank 0. */
extern fsdp_trace_t *trace;
/** Rank 0 reads; facts of its own are asserted there alone, the others wait where
 *  the folder is taken away. */
bool is_first(void);
void open_trace(void);
/** All of a record; NaN throughout if there is none. */
const double *values_of(long step, fsdp_trace_phase_t phase, int micro,
                        const char *name, double values[MOST]);

#endif
