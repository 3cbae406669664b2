/** \file hypothesis.h  Floor 6, verify: what hypotheses are made of. */
#ifndef FSDP_VERIFY_HYPOTHESIS_H
#define FSDP_VERIFY_HYPOTHESIS_H

#include "verify/diagnosis/diagnosis.h"
#include "verify/verdict/internal.h"

typedef fsdp_symptom_t symptom_t;
typedef fsdp_cause_t cause_t;

/** True: it explains; then *cause has the text and the ratio (not the id). */
typedef bool (*hypothesis_t)(const symptom_t *symptom, cause_t *cause);

/** What a mistake would have made, and how far rounding may be from that. */
typedef struct candidate {
    double *value, *bound; /**< [numel], owned */
} candidate_t;

candidate_t candidate_make(const symptom_t *symptom);
void candidate_free(candidate_t *candidate);

/** The largest ratio of |theirs - candidate| to its bound, over all elements that
 *  somebody keeps; INFINITY if nothing can be said. */
double candidate_ratio(const symptom_t *symptom, const candidate_t *candidate);
/** Frees the candidate.  True if it is theirs in every element; then the cause
 *  gets the ratio and the text. */
bool candidate_explains(const symptom_t *symptom, candidate_t *candidate,
                        cause_t *cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Half a unit in the last place of the type that sums over ranks have; of the
 *  tensor itself. */
double symptom_roundoff_of_sums(const symptom_t *symptom);
double symptom_roundoff(const symptom_t *symptom);
/** Relative: the 2-norm of `numel` elements, computed in any order. */
double symptom_error_of_norm(const symptom_t *symptom, double numel);

/** Another tensor of theirs with as many elements as this one; NULL: none. */
const double *symptom_get(const symptom_t *symptom, long step,
                          fsdp_trace_phase_t phase, int micro);
/** This rank's part of it, NaN elsewhere. */
const double *symptom_get_of_rank(const symptom_t *symptom, long step,
                                  fsdp_trace_phase_t phase, int micro,
                                  int rank);

/** Ranks that have data of their own (N), micro-batches of each (m); at least 1. */
int symptom_ranks(const symptom_t *symptom);
int symptom_micros(const symptom_t *symptom);
/** Which data-parallel rank computed global micro-batch g. */
int symptom_rank_of_micro(const symptom_t *symptom, int g);
/** The rate of a step as it was meant; NaN: unknown. */
double symptom_lr(const symptom_t *symptom, long step);

/** How many elements are beyond their bound. */
uint64_t symptom_count_wrong(const symptom_t *symptom);
/** Is the element wrong? */
bool symptom_is_wrong(const symptom_t *symptom, uint64_t i);

/** The k-th factor that mistakes often bring, and its name ("the number of ranks",
 *  "1 / the number of ranks", ...); NULL: there are no more.  1 is none. */
const char *symptom_factor(const symptom_t *symptom, int k, double *factor);

/* ---- all hypotheses, by what they look at -------------------------------- */

/* inputs.c */
bool hypothesis_same_data(const symptom_t *s, cause_t *c);
bool hypothesis_labels_shifted(const symptom_t *s, cause_t *c);
bool hypothesis_data_of_another_step(const symptom_t *s, cause_t *c);
bool hypothesis_initial_values(const symptom_t *s, cause_t *c);
bool hypothesis_padding_learnt(const symptom_t *s, cause_t *c);
/* copies.c */
bool hypothesis_not_reduced_copies(const symptom_t *s, cause_t *c);
bool hypothesis_replicas_not_reduced(const symptom_t *s, cause_t *c);
bool hypothesis_not_broadcast(const symptom_t *s, cause_t *c);
bool hypothesis_copies_drift(const symptom_t *s, cause_t *c);
/* general.c */
bool hypothesis_factor(const symptom_t *s, cause_t *c);
bool hypothesis_negated(const symptom_t *s, cause_t *c);
bool hypothesis_transposed(const symptom_t *s, cause_t *c);
bool hypothesis_rows_shifted(const symptom_t *s, cause_t *c);
bool hypothesis_rows_permuted(const symptom_t *s, cause_t *c);
bool hypothesis_stale(const symptom_t *s, cause_t *c);
bool hypothesis_slice_stale(const symptom_t *s, cause_t *c);
bool hypothesis_slice_zero(const symptom_t *s, cause_t *c);
bool hypothesis_lower_precision(const symptom_t *s, cause_t *c);
bool hypothesis_dropout(const symptom_t *s, cause_t *c);
/* reduction.c */
bool hypothesis_rank_missing(const symptom_t *s, cause_t *c);
bool hypothesis_rank_doubled(const symptom_t *s, cause_t *c);
bool hypothesis_micro_missing(const symptom_t *s, cause_t *c);
bool hypothesis_micro_doubled(const symptom_t *s, cause_t *c);
bool hypothesis_not_reduced(const symptom_t *s, cause_t *c);
bool hypothesis_one_replica_only(const symptom_t *s, cause_t *c);
bool hypothesis_not_zeroed(const symptom_t *s, cause_t *c);
bool hypothesis_reduced_in_lower_precision(const symptom_t *s, cause_t *c);
/* tokens.c */
bool hypothesis_token_mean(const symptom_t *s, cause_t *c);
bool hypothesis_ignored_targets(const symptom_t *s, cause_t *c);
/* accumulation.c */
bool hypothesis_accumulated_in_lower_precision(const symptom_t *s, cause_t *c);
bool hypothesis_clipped_too_early(const symptom_t *s, cause_t *c);
/* parts.c */
bool hypothesis_part_shifted(const symptom_t *s, cause_t *c);
bool hypothesis_pieces_moved(const symptom_t *s, cause_t *c);
bool hypothesis_of_other_tensor(const symptom_t *s, cause_t *c);
/* models.c */
bool hypothesis_other_model(const symptom_t *s, cause_t *c);
bool hypothesis_attention_mask(const symptom_t *s, cause_t *c);
bool hypothesis_attention_scale(const symptom_t *s, cause_t *c);
bool hypothesis_other_policy(const symptom_t *s, cause_t *c);
/* norm.c */
bool hypothesis_local_norm(const symptom_t *s, cause_t *c);
bool hypothesis_norm_of_replicas(const symptom_t *s, cause_t *c);
bool hypothesis_norm_not_rooted(const symptom_t *s, cause_t *c);
bool hypothesis_norm_of_another_kind(const symptom_t *s, cause_t *c);
bool hypothesis_clipped_by_local_norm(const symptom_t *s, cause_t *c);
bool hypothesis_not_clipped(const symptom_t *s, cause_t *c);
bool hypothesis_clipped_though_small(const symptom_t *s, cause_t *c);
bool hypothesis_clipped_twice(const symptom_t *s, cause_t *c);
/* optimizers.c */
bool hypothesis_decay_coupled(const symptom_t *s, cause_t *c);
bool hypothesis_decay_missing(const symptom_t *s, cause_t *c);
bool hypothesis_decay_doubled(const symptom_t *s, cause_t *c);
bool hypothesis_decay_without_lr(const symptom_t *s, cause_t *c);
bool hypothesis_no_bias_correction(const symptom_t *s, cause_t *c);
bool hypothesis_steps_off_by_one(const symptom_t *s, cause_t *c);
bool hypothesis_eps_inside_root(const symptom_t *s, cause_t *c);
bool hypothesis_eps_before_correction(const symptom_t *s, cause_t *c);
bool hypothesis_betas_swapped(const symptom_t *s, cause_t *c);
bool hypothesis_lr_of_another_step(const symptom_t *s, cause_t *c);
bool hypothesis_lr_scaled(const symptom_t *s, cause_t *c);
bool hypothesis_unclipped_update(const symptom_t *s, cause_t *c);
bool hypothesis_dampening(const symptom_t *s, cause_t *c);
bool hypothesis_nesterov(const symptom_t *s, cause_t *c);
bool hypothesis_no_momentum(const symptom_t *s, cause_t *c);
bool hypothesis_decay_decoupled(const symptom_t *s, cause_t *c);

#endif
