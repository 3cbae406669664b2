/* Ranks: 1 */
/* Mistakes of optimizers, norms and clipping, made by formulas in double that
 * share nothing with the verdict's: the name of each must be the first of the
 * causes, and the right update must have none of these names. */

#include <check.h>
#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "verify/diagnosis/diagnosis.h"

enum { NUMEL = 24, RANKS = 3 };

static const double lr = 0.05, decay = 0.25, eps = 1e-3, mu = 0.875;
static const double beta1 = 0.75, beta2 = 0.9375;

/** One parameter at step 2, [12, 2], 8 elements on each rank. */
typedef struct world {
    fsdp_trace_about_t about;
    fsdp_trace_parameter_t parameter;
    fsdp_trace_step_t step[2];
    double old[NUMEL], grad[NUMEL], clipped[NUMEL], local[RANKS][NUMEL];
    double m[NUMEL], v[NUMEL], count;
    double is[NUMEL], expected[NUMEL], bound[NUMEL];
    int owner[NUMEL];
    fsdp_symptom_t symptom;
} world_t;

static const double *
get(void *context, bool ours, long step, fsdp_trace_phase_t phase, int micro,
    const char *name, int rank, uint64_t *numel)
{
    world_t *w = context;
    (void)ours, (void)micro, (void)name;
    *numel = phase == FSDP_TRACE_STATE_STEP ? 1 : NUMEL;
    if (step == 2 && phase == FSDP_TRACE_GRAD)
        return rank >= 0 ? w->local[rank] : w->grad;
    if (step == 2)
        return phase == FSDP_TRACE_CLIPPED_GRAD ? w->clipped : NULL;
    if (step != 1)
        return NULL;
    return phase == FSDP_TRACE_PARAMETER         ? w->old
           : phase == FSDP_TRACE_EXP_AVG         ? w->m
           : phase == FSDP_TRACE_MOMENTUM_BUFFER ? w->m
           : phase == FSDP_TRACE_EXP_AVG_SQ      ? w->v
           : phase == FSDP_TRACE_STATE_STEP      ? &w->count
                                                 : NULL;
}

/* Between -1 and 1, of 24 bits. */
static double
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(float)((double)(*state >> 32) * 0x1p-31 - 1);
}

static double
norm_of(const double *x)
{
    double square = 0;
    for (int i = 0; i < NUMEL; i++)
        square += isnan(x[i]) ? 0 : x[i] * x[i];
    return sqrt(square);
}

static void
fill(world_t *w)
{
    uint64_t state = 7;
    for (int i = 0; i < NUMEL; i++) {
        w->old[i] = draw(&state);
        w->grad[i] = draw(&state);
        w->m[i] = draw(&state);
        w->v[i] = fabs(draw(&state));
        w->owner[i] = i / (NUMEL / RANKS);
        w->bound[i] = 0x1p-22;
        for (int r = 0; r < RANKS; r++)
            w->local[r][i] = r == w->owner[i] ? w->grad[i] : (double)NAN;
    }
    double c = w->about.grad_clip / (norm_of(w->grad) + 1e-6);
    for (int i = 0; i < NUMEL; i++)
        w->clipped[i] = (double)(float)(w->grad[i] * c);
    w->count = 1;
}

static world_t *
world_create(bool adam, fsdp_trace_phase_t phase)
{
    world_t *w = fsdp_calloc(FSDP_MEM_OTHER, sizeof *w);
    w->parameter = (fsdp_trace_parameter_t){
        .name = "w", .weight_decay = NAN, .lr_factor = NAN};
    w->step[0] = (fsdp_trace_step_t){1, 0.0375};
    w->step[1] = (fsdp_trace_step_t){2, lr};
    w->about = (fsdp_trace_about_t){
        .world_size = RANKS,
        .replicas = 1,
        .shards = RANKS,
        .micro_batches = 1,
        .num_steps = 2,
        .step = w->step,
        .optimizer = adam ? FSDP_TRACE_ADAMW : FSDP_TRACE_SGD,
        .adamw = {.beta1 = beta1, .beta2 = beta2, .eps = eps},
        .sgd = {.momentum = mu, .weight_decay = decay},
        .grad_clip = 0.5,
        .norm_type = 2,
        .num_parameters = 1,
        .parameter = &w->parameter};
    w->about.adamw.weight_decay = decay;
    fill(w);
    w->symptom = (fsdp_symptom_t){.meant = &w->about,
                                  .theirs = &w->about,
                                  .step = 2,
                                  .phase = phase,
                                  .micro = -1,
                                  .name = "w",
                                  .dtype = FSDP_FP32,
                                  .ndim = 2,
                                  .shape = {NUMEL / 2, 2},
                                  .numel = NUMEL,
                                  .is = w->is,
                                  .expected = w->expected,
                                  .bound = w->bound,
                                  .owner = w->owner,
                                  .get = get,
                                  .context = w};
    return w;
}

