/* Ranks: 1 */
/* Each mistake is made on arrays, and its name must be among the causes, and not
 * among those of the other mistakes; what no mistake makes has no cause.  The
 * values are whole numbers times a power of two, or roots of them. */

#include <check.h>
#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "verify/diagnosis/diagnosis.h"
#include "verify/value.h"

enum { ROWS = 9, COLS = 4, NUMEL = ROWS * COLS, N = 2, M = 2 };

/** All that both traces hold: two parameters, w [9, 4] and v [9, 4], on two ranks
 *  (rows 0 to 4, 5 to 8) with two micro-batches each. */
typedef struct world {
    fsdp_trace_about_t about;
    fsdp_trace_parameter_t parameter[2];
    double unreduced[2][N * M][NUMEL], reduced[2][M][NUMEL], grad[2][NUMEL];
    double is[NUMEL], expected[NUMEL], bound[NUMEL];
    int owner[NUMEL];
    fsdp_symptom_t symptom;
} world_t;

/* Between -2 and 2, of 24 bits, no two alike. */
static double
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(float)((double)(*state >> 32) * 0x1p-30 - 2);
}

static const double *
get(void *context, bool ours, long step, fsdp_trace_phase_t phase, int micro,
    const char *name, int rank, uint64_t *numel)
{
    world_t *w = context;
    int p = strcmp(name, "v") == 0;
    (void)ours;
    (void)rank;
    *numel = NUMEL;
    if (step != 1)
        return NULL;
    if (phase == FSDP_TRACE_UNREDUCED_GRAD && micro >= 0 && micro < N * M)
        return w->unreduced[p][micro];
    if (phase == FSDP_TRACE_REDUCED_GRAD && micro >= 0 && micro % N == N - 1)
        return w->reduced[p][micro / N];
    if (phase == FSDP_TRACE_GRAD)
        return w->grad[p];
    return NULL;
}

/* A world in which w's gradient of the step is what is looked at, and right. */
static world_t *
world_create(fsdp_gradient_sync_t sync)
{
    world_t *w = fsdp_calloc(FSDP_MEM_OTHER, sizeof *w);
    uint64_t state = 11;
    w->parameter[0] = (fsdp_trace_parameter_t){.name = "w"};
    w->parameter[1] = (fsdp_trace_parameter_t){.name = "v"};
    w->about = (fsdp_trace_about_t){.world_size = N,
                                    .replicas = 1,
                                    .shards = N,
                                    .tensor = 1,
                                    .micro_batches = M,
                                    .gradient_sync = (int)sync,
                                    .dtype = FSDP_FP32,
                                    .grad_clip = 2,
                                    .norm_type = 2,
                                    .ignore_index = -100,
                                    .loss_scale = 1.0 / M,
                                    .divide_factor = NAN,
                                    .num_parameters = 2,
                                    .parameter = w->parameter};
    for (int p = 0; p < 2; p++)
        for (int g = 0; g < N * M; g++)
            for (int i = 0; i < NUMEL; i++) {
                double x = draw(&state);
                w->unreduced[p][g][i] = x;
                w->reduced[p][g / N][i] += x / N;
                w->grad[p][i] += x / N;
            }
    for (int i = 0; i < NUMEL; i++) {
        w->is[i] = w->expected[i] = w->grad[0][i];
        w->bound[i] = 0x1p-21;
        w->owner[i] = i / COLS >= 5;
    }
    w->symptom = (fsdp_symptom_t){.meant = &w->about,
                                  .theirs = &w->about,
                                  .step = 1,
                                  .phase = FSDP_TRACE_GRAD,
                                  .micro = -1,
                                  .name = "w",
                                  .dtype = FSDP_FP32,
                                  .ndim = 2,
                                  .shape = {ROWS, COLS},
                                  .numel = NUMEL,
                                  .is = w->is,
                                  .expected = w->expected,
                                  .bound = w->bound,
                                  .owner = w->owner,
                                  .get = get,
                                  .context = w};
    return w;
}

/* ---- mistakes ------------------------------------------------------------------ */

static void
scale_by_ranks(world_t *w)
{
    for (int i = 0; i < NUMEL; i++)
        w->is[i] = N * w->expected[i];
}

static void
lose_rank_1(world_t *w)
{
    for (int g = 0; g < N * M; g++)
        for (int i = 0; g % N == 1 && i < NUMEL; i++)
            w->is[i] -= w->unreduced[0][g][i] / N;
}

static void
lose_micro_batch_0(world_t *w)
{
    for (int i = 0; i < NUMEL; i++)
        w->is[i] -= w->reduced[0][0][i];
}

