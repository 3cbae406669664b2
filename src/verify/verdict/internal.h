/** \file internal.h  Floor 6, verify: how a trace of theirs is judged.
 *
 *  names.c      which of their names is which of ours
 *  rename.c     the table that the user gives
 *  micro.c      which micro-batch of theirs is which of ours, by the inputs
 *  bound.c      gamma_k, factors of a given probability, ulps
 *  running.h    arithmetic that carries a bound of its rounding errors
 *  value.c      reading, with a memory
 *  judge.c      a tensor against what is expected of it
 *  copies.c     initial values, inputs, gathered parameters: no rounding at all
 *  reduce.c     the sum over ranks and micro-batches
 *  clip.c       the norm and clipping
 *  update.c     sgd.c  adamw.c  optimizers
 *  spread.c     one step run again, perturbed: how far rounding gets
 *  weak.c       what is left when it cannot be run
 *  about.c      what the two traces say of themselves
 *  doubled.c    the same in float64
 *  explain.c    why the first wrong tensor is wrong
 *  verdict.c    all of it in turn
 *  print.c, json.c
 */
#ifndef FSDP_VERIFY_VERDICT_INTERNAL_H
#define FSDP_VERIFY_VERDICT_INTERNAL_H

#include "fsdp/memory.h"
#include "fsdp/verdict.h"
#include "verify/diagnosis/diagnosis.h"

/** The chance with which a probabilistic bound may be broken, per tensor. */
#define VERDICT_FAILURE 1e-12

typedef fsdp_trace_record_t record_t;

/* ---- names ---------------------------------------------------------------- */

typedef struct verdict_names verdict_names_t;

/** `rename` may be NULL. */
fsdp_status_t verdict_names_create(const fsdp_trace_t *ours,
                                   const fsdp_trace_t *theirs,
                                   const char *rename, verdict_names_t **names);
void verdict_names_destroy(verdict_names_t **names);
/** Our name of a record of theirs; NULL: we have none. */
const char *verdict_names_ours(const verdict_names_t *names,
                               const record_t *theirs);

/** Is a record's name a parameter? */
bool verdict_is_of_parameter(fsdp_trace_phase_t phase);

typedef struct rename_rule {
    char *theirs, *ours; /**< owned */
    int line;
} rename_rule_t;

typedef struct rename_table {
    rename_rule_t *rule;
    size_t count;
} rename_table_t;

fsdp_status_t rename_table_read(const char *path, rename_table_t *table);
void rename_table_free(rename_table_t *table);
/** Writes what rule `i` makes of `theirs`; false: it does not match. */
bool rename_table_apply(const rename_table_t *table, size_t i,
                        const char *theirs, char *ours, size_t size);

/* ---- the state of a comparison -------------------------------------------- */

/** What a tensor should be, and how far from it it may be. */
typedef struct expected {
    double *value, *bound; /**< [numel], owned; bound INFINITY: no claim     */
    const char *rule;
    bool weak;
} expected_t;

/** Where the inputs of a micro-batch of theirs are in ours. */
typedef struct counterpart {
    long step;
    int micro;
    int first, count; /**< ours, end to end along dim 0; count 0: nowhere    */
    int part, parts;  /**< theirs is the part-th of so many of it            */
    uint64_t hash;    /**< of the inputs                                     */
} counterpart_t;

typedef struct judging {
    fsdp_verdict_t verdict; /**< first: it is what the caller gets           */
    fsdp_verdict_options_t options;
    fsdp_trace_t *ours, *theirs;
    const fsdp_trace_about_t *our_about, *their_about;
    verdict_names_t *names;
    fsdp_verdict_tensor_t *tensor; /**< [fsdp_trace_count(theirs)]           */
    fsdp_verdict_phase_t phase[FSDP_TRACE_PHASES];
    fsdp_verdict_missing_t *missing;
    char **note;
    fsdp_status_t status; /**< the first failure of reading              */
    counterpart_t *counterpart; /**< by step and micro-batch                 */
    size_t num_counterparts;
    long finite_step; /**< the step of is_finite                            */
    bool is_finite;
    long norm_step; /**< the step of norm */
    bool norm_known;
    double norm, norm_error;
    const fsdp_verdict_tensor_t *kept_of; /**< the first wrong one so far    */
    expected_t kept;                      /**< what that should be           */
    fsdp_cause_t cause[FSDP_MAX_CAUSES];
    char *cannot_rerun; /**< why, owned; NULL: it can, or was not tried */
} judging_t;

