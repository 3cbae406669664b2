/* Verdicts on small traces written by hand: what is a rounding is within it, what
 * is more is wrong at its place, and the bounds are those of the formulas. */
/* Ranks: 1 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/verdict.h"
#include "hand_trace.h"
#include "mck.h"
#include "verify/verdict/internal.h"

/* ---- two traces --------------------------------------------------------------- */

/* What is said of a run of W ranks; %s: more members. */
static const char about[] =
    "{\"format\":\"libfsdp-trace\",\"version\":1,\"producer\":\"PyTorch by "
    "hand\",\"api\":\"fsdp2\",\"world_size\":%d,\"ranks\":[%s],"
    "\"mesh\":{\"replicate\":1,\"shard\":%d,\"tensor\":1},"
    "\"gradient_sync\":\"each\",\"loss\":{\"kind\":\"mse\",\"average\":"
    "\"rank\",\"scale\":1},\"precision\":{\"dtype\":\"float32\"},%s,"
    "\"parameters\":[{\"name\":\"%s\",\"shape\":[4],\"dtype\":\"float32\","
    "\"unit\":\"u\"%s}],\"units\":[\"u\"]}";

/** The tensors of one side. */
typedef struct side {
    const char *folder, *settings, *name;
    const char *own; /* settings of the parameter */
    int world;
    hand_tensor_t tensor[24];
    char key[24][96];
    int rank[24];
    long step[24];
    int count;
} side_t;

static const char plain[] = "\"micro_batches\":1,\"steps\":[{\"step\":1,"
                            "\"lr\":0.125}],\"optimizer\":{\"name\":\"sgd\","
                            "\"momentum\":0}";

static side_t
side(const char *folder, int world)
{
    return (side_t){.folder = folder,
                    .settings = plain,
                    .name = "w",
                    .own = "",
                    .world = world};
}

/* Four values of one rank. */
static void
add(side_t *s, long step, int rank, const char *phase, const char *micro,
    const float values[4])
{
    int k = s->count++;
    ck_assert_int_lt(k, 24);
    snprintf(s->key[k], sizeof s->key[k], "%s/%s/%s", phase, micro, s->name);
    s->tensor[k] = (hand_tensor_t){s->key[k], "[4]", 4, {0}, NULL};
    memcpy(s->tensor[k].values, values, 4 * sizeof *values);
    s->rank[k] = rank;
    s->step[k] = step;
}

/* The same in all elements, on rank 0. */
static void
add_all(side_t *s, long step, const char *phase, const char *micro, float value)
{
    const float values[4] = {value, value, value, value};
    add(s, step, 0, phase, micro, values);
}

static void
add_input(side_t *s, int rank, int micro, const float *values, int numel)
{
    int k = s->count++;
    ck_assert_int_lt(k, 24);
    snprintf(s->key[k], sizeof s->key[k], "input/%d/x", micro);
    s->tensor[k] = (hand_tensor_t){
        s->key[k], numel == 4 ? "[2,2]" : "[4,2]", (size_t)numel, {0}, NULL};
    memcpy(s->tensor[k].values, values, (size_t)numel * sizeof *values);
    s->rank[k] = rank;
    s->step[k] = 1;
}

static void
write_part(const side_t *s, long step, int rank)
{
    hand_tensor_t list[24];
    char path[128];
    size_t n = 0;
    bool met = false;
    for (int k = 0; k < s->count; k++)
        met |= s->step[k] == step;
    for (int k = 0; k < s->count; k++)
        if (s->step[k] == step && s->rank[k] == rank) {
            list[n] = s->tensor[k];
            list[n++].key = s->key[k];
        }
    if (!met)
        return;
    snprintf(path, sizeof path, "%s/step-%06ld/rank-%05d.safetensors",
             s->folder, step, rank);
    hand_put_tensors(path, list, n);
    snprintf(path, sizeof path, "%s/step-%06ld/rank-%05d.json", s->folder, step,
             rank);
    char text[80];
    snprintf(text, sizeof text, "{\"rank\":%d,\"step\":%ld}", rank, step);
    hand_put(path, text);
}