/* Rank 1's rows begin one late; its last is padding. */
static void
shift_rank_1(world_t *w)
{
    for (int r = 5; r < ROWS; r++)
        for (int k = 0; k < COLS; k++)
            w->is[r * COLS + k] =
                r + 1 < ROWS ? w->expected[(r + 1) * COLS + k] : 0;
}

/* Pieces of 5 rows, the second padded with one, in the other order. */
static void
swap_pieces(world_t *w)
{
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLS; k++) {
            int from = r < 4 ? r + 5 : r - 5;
            w->is[r * COLS + k] = r == 4 ? 0 : w->expected[from * COLS + k];
        }
}

static void
reuse_memory(world_t *w)
{
    memcpy(w->is, w->grad[1], 20 * sizeof *w->is);
}

static void
reuse_memory_and_more(world_t *w)
{
    reuse_memory(w);
    w->is[30] *= 1.01;
}

static void
zero_tail(world_t *w)
{
    for (int i = 24; i < NUMEL; i++)
        w->is[i] = 0;
}

static void
clip_in_between(world_t *w)
{
    double square = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < NUMEL; i++)
            square += w->reduced[p][0][i] * w->reduced[p][0][i];
    double c = w->about.grad_clip / (sqrt(square) + 1e-6);
    for (int i = 0; i < NUMEL; i++)
        w->is[i] =
            (double)(float)(c * w->reduced[0][0][i]) + w->reduced[0][1][i];
}

/* Each element is off by another part of itself. */
static void
disturb(world_t *w)
{
    uint64_t state = 5;
    for (int i = 0; i < NUMEL; i++)
        w->is[i] *= 1 + 0.01 * draw(&state);
}