/* ---- optimizers, once more --------------------------------------------------- */

static double
adamw(const world_t *w, int i, const char *mistake)
{
#define IS(name) (strcmp(mistake, name) == 0)
    double g = IS("unclipped-update") ? w->grad[i] : w->clipped[i];
    double rate = IS("learning-rate-of-another-step") ? 0.0375
                  : IS("learning-rate")               ? 1.3 * lr
                                                      : lr;
    double wd = IS("weight-decay-missing")   ? 0
                : IS("weight-decay-doubled") ? 2 * decay
                                             : decay;
    double b1 = IS("betas-swapped") ? beta2 : beta1;
    double b2 = IS("betas-swapped") ? beta1 : beta2;
    double steps = IS("step-count") ? 3 : 2, x = w->old[i];
    if (IS("weight-decay-coupled"))
        g += wd * x;
    else if (IS("weight-decay-without-lr"))
        x -= wd * x;
    else
        x -= rate * wd * x;
    double m = b1 * w->m[i] + (1 - b1) * g;
    double v = b2 * w->v[i] + (1 - b2) * g * g;
    double c1 = 1 - pow(b1, steps), c2 = 1 - pow(b2, steps);
    if (IS("bias-correction-missing"))
        c1 = 1;
    double low = IS("epsilon-inside-root")         ? sqrt(v / c2 + eps)
                 : IS("epsilon-before-correction") ? (sqrt(v) + eps) / sqrt(c2)
                                                   : sqrt(v / c2) + eps;
    return x - rate * m / c1 / low;
}

static double
sgd(const world_t *w, int i, const char *mistake)
{
    double g = w->clipped[i], x = w->old[i];
    if (IS("weight-decay-decoupled"))
        x -= lr * decay * x;
    else if (!IS("weight-decay-missing"))
        g += decay * x;
    double buffer = mu * w->m[i] + (IS("dampening") ? 1 - mu : 1) * g;
    if (IS("no-momentum"))
        return x - lr * g;
    bool nesterov = w->about.sgd.nesterov != IS("nesterov");
    return x - lr * (nesterov ? g + mu * buffer : buffer);
}

static const char *const of_adamw[] = {"weight-decay-missing",
                                       "weight-decay-coupled",
                                       "weight-decay-doubled",
                                       "weight-decay-without-lr",
                                       "bias-correction-missing",
                                       "step-count",
                                       "epsilon-inside-root",
                                       "epsilon-before-correction",
                                       "betas-swapped",
                                       "unclipped-update",
                                       "learning-rate-of-another-step",
                                       "learning-rate"};
static const char *const of_sgd[] = {"weight-decay-missing",
                                     "weight-decay-decoupled", "dampening",
                                     "nesterov", "no-momentum"};

static void
expect_first(const world_t *w, const char *mistake)
{
    fsdp_cause_t cause[FSDP_MAX_CAUSES];
    int count = fsdp_diagnose(&w->symptom, cause);
    ck_assert_msg(count > 0, "%s: no cause", mistake);
    ck_assert_msg(strcmp(cause[0].id, mistake) == 0, "%s: %s: %s", mistake,
                  cause[0].id, cause[0].text);
}

/* A constant factor, too, may explain what was clipped. */
static void
expect_among(const world_t *w, const char *mistake)
{
    fsdp_cause_t cause[FSDP_MAX_CAUSES];
    int count = fsdp_diagnose(&w->symptom, cause), found = 0;
    for (int k = 0; k < count; k++)
        found += strcmp(cause[k].id, mistake) == 0;
    ck_assert_msg(found == 1, "%s: not among %d causes", mistake, count);
}

START_TEST(mistakes_of_adamw)
{
    world_t *w = world_create(true, FSDP_TRACE_PARAMETER);
    for (int i = 0; i < NUMEL; i++) {
        w->expected[i] = adamw(w, i, "");
        w->is[i] = (double)(float)adamw(w, i, of_adamw[_i]);
    }
    expect_first(w, of_adamw[_i]);
    fsdp_free(w);
}
END_TEST