static void
write_side(const side_t *s)
{
    char text[1500], path[64];
    const char *const ranks[] = {"", "0", "0,1", "0,1,2", "0,1,2,3"};
    for (long step = 0; step <= 2; step++)
        for (int rank = 0; rank < s->world; rank++)
            write_part(s, step, rank);
    snprintf(text, sizeof text, about, s->world, ranks[s->world], s->world,
             s->settings, s->name, s->own);
    snprintf(path, sizeof path, "%s/trace.json", s->folder);
    hand_put(path, text);
}

/* The verdict on theirs; the caller destroys it. */
static fsdp_status_t
judge(const side_t *ours, const side_t *theirs, const char *rename,
      fsdp_verdict_t **verdict)
{
    char a[100], b[100], c[100];
    fsdp_verdict_options_t options = {.rename = rename != NULL ? c : NULL};
    hand_trace_begin();
    write_side(ours);
    write_side(theirs);
    if (rename != NULL)
        hand_put("names", rename);
    snprintf(a, sizeof a, "%s/%s", hand_folder, ours->folder);
    snprintf(b, sizeof b, "%s/%s", hand_folder, theirs->folder);
    snprintf(c, sizeof c, "%s/names", hand_folder);
    fsdp_status_t status = fsdp_verdict_make(a, b, &options, verdict);
    hand_trace_end();
    return status;
}

/* That the verdict is `kind`, and first wrong (if it is) the phase. */
static void
expect_named(const side_t *ours, const side_t *theirs, const char *rename,
             fsdp_verdict_kind_t kind, const char *phase, uint64_t element)
{
    fsdp_verdict_t *v = NULL;
    fsdp_status_t status = judge(ours, theirs, rename, &v);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
    const fsdp_verdict_tensor_t *first = v->first_wrong;
    ck_assert_msg(v->kind == kind, "%s, not %s; first %s by %s",
                  fsdp_verdict_kind_name(v->kind), fsdp_verdict_kind_name(kind),
                  first != NULL ? fsdp_trace_phase_name(first->theirs->phase)
                                : "nothing",
                  first != NULL ? first->rule : "nothing");
    if (phase != NULL) {
        ck_assert_ptr_nonnull(first);
        ck_assert_str_eq(fsdp_trace_phase_name(first->theirs->phase), phase);
        ck_assert_uint_eq(first->element, element);
    }
    fsdp_verdict_destroy(&v);
    ck_assert_ptr_null(v);
    mck_assert(fsdp_memory_live_blocks() == 0);
}

static void
expect(const side_t *ours, const side_t *theirs, fsdp_verdict_kind_t kind,
       const char *phase)
{
    expect_named(ours, theirs, NULL, kind, phase, 0);
}

/* ---- sums -------------------------------------------------------------------- */

/* Ranks' gradients 1, 1 and 1 and what theirs makes of them. */
static side_t
mean_of_three(const char *folder, float mean)
{
    side_t s = side(folder, 3);
    const char *const micro[] = {"0", "1", "2"};
    const float one[4] = {1, 1, 1, 1}, result[4] = {1, 1, mean, 1};
    for (int r = 0; r < 3; r++)
        add(&s, 1, r, "unreduced_grad", micro[r], one);
    add(&s, 1, 0, "reduced_grad", "2", result);
    return s;
}

/* Three terms of 1 over 3: two additions, a constant and a product in each of two
 * places of averaging; gamma_6 = 6 u / (1 - 6 u), u = 2^-24: 3 * 2^-23 and a
 * little more. */
