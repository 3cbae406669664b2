/** \file verdict.h  Floor 6, verify: is another system's training right?
 *
 *  Compares a trace of theirs with one of ours (trace.h), tensor by tensor, in
 *  the order in which theirs happened, and says *equal* (in every bit), *within
 *  rounding* (of a bound that is derived, not chosen) or *wrong*, with the place
 *  where it first went wrong.  tutorials/verdict.md tells how bounds are derived.
 *
 *  A tensor is judged by what stands before it in THEIR trace wherever that is
 *  enough: a reduced gradient by their own gradients, an update by their own
 *  gradient and state, activations by a step that starts from their own
 *  parameters.  So one fault is found once, at its place, and what rounding
 *  became in earlier steps excuses nothing.
 *
 *  Not collective: one process reads and computes everything.
 */
#ifndef FSDP_VERDICT_H
#define FSDP_VERDICT_H

#include <stdio.h>

#include "fsdp/trace.h"

typedef enum fsdp_verdict_kind {
    FSDP_VERDICT_UNCHECKED, /**< nothing to judge it by                      */
    FSDP_VERDICT_EQUAL,     /**< to ours, in every bit                       */
    FSDP_VERDICT_WITHIN_ROUNDING,
    FSDP_VERDICT_WRONG
} fsdp_verdict_kind_t;

/** "equal", "within rounding", "wrong", "unchecked". */
const char *fsdp_verdict_kind_name(fsdp_verdict_kind_t kind);

/** One tensor of theirs, judged. */
typedef struct fsdp_verdict_tensor {
    const fsdp_trace_record_t *theirs; /**< borrowed from their trace        */
    const fsdp_trace_record_t *ours;   /**< its counterpart; NULL: none      */
    fsdp_verdict_kind_t kind;
    const char *rule; /**< what the expected value is; NULL: nothing to go by */
    const char *why;  /**< it is wrong; NULL if it is not                    */
    bool weak;        /**< the bound supposes more than it derives           */
    double ratio;     /**< the largest |theirs - expected| / bound           */
    uint64_t over;    /**< elements beyond the bound                         */
    /** The first element beyond the bound; else the one nearest to it. */
    uint64_t element;
    int rank; /**< that owns it, lowest; -1: nobody                          */
    double value, expected, bound; /**< there                                */
    double our_value;              /**< there; NaN: none                     */
    double ulps;                   /**< between value and expected           */
    int other_rank;     /**< whose copy differs; -1: none does               */
    double other_value; /**< there                                           */
} fsdp_verdict_tensor_t;

/** What became of one phase, over all steps. */
typedef struct fsdp_verdict_phase {
    fsdp_trace_phase_t phase;
    size_t tensors, equal, within, wrong, unchecked, weak;
    double worst_ratio;
    const fsdp_verdict_tensor_t *worst; /**< whose it is; NULL: none has one */
    /** With options.with_double, root mean squares: theirs - ours64, ours -
     *  ours64, and theirs64 - ours64; NaN: none. */
    double theirs_to_double, ours_to_double, double_to_double;
} fsdp_verdict_phase_t;

/** What only one side has. */
typedef struct fsdp_verdict_missing {
    bool of_ours; /**< ours has it and theirs not, else the reverse          */
    fsdp_trace_phase_t phase;
    size_t count;      /**< tensors                                          */
    const char *first; /**< the name of the first of them                    */
} fsdp_verdict_missing_t;

/** Why the first wrong tensor is wrong: a mistake that explains all of it. */
typedef struct fsdp_cause {
    const char *id; /**< "constant-factor", ...: does not change            */
    char text[512]; /**< what was found, for a reader                       */
    double ratio;   /**< the largest |theirs - explained| / its bound       */
} fsdp_cause_t;

typedef struct fsdp_verdict_options {
    /** A file of lines "theirs ours", "#" begins a comment, one * in each stands
     *  for the same; NULL: none. */
    const char *rename;
    int runs; /**< perturbed runs that measure how rounding spreads; 0: 16    */
    uint64_t seed;
    bool with_double;          /**< run ours in float64 too                  */
    const char *theirs_double; /**< a trace of theirs in float64; NULL: none */
} fsdp_verdict_options_t;

typedef struct fsdp_verdict fsdp_verdict_t;
struct fsdp_verdict {
    fsdp_verdict_kind_t kind;
    size_t num_tensors;
    const fsdp_verdict_tensor_t *tensor; /**< in the order of theirs         */
    const fsdp_verdict_tensor_t *first_wrong;      /**< NULL: none           */
    const fsdp_verdict_tensor_t *first_difference; /**< not equal to ours    */
    int num_phases;
    const fsdp_verdict_phase_t *phase;
    int num_causes; /**< 0: none of the known mistakes explains it           */
    const fsdp_cause_t *cause; /**< of first_wrong, likeliest first          */
    int num_missing;
    const fsdp_verdict_missing_t *missing;
    int num_notes; /**< what else should be known: settings that differ, ...  */
    const char *const *note;
    /** With options.theirs_double, that trace judged by the bounds of float64: a
     *  difference that is rounding is 2^29 times smaller there, so one that is
     *  wrong did not shrink.  NULL: none. */
    fsdp_verdict_t *of_double;
    const fsdp_trace_t *ours, *theirs; /**< open as long as this is          */
};

/** Judges.  FSDP_ERR_INPUT (or _IO) for traces that cannot be read or have
 *  nothing in common; *verdict is NULL then. */
fsdp_status_t fsdp_verdict_make(const char *ours, const char *theirs,
                                const fsdp_verdict_options_t *options,
                                fsdp_verdict_t **verdict);
void fsdp_verdict_destroy(fsdp_verdict_t **verdict);

/** For a reader. */
void fsdp_verdict_print(const fsdp_verdict_t *verdict, FILE *out);
/** One JSON object and a newline. */
void fsdp_verdict_print_json(const fsdp_verdict_t *verdict, FILE *out);

#endif