static const struct {
    void (*make)(world_t *w);
    const char *cause; /* NULL: none */
} mistakes[] = {
    {scale_by_ranks, "constant-factor"},
    {lose_rank_1, "rank-missing"},
    {lose_micro_batch_0, "micro-batch-missing"},
    {shift_rank_1, "rows-shifted"},
    {swap_pieces, "rows-permuted"},
    {reuse_memory, "other-tensor"},
    {zero_tail, "slice-zero"},
    {clip_in_between, "clipped-too-early"},
    {reuse_memory_and_more, NULL},
    {disturb, NULL},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static bool
names(const fsdp_symptom_t *symptom, const char *id)
{
    fsdp_cause_t cause[FSDP_MAX_CAUSES];
    int count = fsdp_diagnose(symptom, cause);
    for (int i = 0; i < count; i++)
        if (strcmp(cause[i].id, id) == 0)
            return true;
    return false;
}

START_TEST(each_mistake_has_its_name)
{
    for (int k = 0; k < MISTAKES; k++) {
        world_t *w = world_create(FSDP_SYNC_EACH);
        fsdp_cause_t cause[FSDP_MAX_CAUSES];
        mistakes[k].make(w);
        for (int other = 0; other < MISTAKES; other++) {
            const char *id = mistakes[other].cause;
            if (id != NULL)
                ck_assert_msg(names(&w->symptom, id) == (other == k),
                              "mistake %d: %s", k, id);
        }
        if (mistakes[k].cause == NULL)
            ck_assert_int_eq(fsdp_diagnose(&w->symptom, cause), 0);
        fsdp_free(w);
    }
}
END_TEST

/* Two micro-batches of each rank, brought together at the last: each rank's sum is
 * rounded to bfloat16, as its gradients are. */
START_TEST(sums_between_micro_batches_in_bfloat16)
{
    world_t *w = world_create(FSDP_SYNC_LAST);
    static const char id[] = "lower-precision-accumulation";
    for (int g = 0; g < N * M; g++)
        for (int i = 0; i < NUMEL; i++)
            w->unreduced[0][g][i] =
                value_round(FSDP_BF16, w->unreduced[0][g][i]);
    for (int i = 0; i < NUMEL; i++) {
        const double a = w->unreduced[0][0][i], b = w->unreduced[0][1][i];
        const double c = w->unreduced[0][2][i], d = w->unreduced[0][3][i];
        w->expected[i] = (a + b + c + d) / N;
        w->is[i] =
            (value_round(FSDP_BF16, a + b) + value_round(FSDP_BF16, c + d)) / N;
    }
    ck_assert(names(&w->symptom, id));
    w->is[7] += 0x1p-10;
    ck_assert(!names(&w->symptom, id));
    fsdp_free(w);
}
END_TEST

START_TEST(padding_that_is_learnt)
{
    double is[] = {3, 0, 0, 5, 6, 0}, expected[] = {3, -100, -100, 5, 6, -100};
    double bound[6] = {0};
    world_t *w = world_create(FSDP_SYNC_EACH);
    fsdp_symptom_t s = w->symptom;
    s.phase = FSDP_TRACE_INPUT;
    s.micro = 0;
    s.name = "targets";
    s.dtype = FSDP_INT64;
    s.ndim = 1;
    s.shape[0] = s.numel = 6;
    s.is = is;
    s.expected = expected;
    s.bound = bound;
    s.owner = NULL;
    ck_assert(names(&s, "padding-learnt"));
    is[5] = 1; /* not one token for all of it */
    ck_assert(!names(&s, "padding-learnt"));
    is[5] = 0;
    is[0] = 4; /* and another target, too */
    ck_assert(!names(&s, "padding-learnt"));
    fsdp_free(w);
}
END_TEST

START_TEST(units_that_compute_in_a_coarser_type)
{
    world_t *w = world_create(FSDP_SYNC_EACH);
    fsdp_symptom_t s = w->symptom;
    s.phase = FSDP_TRACE_GATHERED_PARAMETER;
    s.micro = 0;
    s.dtype = FSDP_BF16;
    ck_assert(names(&s, "lower-precision"));
    w->about.has_precision = true; /* it was meant */
    w->about.precision.param_dtype = FSDP_BF16;
    ck_assert(!names(&s, "lower-precision"));
    fsdp_free(w);
}
END_TEST

/** Is it the change that was made?  NULL: none was. */
static bool (*is_made)(const fsdp_replay_change_t *change);

/** A step that gives theirs with the change that was made. */
static const double *
again(void *context, const fsdp_replay_change_t *change)
{
    static double out[NUMEL];
    const world_t *w = context;
    bool right = is_made != NULL && is_made(change);
    for (int i = 0; i < NUMEL; i++)
        out[i] = w->expected[i] + (right ? 1 + i : 0.5);
    return out;
}

static bool
other_base(const fsdp_replay_change_t *change)
{
    return change->rope_theta == 5e5;
}

static bool
no_mask(const fsdp_replay_change_t *change)
{
    return change->attention.everywhere;
}

static bool
unscaled(const fsdp_replay_change_t *change)
{
    return change->attention.scale == ATTENTION_UNSCALED;
}

static bool
of_erf(const fsdp_replay_change_t *change)
{
    return change->activation != NULL && *change->activation == FSDP_MLP_GELU;
}

static const struct {
    const char *model;
    bool (*made)(const fsdp_replay_change_t *change);
    const char *id, *text; /* NULL: it has no such thing */
} model_faults[] = {
    {"llama", other_base, "model-configuration", "rope_theta is 500000"},
    {"gpt2", other_base, NULL, NULL},
    {"gpt2", no_mask, "attention-mask", "no causal mask"},
    {"llama", no_mask, "attention-mask", "no causal mask"},
    {"mlp", no_mask, NULL, NULL},
    {"gpt2", unscaled, "attention-scale", "does not divide its scores"},
    {"gpt2", of_erf, "model-configuration", "gelu, of erf"},
    {"gpt2", NULL, NULL, NULL},
    {"llama", NULL, NULL, NULL},
};

START_TEST(another_model)
{
    for (size_t k = 0; k < sizeof model_faults / sizeof *model_faults; k++) {
        world_t *w = world_create(FSDP_SYNC_EACH);
        fsdp_symptom_t s = w->symptom;
        fsdp_cause_t cause[FSDP_MAX_CAUSES];
        s.phase = FSDP_TRACE_UNIT_OUTPUT;
        s.micro = 0;
        s.name = "layers.0";
        s.again = again;
        is_made = model_faults[k].made;
        for (int i = 0; i < NUMEL; i++)
            w->is[i] = w->expected[i] + 1 + i;
        w->about.model_type = model_faults[k].model;
        int count = fsdp_diagnose(&s, cause);
        ck_assert_int_eq(count, model_faults[k].id != NULL);
        if (count > 0) {
            ck_assert_str_eq(cause[0].id, model_faults[k].id);
            ck_assert_ptr_nonnull(strstr(cause[0].text, model_faults[k].text));
        }
        fsdp_free(w);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("diagnosis");
    TCase *tcase = tcase_create("diagnosis");
    tcase_add_test(tcase, each_mistake_has_its_name);
    tcase_add_test(tcase, sums_between_micro_batches_in_bfloat16);
    tcase_add_test(tcase, padding_that_is_learnt);
    tcase_add_test(tcase, units_that_compute_in_a_coarser_type);
    tcase_add_test(tcase, another_model);
    suite_add_tcase(suite, tcase);
    return mck_run(argc, argv, suite);
}
