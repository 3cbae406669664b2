/** \file diagnosis.h  Floor 6, verify: why a tensor is wrong.
 *
 *  Given the first tensor that rounding cannot explain, and a way to any other
 *  tensor of the two traces, this tries one hypothesis after another: each makes
 *  the tensor that its mistake would have made, and explains if that is theirs in
 *  EVERY element, within the rounding of that computation.  What explains only a
 *  part is not told.
 *
 *  Nothing here reads files, so that each hypothesis can be tried on arrays.
 */
#ifndef FSDP_VERIFY_DIAGNOSIS_H
#define FSDP_VERIFY_DIAGNOSIS_H

#include "fsdp/verdict.h"
#include "verify/trace/replay.h"

typedef struct fsdp_symptom {
    /** What was meant (ours), and what they say of themselves. */
    const fsdp_trace_about_t *meant, *theirs;
    long step;
    fsdp_trace_phase_t phase;
    int micro; /**< global micro-batch; -1                                    */
    const char *name;
    fsdp_dtype_t dtype;
    int ndim;
    uint64_t shape[FSDP_SAFETENSORS_MAX_DIMS];
    uint64_t numel;
    /** All [numel]: theirs, what it should be, how far rounding may be from that;
     *  NaN and INFINITY where nothing is known. */
    const double *is, *expected, *bound;
    const int *owner; /**< [numel] rank that keeps it, -1: nobody; or NULL    */
    /** "two ranks have different copies": the other rank's, and its elements
     *  (NaN where it has none); else NULL. */
    const double *copy;
    int copy_rank[2]; /**< whose `is` is, whose `copy`                        */
    /** Another tensor: all of it, valid as long as the symptom; NULL: there is
     *  none.  `rank` >= 0: as that rank has it, NaN where it has nothing. */
    const double *(*get)(void *context, bool ours, long step,
                         fsdp_trace_phase_t phase, int micro, const char *name,
                         int rank, uint64_t *numel);
    /** This tensor as their step makes it with another model, in float64, [numel];
     *  valid until the next call; NULL: it cannot be run.  May be NULL. */
    const double *(*again)(void *context, const fsdp_replay_change_t *change);
    void *context;
} fsdp_symptom_t;

enum { FSDP_MAX_CAUSES = 6 };

/** Fills `cause` with what explains all of it, likeliest first; returns how
 *  many. */
int fsdp_diagnose(const fsdp_symptom_t *symptom,
                  fsdp_cause_t cause[FSDP_MAX_CAUSES]);

#endif