START_TEST(bound_of_a_mean)
{
    side_t ours = mean_of_three("ours", 1);
    const struct {
        float mean;
        fsdp_verdict_kind_t kind;
    } cases[] = {{1, FSDP_VERDICT_EQUAL},
                 {1 + 0x1p-23f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {1 + 3 * 0x1p-23f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {1 + 4 * 0x1p-23f, FSDP_VERDICT_WRONG},
                 {3, FSDP_VERDICT_WRONG},
                 {1.0f / 3, FSDP_VERDICT_WRONG},
                 {NAN, FSDP_VERDICT_WRONG},
                 {INFINITY, FSDP_VERDICT_WRONG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t theirs = mean_of_three("theirs", cases[i].mean);
        bool wrong = cases[i].kind == FSDP_VERDICT_WRONG;
        expect_named(&ours, &theirs, NULL, cases[i].kind,
                     wrong ? "reduced_grad" : NULL, 2);
    }
}
END_TEST

/* Cancelling terms: the bound is of their magnitudes, not of the sum; two ranks,
 * a power of two: one addition, gamma_1 (1 + 1) / 2. */
START_TEST(bound_of_cancelling_terms)
{
    const float a[4] = {1, 1, 1, 1}, b[4] = {-1, -1, -1, -1};
    const struct {
        float mean;
        fsdp_verdict_kind_t kind;
    } cases[] = {{0x1p-25f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {0x1p-24f, FSDP_VERDICT_WITHIN_ROUNDING},
                 {0x1.001p-24f, FSDP_VERDICT_WRONG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t s[2] = {side("ours", 2), side("theirs", 2)};
        for (int k = 0; k < 2; k++) {
            add(&s[k], 1, 0, "unreduced_grad", "0", a);
            add(&s[k], 1, 1, "unreduced_grad", "1", b);
            add_all(&s[k], 1, "reduced_grad", "1", k == 0 ? 0 : cases[i].mean);
        }
        expect(&s[0], &s[1], cases[i].kind,
               cases[i].kind == FSDP_VERDICT_WRONG ? "reduced_grad" : NULL);
    }
}
END_TEST

/* One reduced gradient is that of the step, without any rounding; two are added
 * once. */
START_TEST(gradient_of_the_step)
{
    static const char two[] = "\"micro_batches\":2,\"steps\":[{\"step\":1}]";
    for (int many = 0; many < 2; many++)
        for (int off = 0; off < 3; off++) {
            side_t s[2] = {side("ours", 2), side("theirs", 2)};
            for (int k = 0; k < 2; k++) {
                float moved = k == 1 ? (float)off * 0x1p-23f : 0;
                add_all(&s[k], 1, "reduced_grad", "1", 0.75f);
                if (many) {
                    s[k].settings = two;
                    add_all(&s[k], 1, "reduced_grad", "3", 0.375f);
                }
                add_all(&s[k], 1, "grad", "-", (many ? 1.125f : 0.75f) + moved);
            }
            /* gamma_1 of 1.125 is 1.125 2^-24: no ulp of it */
            bool wrong = off > 0;
            expect(&s[0], &s[1],
                   wrong ? FSDP_VERDICT_WRONG : FSDP_VERDICT_EQUAL,
                   wrong ? "grad" : NULL);
        }
}
END_TEST

/* ---- norm and clipping ---------------------------------------------------------- */

static const char clipping[] =
    "\"micro_batches\":1,\"grad_clip\":1,\"steps\":[{\"step\":1,\"lr\":0.125}],"
    "\"optimizer\":{\"name\":\"sgd\",\"momentum\":0}";

/* Gradients 2, 2, 2, 2: the norm is 4, and of the coefficient 1 / (4 + 1e-6). */
static side_t
clipped(const char *folder, float norm, double coefficient)
{
    side_t s = side(folder, 2);
    s.settings = clipping;
    add_all(&s, 1, "grad", "-", 2);
    add_all(&s, 1, "clipped_grad", "-", (float)(2 * coefficient));
    s.tensor[s.count] = (hand_tensor_t){s.key[s.count], "[1]", 1, {norm}, NULL};
    strcpy(s.key[s.count], "norm/-/norm");
    s.rank[s.count] = 0;
    s.step[s.count++] = 1;
    return s;
}

START_TEST(norm_and_clipping)
{
    double sound = 1 / (4 + 1e-6);
    side_t ours = clipped("ours", 4, sound);
    const struct {
        float norm;
        double coefficient;
        fsdp_verdict_kind_t kind;
        const char *phase;
    } cases[] = {
        {4, sound, FSDP_VERDICT_EQUAL, NULL},
        {4 + 0x1p-21f, sound, FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4, sound * (1 + 0x1p-23), FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4 * (1 + 0x1p-18f), sound, FSDP_VERDICT_WRONG, "norm"},
        {(float)sqrt(8), sound, FSDP_VERDICT_WRONG, "norm"},
        {4, 1 / (4 + 2e-6), FSDP_VERDICT_WITHIN_ROUNDING, NULL},
        {4, 1 / (4 + 8e-6), FSDP_VERDICT_WRONG, "clipped_grad"},
        {4, 0.25 * sqrt(2), FSDP_VERDICT_WRONG, "clipped_grad"},
        {4, 1, FSDP_VERDICT_WRONG, "clipped_grad"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t theirs = clipped("theirs", cases[i].norm, cases[i].coefficient);
        expect(&ours, &theirs, cases[i].kind, cases[i].phase);
    }
}
END_TEST

/* Where the norm is small, the 1e-6 that is added to it is not. */
START_TEST(small_norms)
{
    double sound = 0x1p-12 / (0x1p-10 + 1e-6), without = 0.25;
    for (int wrong = 0; wrong < 2; wrong++) {
        side_t s[2] = {side("ours", 1), side("theirs", 1)};
        for (int k = 0; k < 2; k++) {
            double by = wrong && k == 1 ? without : sound;
            s[k].settings = "\"micro_batches\":1,\"grad_clip\":"
                            "0.000244140625,\"steps\":[{\"step\":1}]";
            add_all(&s[k], 1, "grad", "-", 0x1p-11f);
            add_all(&s[k], 1, "clipped_grad", "-",
                    (float)(by * 0x1p-11) * (k == 1 ? 1 + 0x1p-23f : 1));
        }
        expect(&s[0], &s[1],
               wrong ? FSDP_VERDICT_WRONG : FSDP_VERDICT_WITHIN_ROUNDING,
               wrong ? "clipped_grad" : NULL);
    }
}
END_TEST

/* The numbers that bounds are made of, beside values from tables; with two
 * degrees of freedom P = 1 - t / sqrt(2 + t^2), nearly 1 / t^2. */
START_TEST(numbers)
{
    const struct {
        double p, freedom, t;
    } student[] = {{0.05, 2, 4.303},
                   {0.05, 10, 2.228},
                   {0.001, 16, 4.015},
                   {0.001, 30, 3.646},
                   {1e-12, 2, 1e6}};
    for (size_t i = 0; i < sizeof student / sizeof *student; i++) {
        double t = verdict_student(student[i].p, student[i].freedom);
        ck_assert_msg(fabs(t - student[i].t) < 2e-3 * student[i].t, "%g", t);
    }
    ck_assert_double_eq(verdict_gamma(3, 0.125), 0.375 / 0.625);
    ck_assert(isinf(verdict_gamma(8, 0.125)));
    /* l = sqrt(2 ln(2e12)) = 7.527 */
    double random = verdict_gamma_random(1e6, 0x1p-24, 1);
    ck_assert(fabs(random - 7.527e3 * 0x1p-24) < 1e-3 * random);
    ck_assert_double_eq(verdict_gamma_random(2, 0x1p-24, 1),
                        verdict_gamma(2, 0x1p-24));
    ck_assert_double_eq(verdict_ulps(FSDP_FP32, 1 + 0x1p-22, 1), 2);
    ck_assert_double_eq(verdict_ulps(FSDP_BF16, 4, 4.03125), 1);
}
END_TEST

/* ---- updates -------------------------------------------------------------------- */

enum {
    SOUND,
    EPS_INSIDE,
    EPS_EARLY,
    NO_CORRECTION,
    COUPLED,
    NO_DECAY,
    OTHER_BETA,
    UPDATES
};

/* AdamW's second step in double, with a fault; x, m, v are changed. */
static void
adamw(int fault, double g, double *x, double *m, double *v)
{
    double beta1 = 0.9, beta2 = fault == OTHER_BETA ? 0.99 : 0.999, eps = 1e-8;
    double lr = 1e-3, decay = fault == NO_DECAY ? 0 : 0.01;
    if (fault == COUPLED) {
        g += decay * *x;
        decay = 0;
    }
    *m = beta1 * *m + (1 - beta1) * g;
    *v = beta2 * *v + (1 - beta2) * g * g;
    double c1 = fault == NO_CORRECTION ? 1 : 1 - beta1 * beta1;
    double c2 = fault == NO_CORRECTION ? 1 : 1 - 0.999 * 0.999;
    double denom = fault == EPS_INSIDE  ? sqrt(*v / c2 + eps)
                   : fault == EPS_EARLY ? (sqrt(*v) + eps) / sqrt(c2)
                                        : sqrt(*v / c2) + eps;
    *x = *x * (1 - lr * decay) - lr * (*m / c1) / denom;
}

static side_t
updated(const char *folder, int fault, int ulps)
{
    static const char settings[] =
        "\"micro_batches\":1,\"steps\":[{\"step\":1,\"lr\":1e-3},{\"step\":2,"
        "\"lr\":1e-3}],\"optimizer\":{\"name\":\"adamw\",\"betas\":[0.9,0.999],"
        "\"eps\":1e-8,\"weight_decay\":0.01}";
    const float x[4] = {0.5f, -0.25f, 0.01f, 0.3f};
    const float m[4] = {1e-4f, -2e-4f, 3e-5f, 1e-3f};
    const float v[4] = {1e-9f, 4e-9f, 1e-10f, 1e-7f};
    const float g[4] = {2e-4f, 1e-4f, -1e-5f, 3e-4f};
    float after[3][4];
    side_t s = side(folder, 1);
    s.settings = settings;
    for (int i = 0; i < 4; i++) {
        double one[3] = {(double)x[i], (double)m[i], (double)v[i]};
        adamw(fault, (double)g[i], &one[0], &one[1], &one[2]);
        for (int k = 0; k < 3; k++)
            after[k][i] = (float)one[k];
        for (int k = 0; k < ulps; k++)
            after[0][i] = nextafterf(after[0][i], 1);
    }
    add(&s, 1, 0, "parameter", "-", x);
    add(&s, 1, 0, "state.exp_avg", "-", m);
    add(&s, 1, 0, "state.exp_avg_sq", "-", v);
    add(&s, 2, 0, "grad", "-", g);
    add(&s, 2, 0, "parameter", "-", after[0]);
    add(&s, 2, 0, "state.exp_avg", "-", after[1]);
    add(&s, 2, 0, "state.exp_avg_sq", "-", after[2]);
    return s;
}

START_TEST(updates_of_adamw)
{
    side_t ours = updated("ours", SOUND, 0);
    for (int fault = SOUND; fault < UPDATES; fault++) {
        side_t theirs = updated("theirs", fault, 0);
        bool wrong = fault != SOUND;
        fsdp_verdict_t *v = NULL;
        ck_assert(judge(&ours, &theirs, NULL, &v) == FSDP_OK);
        ck_assert_msg((v->kind == FSDP_VERDICT_WRONG) == wrong, "fault %d",
                      fault);
        if (wrong) {
            ck_assert_str_eq(
                fsdp_trace_phase_name(v->first_wrong->theirs->phase),
                fault == OTHER_BETA ? "state.exp_avg_sq" : "parameter");
            ck_assert_int_eq((int)v->first_wrong->theirs->step, 2);
        }
        fsdp_verdict_destroy(&v);
    }
    side_t near = updated("theirs", SOUND, 1),
           far = updated("theirs", SOUND, 9);
    expect(&ours, &near, FSDP_VERDICT_WITHIN_ROUNDING, NULL);
    expect(&ours, &far, FSDP_VERDICT_WRONG, "parameter");
}
END_TEST

/* x - lr (g + decay x), all of it exact; the first buffer is not dampened. */
START_TEST(updates_of_sgd)
{
    static const char settings[] =
        "\"micro_batches\":1,\"steps\":[{\"step\":1,\"lr\":0.125}],"
        "\"optimizer\":{\"name\":\"sgd\",\"momentum\":0.5,\"dampening\":0.5,"
        "\"weight_decay\":0.25}";
    const struct {
        float parameter, buffer;
        const char *phase;
    } cases[] = {{1 - 0.125f * 0.75f, 0.75f, NULL},
                 {1 - 0.125f * 0.5f, 0.75f, "parameter"},
                 {1 - 0.125f * 0.5f, 0.5f, "state.momentum_buffer"},
                 {1 - 0.0625f * 0.75f, 0.75f, "parameter"},
                 {1, 0.75f, "parameter"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side_t s[2] = {side("ours", 1), side("theirs", 1)};
        for (int k = 0; k < 2; k++) {
            size_t which = k == 0 ? 0 : i;
            s[k].settings = settings;
            add_all(&s[k], 0, "parameter", "-", 1);
            add_all(&s[k], 1, "grad", "-", 0.5f);
            add_all(&s[k], 1, "parameter", "-", cases[which].parameter);
            add_all(&s[k], 1, "state.momentum_buffer", "-",
                    cases[which].buffer);
        }
        expect(&s[0], &s[1], i == 0 ? FSDP_VERDICT_EQUAL : FSDP_VERDICT_WRONG,
               cases[i].phase);
    }
}
END_TEST

/* The script has groups of parameters: x - lr factor (g + its own decay x). */
START_TEST(updates_of_groups)
{
    static const char settings[] =
        "\"micro_batches\":1,\"steps\":[{\"step\":1,\"lr\":0.125}],"
        "\"optimizer\":{\"name\":\"sgd\",\"momentum\":0,\"weight_decay\":"
        "0.25}";
    const struct {
        const char *own;
        float parameter;
    } cases[] = {{"", 1 - 0.125f * 0.75f},
                 {",\"weight_decay\":0", 1 - 0.125f * 0.5f},
                 {",\"lr_factor\":0.5", 1 - 0.0625f * 0.75f},
                 {",\"weight_decay\":0.5,\"lr_factor\":2", 1 - 0.25f}};
    int count = sizeof cases / sizeof *cases;
    for (int said = 0; said < count; said++)
        for (int done = 0; done < count; done++) {
            side_t ours = side("ours", 1), theirs = side("theirs", 1);
            ours.settings = theirs.settings = settings;
            theirs.own = cases[said].own;
            add_all(&ours, 0, "parameter", "-", 1);
            add_all(&theirs, 0, "parameter", "-", 1);
            add_all(&theirs, 1, "grad", "-", 0.5f);
            add_all(&theirs, 1, "parameter", "-", cases[done].parameter);
            expect(&ours, &theirs,
                   said == done ? FSDP_VERDICT_WITHIN_ROUNDING
                                : FSDP_VERDICT_WRONG,
                   said == done ? NULL : "parameter");
        }
}
END_TEST

/* ---- copies ----------------------------------------------------------------------- */

START_TEST(what_allows_no_rounding)
{
    side_t ours = side("ours", 2), initial = side("theirs", 2);
    side_t stale = side("theirs", 2), copy = side("theirs", 2);
    const float next[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 4.5f};
    add_all(&ours, 0, "parameter", "-", 1);
    add_all(&initial, 0, "parameter", "-", 1 + 0x1p-23f);
    expect(&ours, &initial, FSDP_VERDICT_WRONG, "parameter");

    add(&ours, 1, 0, "gathered_parameter", "0", next);
    add(&stale, 0, 0, "parameter", "-", next);
    add_all(&stale, 1, "gathered_parameter", "0", 1);
    fsdp_verdict_t *v = NULL;
    ck_assert(judge(&ours, &stale, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_WRONG);
    fsdp_verdict_destroy(&v);

    add_all(&copy, 0, "parameter", "-", 1);
    add(&copy, 1, 0, "grad", "-", next);
    add(&copy, 1, 1, "grad", "-", other);
    add(&ours, 1, 0, "grad", "-", next);
    ck_assert(judge(&ours, &copy, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_WRONG);
    ck_assert_int_eq(v->first_wrong->rank, 0);
    ck_assert_int_eq(v->first_wrong->other_rank, 1);
    ck_assert_uint_eq(v->first_wrong->element, 3);
    ck_assert_double_eq(v->first_wrong->other_value, 4.5);
    fsdp_verdict_destroy(&v);
}
END_TEST

/* ---- inputs ------------------------------------------------------------------------ */

/* Ours has one micro-batch of four rows, theirs two of two: outputs are compared
 * all the same; the other way round too. */
START_TEST(merged_micro_batches)
{
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int swapped = 0; swapped < 2; swapped++)
        for (int wrong = 0; wrong < 2; wrong++) {
            const char *const folder[] = {"ours", "theirs"};
            side_t one = side(folder[swapped], 1);
            side_t two = side(folder[!swapped], 2);
            add_input(&one, 0, 0, x, 8);
            add_input(&two, 0, 0, x, 4);
            add_input(&two, 1, 1, x + 4, 4);
            add_input(&one, 0, 0, x, 8);
            strcpy(one.key[one.count - 1], "unit_output/0/u");
            for (int r = 0; r < 2; r++) {
                add_input(&two, r, r, x + 4 * r, 4);
                snprintf(two.key[two.count - 1], 96, "unit_output/%d/u", r);
            }
            two.tensor[two.count - 1].values[2] += (float)wrong;
            expect_named(swapped ? &two : &one, swapped ? &one : &two, NULL,
                         wrong ? FSDP_VERDICT_WRONG : FSDP_VERDICT_EQUAL,
                         wrong ? "unit_output" : NULL, swapped ? 6 : 2);
        }
}
END_TEST

/* Ours was dealt otherwise: found by the data.  Data of nobody is wrong; and so
 * are two ranks with the same, even if ours has that too. */
START_TEST(dealt_data)
{
    float x[4][8];
    for (int i = 0; i < 32; i++)
        x[i / 8][i % 8] = (float)((i * 7) % 32);
    side_t ours = side("ours", 2), dealt = side("theirs", 2);
    side_t other = side("theirs", 2), twice = side("theirs", 2);
    for (int r = 0; r < 2; r++) {
        add_input(&ours, r, r, x[r], 8);
        add_input(&dealt, r, r, x[1 - r], 8);
        add_input(&other, r, r, x[r == 1 ? 2 : 0], 8);
        add_input(&twice, r, r, x[0], 8);
    }
    expect(&ours, &dealt, FSDP_VERDICT_EQUAL, NULL);
    expect(&ours, &other, FSDP_VERDICT_WRONG, "input");
    twice.folder = "ours";
    side_t same = twice;
    same.folder = "theirs";
    expect(&twice, &same, FSDP_VERDICT_WRONG, "input");
}
END_TEST

/* ---- names ------------------------------------------------------------------------- */

static void
expect_names(const char *ours, const char *theirs, const char *rename,
             bool aligned)
{
    side_t a = side("ours", 1), b = side("theirs", 1);
    fsdp_verdict_t *v = NULL;
    a.name = ours;
    b.name = theirs;
    add_all(&a, 0, "parameter", "-", 1);
    add_all(&b, 0, "parameter", "-", 1);
    fsdp_status_t status = judge(&a, &b, rename, &v);
    ck_assert_msg(status == (aligned ? FSDP_OK : FSDP_ERR_INPUT), "%s and %s",
                  ours, theirs);
    if (aligned)
        ck_assert(v->kind == FSDP_VERDICT_EQUAL && v->num_missing == 0);
    else
        ck_assert_ptr_null(v);
    fsdp_verdict_destroy(&v);
    mck_assert(fsdp_memory_live_blocks() == 0);
}

START_TEST(names)
{
    expect_names("h.0.w", "h.0.w", NULL, true);
    expect_names("h.0.w", "module.h.0.w", NULL, true);
    expect_names("transformer.h.0.w",
                 "_orig_mod.module.transformer.h.0._checkpoint_wrapped_module."
                 "w",
                 NULL, true);
    expect_names("model.w", "_fsdp_wrapped_module.w", NULL, true);
    expect_names("h.model.w", "h.w", NULL, false);
    expect_names("h.0.w", "h.1.w", NULL, false);
    expect_names("h.0.w", "layer0/w", "# names\nlayer0/w h.0.w # the first\n",
                 true);
    expect_names("h.0.w", "block.0.kernel", "block.*.kernel h.*.w", true);
    expect_names("h.0.w", "block.0.kernel", "block.*.bias h.*.b", false);
    expect_names("h.0.w", "block.0.kernel", "block.0.bias h.0.b", false);
    expect_names("h.0.w", "h.0.w", "h.0.w", false);
    expect_names("h.0.w", "h.0.w", "a b c", false);
    expect_names("h.0.w", "h.0.w", "a*b*c a*b*c", false);
    expect_names("h.0.w", "h.0.w", "a* b", false);
    expect_names("h.0.w", "h.0.w", "", false);
}
END_TEST

/* What one side lacks is counted, and judged all the same if it can be. */
START_TEST(missing_things)
{
    side_t ours = side("ours", 1), theirs = side("theirs", 1);
    fsdp_verdict_t *v = NULL;
    add_all(&ours, 0, "parameter", "-", 1);
    add_all(&ours, 1, "grad", "-", 0.5f);
    add_all(&theirs, 0, "parameter", "-", 1);
    add_all(&theirs, 1, "reduced_grad", "0", 0.5f);
    ck_assert(judge(&ours, &theirs, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_EQUAL);
    ck_assert_int_eq(v->num_missing, 2);
    ck_assert(!v->missing[0].of_ours &&
              v->missing[0].phase == FSDP_TRACE_REDUCED_GRAD);
    ck_assert(v->missing[1].of_ours && v->missing[1].phase == FSDP_TRACE_GRAD);
    ck_assert_uint_eq(v->missing[1].count, 1);
    fsdp_verdict_destroy(&v);
    add_all(&theirs, 1, "grad", "-", 0.25f);
    expect(&ours, &theirs, FSDP_VERDICT_WRONG, "grad");
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("verdict");
    TCase *tests = tcase_create("verdict");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, bound_of_a_mean);
    tcase_add_test(tests, bound_of_cancelling_terms);
    tcase_add_test(tests, gradient_of_the_step);
    tcase_add_test(tests, norm_and_clipping);
    tcase_add_test(tests, small_norms);
    tcase_add_test(tests, numbers);
    tcase_add_test(tests, updates_of_adamw);
    tcase_add_test(tests, updates_of_sgd);
    tcase_add_test(tests, updates_of_groups);
    tcase_add_test(tests, what_allows_no_rounding);
    tcase_add_test(tests, merged_micro_batches);
    tcase_add_test(tests, dealt_data);
    tcase_add_test(tests, names);
    tcase_add_test(tests, missing_things);
    return mck_run(argc, argv, suite);
}
