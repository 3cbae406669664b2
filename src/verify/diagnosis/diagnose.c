/* All hypotheses, those that say most first. */

#include <math.h>
#include <stddef.h>

#include "verify/diagnosis/hypothesis.h"

static const struct {
    const char *id;
    hypothesis_t try;
} hypotheses[] = {
    /* data and beginnings */
    {"same-data", hypothesis_same_data},
    {"labels-shifted", hypothesis_labels_shifted},
    {"padding-learnt", hypothesis_padding_learnt},
    {"data-of-another-step", hypothesis_data_of_another_step},
    {"not-broadcast", hypothesis_not_broadcast},
    /* copies */
    {"not-reduced", hypothesis_not_reduced_copies},
    {"replicas-not-reduced", hypothesis_replicas_not_reduced},
    /* values as a whole */
    {"stale-value", hypothesis_stale},
    {"slice-not-updated", hypothesis_slice_stale},
    {"token-mean", hypothesis_token_mean},
    {"ignored-targets", hypothesis_ignored_targets},
    {"constant-factor", hypothesis_factor},
    {"sign", hypothesis_negated},
    /* sums */
    {"rank-missing", hypothesis_rank_missing},
    {"rank-doubled", hypothesis_rank_doubled},
    {"micro-batch-missing", hypothesis_micro_missing},
    {"micro-batch-doubled", hypothesis_micro_doubled},
    {"not-reduced", hypothesis_not_reduced},
    {"replicas-not-reduced", hypothesis_one_replica_only},
    {"not-zeroed", hypothesis_not_zeroed},
    {"lower-precision-accumulation", hypothesis_accumulated_in_lower_precision},
    {"lower-precision-reduction", hypothesis_reduced_in_lower_precision},
    {"clipped-too-early", hypothesis_clipped_too_early},
    /* norms */
    {"local-norm", hypothesis_local_norm},
    {"norm-counts-replicas", hypothesis_norm_of_replicas},
    {"norm-not-rooted", hypothesis_norm_not_rooted},
    {"norm-of-another-kind", hypothesis_norm_of_another_kind},
    {"not-clipped", hypothesis_not_clipped},
    {"clipped-by-local-norm", hypothesis_clipped_by_local_norm},
    {"clipped-though-small", hypothesis_clipped_though_small},
    {"clipped-twice", hypothesis_clipped_twice},
    /* optimizers */
    {"weight-decay-missing", hypothesis_decay_missing},
    {"weight-decay-coupled", hypothesis_decay_coupled},
    {"weight-decay-decoupled", hypothesis_decay_decoupled},
    {"weight-decay-doubled", hypothesis_decay_doubled},
    {"weight-decay-without-lr", hypothesis_decay_without_lr},
    {"bias-correction-missing", hypothesis_no_bias_correction},
    {"step-count", hypothesis_steps_off_by_one},
    {"epsilon-inside-root", hypothesis_eps_inside_root},
    {"epsilon-before-correction", hypothesis_eps_before_correction},
    {"betas-swapped", hypothesis_betas_swapped},
    {"dampening", hypothesis_dampening},
    {"nesterov", hypothesis_nesterov},
    {"no-momentum", hypothesis_no_momentum},
    {"unclipped-update", hypothesis_unclipped_update},
    {"learning-rate-of-another-step", hypothesis_lr_of_another_step},
    {"learning-rate", hypothesis_lr_scaled},
    /* order and parts */
    {"transposed", hypothesis_transposed},
    {"rows-shifted", hypothesis_rows_shifted},
    {"rows-shifted", hypothesis_part_shifted},
    {"rows-permuted", hypothesis_rows_permuted},
    {"rows-permuted", hypothesis_pieces_moved},
    {"other-tensor", hypothesis_of_other_tensor},
    {"slice-zero", hypothesis_slice_zero},
    {"dropout", hypothesis_dropout},
    {"lower-precision", hypothesis_lower_precision},
    {"lower-precision", hypothesis_other_policy},
    {"attention-mask", hypothesis_attention_mask},
    {"attention-scale", hypothesis_attention_scale},
    {"model-configuration", hypothesis_other_model},
    /* what says least */
    {"initial-values", hypothesis_initial_values},
    {"copies-drift", hypothesis_copies_drift},
};

int
fsdp_diagnose(const fsdp_symptom_t *symptom,
              fsdp_cause_t cause[FSDP_MAX_CAUSES])
{
    int count = 0;
    size_t n = sizeof hypotheses / sizeof *hypotheses;
    for (size_t i = 0; i < n && count < FSDP_MAX_CAUSES; i++) {
        cause[count] = (fsdp_cause_t){.id = hypotheses[i].id};
        if (hypotheses[i].try(symptom, &cause[count]))
            count++;
    }
    return count;
}
