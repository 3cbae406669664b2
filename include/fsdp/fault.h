/** \file fault.h  Floor 0, base: faults that can be put into a run on purpose.
 *
 *  A verification is worth what it finds.  Each fault stands where such a bug
 *  would live in real code, behind `if (fsdp_fault(FSDP_FAULT_...))`.
 */
#ifndef FSDP_FAULT_H
#define FSDP_FAULT_H

#include <stdbool.h>

#include "fsdp/status.h"

/** name, option value, what it does */
#define FSDP_FAULT_LIST(X)                                                     \
    X(FSDP_FAULT_SKIP_BIAS_REDUCE, "skip-bias-reduce",                         \
      "one-dimensional gradients are not summed over ranks")                   \
    X(FSDP_FAULT_SUM_NOT_MEAN, "sum-not-mean",                                 \
      "the reduced gradient is not divided")                                   \
    X(FSDP_FAULT_MEAN_NOT_SUM, "mean-not-sum",                                 \
      "the divide factor is applied twice")                                    \
    X(FSDP_FAULT_STALE_SHARD, "stale-shard",                                   \
      "the last rank all-gathers the shard of the step before")                \
    X(FSDP_FAULT_DROP_TAIL, "drop-tail",                                       \
      "the tail of the last chunk (all of it if uneven) gets no gradient")     \
    X(FSDP_FAULT_SHIFT_CHUNK, "shift-chunk",                                   \
      "gradient chunks are cut one row too late")                              \
    X(FSDP_FAULT_SKIP_RANK, "skip-rank",                                       \
      "the last rank's gradient is left out of the sum")                       \
    X(FSDP_FAULT_REUSE_BUFFER, "reuse-buffer",                                 \
      "the reduction buffer is overwritten while in flight")                   \
    X(FSDP_FAULT_LOCAL_NORM, "local-norm",                                     \
      "gradients are clipped by the norm of the rank's own shards")            \
    X(FSDP_FAULT_UNREDUCED_REPLICA, "unreduced-replica",                       \
      "each rank's gathered copy of a bias has an update of its own")          \
    X(FSDP_FAULT_HALF_BATCH, "half-batch",                                     \
      "two ranks read the same micro-batch")                                   \
    X(FSDP_FAULT_WRONG_ORDER, "wrong-order",                                   \
      "gradients are summed in ring order instead of the asked one")

typedef enum fsdp_fault_kind {
    FSDP_FAULT_NONE,
#define FSDP_FAULT_ENUM(name, option, text) name,
    FSDP_FAULT_LIST(FSDP_FAULT_ENUM)
#undef FSDP_FAULT_ENUM
    FSDP_FAULT_COUNT
} fsdp_fault_kind_t;

/** Is `kind` to happen now, i.e. chosen and the step is its step? */
bool fsdp_fault(fsdp_fault_kind_t kind);

/** Chooses from "NAME" (every step from 1) or "NAME@STEP" (that step only). */
fsdp_status_t fsdp_fault_choose(const char *text);
void fsdp_fault_choose_none(void);
/** Tells which training step runs now, counted from 1. */
void fsdp_fault_set_step(long step);
/** The chosen fault, FSDP_FAULT_NONE if none. */
fsdp_fault_kind_t fsdp_fault_chosen(void);
const char *fsdp_fault_name(fsdp_fault_kind_t kind);
const char *fsdp_fault_text(fsdp_fault_kind_t kind);

#endif
