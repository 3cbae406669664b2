/* What is often another in a model, and shows in no shape: numbers of its
 * configuration, activations, positions, masks.  Their step is run again with
 * each of them.  How far rounding spreads in those runs is not measured; it is
 * taken to be as far as in the one that was meant. */

#include <stdio.h>
#include <string.h>

#include "verify/diagnosis/hypothesis.h"
#include "verify/value.h"

/** Another model, and what to say if theirs is that. */
typedef struct other_model {
    const char *type; /**< of the models that have it; NULL: with attention */
    fsdp_replay_change_t change;
    const char *text;
} other_model_t;

static const fsdp_mlp_activation_t relu = FSDP_MLP_RELU, gelu = FSDP_MLP_GELU,
                                   gelu_tanh = FSDP_MLP_GELU_TANH;

static const other_model_t others[] = {
    {"mlp", {.activation = &relu}, "its activation is relu"},
    {"mlp", {.activation = &gelu}, "its activation is gelu, of erf"},
    {"mlp", {.activation = &gelu_tanh}, "its activation is gelu_tanh"},
    {"gpt2", {.norm_eps = 1e-5}, "its layer_norm_epsilon is 1e-5"},
    {"gpt2", {.norm_eps = 1e-6}, "its layer_norm_epsilon is 1e-6"},
    {"gpt2", {.norm_eps = 1e-8}, "its layer_norm_epsilon is 1e-8"},
    {"gpt2", {.norm_eps = 1e-12}, "its layer_norm_epsilon is 1e-12"},
    {"gpt2", {.first_position = 1}, "its positions begin with 1, not with 0"},
    {"gpt2", {.first_position = 2}, "its positions begin with 2, not with 0"},
    {"llama", {.norm_eps = 1e-5}, "its rms_norm_eps is 1e-5"},
    {"llama", {.norm_eps = 1e-6}, "its rms_norm_eps is 1e-6"},
    {"llama", {.norm_eps = 1e-8}, "its rms_norm_eps is 1e-8"},
    {"llama", {.norm_eps = 1e-12}, "its rms_norm_eps is 1e-12"},
    {"llama", {.rope_theta = 1e4}, "its rope_theta is 10000"},
    {"llama", {.rope_theta = 5e5}, "its rope_theta is 500000"},
    {"llama", {.rope_theta = 1e6}, "its rope_theta is 1000000"},
    {"gpt2", {.activation = &gelu}, "its activation is gelu, of erf"},
    {"gpt2", {.activation = &relu}, "its activation is relu"},
    {"llama", {.activation = &gelu}, "its activation is gelu, of erf"},
    {"llama", {.activation = &gelu_tanh}, "its activation is gelu_tanh"},
    {"llama", {.activation = &relu}, "its activation is relu"},
    {"gpt2", {.no_positions = true}, "it has no embeddings of positions"},
    {"llama", {.no_positions = true}, "queries and keys are not rotated"},
    {"llama",
     {.neighbour_pairs = true},
     "neighbours in a head are rotated as pairs, not its halves"},
    {"llama",
     {.attention = {.dealt_keys = true}},
     "query heads take key heads in turn, not as many one after another"},
};

static const other_model_t masks[] = {
    {NULL,
     {.attention = {.everywhere = true}},
     "attention has no causal mask: each position sees all others"},
    {NULL,
     {.attention = {.next = true}},
     "the causal mask is off by one: each position sees the next"},
};

static const other_model_t scales[] = {
    {NULL,
     {.attention = {.scale = ATTENTION_UNSCALED}},
     "attention does not divide its scores by the root of the head's depth"},
    {NULL,
     {.attention = {.scale = ATTENTION_BY_DEPTH}},
     "attention divides its scores by the head's depth, not by its root"},
    {NULL,
     {.attention = {.scale = ATTENTION_BY_ROOT_OF_CHANNELS}},
     "attention divides its scores by the root of all channels, not of the "
     "head's depth"},
};

/* What units are to compute in. */
static fsdp_dtype_t
meant_type(const symptom_t *s)
{
    fsdp_dtype_t asked = s->meant->precision.param_dtype;
    return s->meant->has_precision && value_is_floating(asked)
               ? asked
               : s->meant->dtype;
}

bool
hypothesis_other_policy(const symptom_t *s, cause_t *cause)
{
    fsdp_dtype_t meant = meant_type(s);
    if (s->phase != FSDP_TRACE_GATHERED_PARAMETER || s->copy != NULL ||
        !value_is_floating(meant) || !value_is_floating(s->dtype) ||
        value_roundoff(s->dtype) <= value_roundoff(meant))
        return false;
    cause->ratio = 0;
    snprintf(cause->text, sizeof cause->text,
             "units compute in %s, and %s was meant", fsdp_dtype_name(s->dtype),
             fsdp_dtype_name(meant));
    return true;
}

static bool
is_of_a_step(fsdp_trace_phase_t phase)
{
    return phase >= FSDP_TRACE_UNIT_INPUT && phase <= FSDP_TRACE_UNREDUCED_GRAD;
}

static bool
has(const char *type, const other_model_t *other)
{
    return other->type != NULL ? strcmp(type, other->type) == 0
                               : strcmp(type, "mlp") != 0;
}

static bool
one_explains(const symptom_t *s, cause_t *cause, const other_model_t *list,
             size_t count)
{
    const char *type = s->meant->model_type != NULL ? s->meant->model_type
                                                    : s->theirs->model_type;
    if (!is_of_a_step(s->phase) || s->again == NULL || type == NULL ||
        s->copy != NULL)
        return false;
    for (size_t k = 0; k < count; k++) {
        if (!has(type, &list[k]))
            continue;
        const double *x = s->again(s->context, &list[k].change);
        if (x == NULL)
            return false;
        candidate_t c = candidate_make(s);
        memcpy(c.value, x, s->numel * sizeof *x);
        memcpy(c.bound, s->bound, s->numel * sizeof *x);
        if (candidate_explains(s, &c, cause,
                               "it is what their step makes if %s",
                               list[k].text))
            return true;
    }
    return false;
}

bool
hypothesis_other_model(const symptom_t *s, cause_t *cause)
{
    return one_explains(s, cause, others, sizeof others / sizeof *others);
}

bool
hypothesis_attention_mask(const symptom_t *s, cause_t *cause)
{
    return one_explains(s, cause, masks, sizeof masks / sizeof *masks);
}

bool
hypothesis_attention_scale(const symptom_t *s, cause_t *cause)
{
    return one_explains(s, cause, scales, sizeof scales / sizeof *scales);
}
