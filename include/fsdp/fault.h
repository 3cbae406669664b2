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
      "gradients are summed in ring order instead of the asked one")           \
    /* of replicas */                                                          \
    X(FSDP_FAULT_REPLICAS_TWICE, "replicas-twice",                             \
      "the mean over the replicas is taken twice")                             \
    X(FSDP_FAULT_SKIP_ALL_REDUCE, "skip-all-reduce",                           \
      "the last sum over the replicas is left out")                            \
    X(FSDP_FAULT_LOSE_PARTIAL, "lose-partial",                                 \
      "what was reduce-scattered before the last micro-batch is forgotten")    \
    X(FSDP_FAULT_REPLICAS_IN_NORM, "replicas-in-norm",                         \
      "the norm adds up the gradients of all replicas")                        \
    /* of types */                                                             \
    X(FSDP_FAULT_REDUCE_LOW, "reduce-low",                                     \
      "gradients are cast to reduce_dtype after their sum, not before")        \
    X(FSDP_FAULT_LOW_GRAD, "low-grad",                                         \
      "the reduced gradient is rounded to param_dtype on its way")             \
    X(FSDP_FAULT_ACCUMULATE_LOW, "accumulate-low",                             \
      "gradients without synchronisation are added up in param_dtype")         \
    X(FSDP_FAULT_OUTPUT_UNCAST, "output-uncast",                               \
      "the model's output is not cast to output_dtype")                        \
    X(FSDP_FAULT_STALE_LOW_COPY, "stale-low-copy",                             \
      "the copy in param_dtype that is gathered is that of the step before")   \
    X(FSDP_FAULT_FOUND_INF_LOCAL, "found-inf-local",                           \
      "a rank skips the step by the infinities in its own gradients")          \
    /* of averaging, accumulation, prefetch, placement, losses */              \
    X(FSDP_FAULT_SKIP_POST_DIVIDE, "skip-post-divide",                         \
      "the division after the sum, and after the hook, is left out")           \
    X(FSDP_FAULT_DIVIDE_EARLY, "divide-early",                                 \
      "gradients are divided before the sum instead of after it")              \
    X(FSDP_FAULT_LOSE_ACCUMULATED, "lose-accumulated",                         \
      "gradients of the micro-batches before the last are forgotten")          \
    X(FSDP_FAULT_STALE_PREFETCH, "stale-prefetch",                             \
      "what is prefetched in the backward is that of the step before")         \
    X(FSDP_FAULT_SWAP_NEIGHBOURS, "swap-neighbours",                           \
      "parameters kept by K neighbours are put together the wrong way round")  \
    X(FSDP_FAULT_STRIDED_AS_PLAIN, "strided-as-plain",                         \
      "gradients that are cut along another dimension are cut as rows")        \
    X(FSDP_FAULT_PADDING_IN_NORM, "padding-in-norm",                           \
      "the norm counts what pads uneven shards, which is not zero")            \
    X(FSDP_FAULT_TOKENS_OF_RANK, "tokens-of-rank",                             \
      "losses are weighted by the tokens of the rank, not of all ranks")       \
    /* of experts */                                                           \
    X(FSDP_FAULT_EXPERT_MESH, "expert-mesh",                                   \
      "the expert mesh is mixed up: rows go to the next rank's experts")       \
    X(FSDP_FAULT_EXPERT_DIVIDE, "expert-divide",                               \
      "experts' gradients are divided by the ranks of their mesh, not by all")

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