START_TEST(mistakes_of_sgd)
{
    world_t *w = world_create(false, FSDP_TRACE_PARAMETER);
    /* Without it one step is the same whether decay is coupled or not. */
    w->about.sgd.nesterov = strcmp(of_sgd[_i], "weight-decay-decoupled") == 0;
    for (int i = 0; i < NUMEL; i++) {
        w->expected[i] = sgd(w, i, "");
        w->is[i] = (double)(float)sgd(w, i, of_sgd[_i]);
    }
    expect_first(w, of_sgd[_i]);
    fsdp_free(w);
}
END_TEST

/* A parameter of a group without decay, by what their script says: that it has
 * none is no mistake, and what else is wrong is found by its own decay. */
START_TEST(groups_have_decays_of_their_own)
{
    world_t *w = world_create(true, FSDP_TRACE_PARAMETER);
    w->parameter.weight_decay = 0;
    for (int i = 0; i < NUMEL; i++) {
        w->expected[i] = adamw(w, i, "weight-decay-missing");
        double m = beta1 * w->m[i] + (1 - beta1) * w->clipped[i];
        double v =
            beta2 * w->v[i] + (1 - beta2) * w->clipped[i] * w->clipped[i];
        double low = sqrt(v / (1 - beta2 * beta2) + eps);
        w->is[i] =
            (double)(float)(w->old[i] - lr * m / (1 - beta1 * beta1) / low);
    }
    expect_first(w, "epsilon-inside-root");
    fsdp_free(w);
}
END_TEST

/* What no optimizer makes: one element is another. */
START_TEST(one_other_element_is_no_optimizer)
{
    fsdp_cause_t cause[FSDP_MAX_CAUSES];
    world_t *w = world_create(true, FSDP_TRACE_PARAMETER);
    for (int i = 0; i < NUMEL; i++)
        w->expected[i] = w->is[i] = adamw(w, i, "");
    w->is[5] += 0.125;
    ck_assert_int_eq(fsdp_diagnose(&w->symptom, cause), 0);
    fsdp_free(w);
}
END_TEST

/* ---- norms and clipping ------------------------------------------------------- */

START_TEST(mistakes_of_norms)
{
    static const char *const name[] = {
        "local-norm", "local-norm", "norm-not-rooted", "norm-of-another-kind"};
    world_t *w = world_create(true, FSDP_TRACE_NORM);
    double sum = 0, magnitudes = 0, norm = norm_of(w->grad);
    for (int r = 0; r < RANKS; r++)
        sum += norm_of(w->local[r]);
    for (int i = 0; i < NUMEL; i++)
        magnitudes += fabs(w->grad[i]);
    const double value[] = {norm_of(w->local[1]), sum, norm * norm, magnitudes};
    w->symptom.numel = w->symptom.shape[0] = 1;
    w->symptom.ndim = 1;
    w->symptom.name = "norm";
    w->expected[0] = norm;
    w->is[0] = (double)(float)value[_i];
    expect_first(w, name[_i]);
    fsdp_free(w);
}
END_TEST

START_TEST(mistakes_of_clipping)
{
    static const char *const name[] = {"not-clipped", "clipped-by-local-norm",
                                       "clipped-twice"};
    world_t *w = world_create(true, FSDP_TRACE_CLIPPED_GRAD);
    double c = w->about.grad_clip / (norm_of(w->grad) + 1e-6);
    for (int i = 0; i < NUMEL; i++) {
        double own = norm_of(w->local[w->owner[i]]);
        const double factor[] = {1, fmin(1, w->about.grad_clip / (own + 1e-6)),
                                 c * c};
        w->expected[i] = w->grad[i] * c;
        w->is[i] = (double)(float)(w->grad[i] * factor[_i]);
    }
    expect_among(w, name[_i]);
    fsdp_free(w);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("diagnosis_update");
    TCase *tcase = tcase_create("updates");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, mistakes_of_adamw, 0,
                        sizeof of_adamw / sizeof *of_adamw);
    tcase_add_loop_test(tcase, mistakes_of_sgd, 0,
                        sizeof of_sgd / sizeof *of_sgd);
    tcase_add_test(tcase, groups_have_decays_of_their_own);
    tcase_add_test(tcase, one_other_element_is_no_optimizer);
    tcase_add_loop_test(tcase, mistakes_of_norms, 0, 4);
    tcase_add_loop_test(tcase, mistakes_of_clipping, 0, 3);
    return mck_run(argc, argv, suite);
}