/** Adds to the notes. */
void verdict_note(judging_t *j, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- values ---------------------------------------------------------------- */

/** All of a record, NaN where nobody has it; NULL after a failure, which
 *  j->status then tells.  The caller frees. */
double *verdict_read(judging_t *j, fsdp_trace_t *trace, const record_t *record);
/** The record of theirs of that step and phase with the name of `like`; NULL:
 *  none. */
const record_t *verdict_theirs(const judging_t *j, const record_t *like,
                               long step, fsdp_trace_phase_t phase, int micro);
/** Room for what is expected of a record. */
void expected_make(expected_t *expected, const record_t *record,
                   const char *rule);
void expected_free(expected_t *expected);

/* ---- micro-batches ---------------------------------------------------------- */

/** Compares all inputs of all steps. */
void verdict_match_micros(judging_t *j);
/** NULL: theirs has no inputs there. */
const counterpart_t *verdict_counterpart(const judging_t *j, long step,
                                         int micro);
/** Another rank's micro-batch of theirs, in the same step, that begins with the
 *  same inputs bit for bit, of which there are many enough for that to be no
 *  chance; -1: none. */
int verdict_same_input(judging_t *j, const record_t *record);
/** Our record of a record of theirs, the first if they are several; NULL: there
 *  is none that should be the same. */
const record_t *verdict_our_record(const judging_t *j, const record_t *theirs);
/** What we have for it, [theirs->numel], put together or cut along dim 0, and
 *  scaled as their loss is; NULL: nothing.  The caller frees. */
double *verdict_read_ours(judging_t *j, const record_t *theirs);

/** What ours is multiplied by to be theirs there: their backward may begin with
 *  another multiple of the loss. */
double verdict_scale(const judging_t *j, fsdp_trace_phase_t phase);

/* ---- bounds ---------------------------------------------------------------- */

/** k u / (1 - k u); INFINITY if that means nothing. */
double verdict_gamma(double k, double u);
/** gamma~: the same for a sum whose roundings are independent of each other,
 *  all n of them at once, with VERDICT_FAILURE (Higham and Mary, 2019); never
 *  above gamma. */
double verdict_gamma_random(double k, double u, double n);
/** t with P(|T| > t) = p for Student's T with `freedom` degrees of it. */
double verdict_student(double p, double freedom);
/** |x - expected| / bound; 0 if they are the same, NaN and NaN too. */
double verdict_ratio(double x, double expected, double bound);
/** Relative: a 1- or 2-norm over so many elements, parameters and ranks, of
 *  gradients of that type, computed in any order. */
double verdict_error_of_norm(double numel, int parameters, int ranks,
                             fsdp_dtype_t dtype);
/** |a - b| in units in the last place of b, in the type. */
double verdict_ulps(fsdp_dtype_t dtype, double a, double b);

/* ---- rules ------------------------------------------------------------------ */
/* Each fills *expected and returns true, or returns false if theirs has not what
 * it needs.  Initial parameters and inputs are expected to be ours. */

bool verdict_expect_copy(judging_t *j, const fsdp_verdict_tensor_t *tensor,
                         expected_t *expected);
bool verdict_expect_reduced(judging_t *j, const record_t *record,
                            expected_t *expected);
/** The gradient of the step: of reduced ones, or (`second`) of unreduced ones. */
bool verdict_expect_grad(judging_t *j, const record_t *record, bool second,
                         expected_t *expected);
bool verdict_expect_norm(judging_t *j, const record_t *record,
                         expected_t *expected);
bool verdict_expect_clipped(judging_t *j, const record_t *record,
                            expected_t *expected);
bool verdict_expect_update(judging_t *j, const record_t *record,
                           expected_t *expected);

/** Are all gradients of the step finite?  If not, a gradient scaler may have left
 *  the update out. */
bool verdict_is_finite(judging_t *j, long step);
/** The coefficient of clipping at a step, with a bound of its error; false:
 *  unknown. */
bool verdict_clip_coefficient(judging_t *j, long step, fsdp_dtype_t dtype,
                              double *value, double *error);
/** Data-parallel ranks of theirs; what the sum of unreduced gradients is divided
 *  by to be what ours is. */
int verdict_ranks(const fsdp_trace_about_t *about);
double verdict_divisor(const judging_t *j);

/* ---- judging ---------------------------------------------------------------- */

/** Holds the tensor to what is expected; frees that.  Of several, the worst
 *  counts. */
void verdict_judge(judging_t *j, fsdp_verdict_tensor_t *tensor,
                   expected_t *expected);
/** Finds the counterpart, whether it is equal, and whether copies of ranks and
 *  types agree. */
void verdict_meet(judging_t *j, fsdp_verdict_tensor_t *tensor);
/** What is between `from` and the end of a step and not equal to ours is held to
 *  the run-again step. */
void verdict_rerun(judging_t *j);
void verdict_weak(judging_t *j);
/** Why the first wrong tensor is wrong. */
void verdict_explain(judging_t *j);
void verdict_about(judging_t *j);
/** After the phases are summed up: ours in float64 beside both. */
void verdict_double(judging_t *j);

#endif
