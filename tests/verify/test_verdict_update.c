/* Verdicts on updates of optimizers: a rounding is within them, a mistake is not. */
/* Ranks: 1 */
#include <math.h>

#include "mck.h"
#include "verdict_sides.h"

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
    side_add(&s, 1, 0, "parameter", "-", x);
    side_add(&s, 1, 0, "state.exp_avg", "-", m);
    side_add(&s, 1, 0, "state.exp_avg_sq", "-", v);
    side_add(&s, 2, 0, "grad", "-", g);
    side_add(&s, 2, 0, "parameter", "-", after[0]);
    side_add(&s, 2, 0, "state.exp_avg", "-", after[1]);
    side_add(&s, 2, 0, "state.exp_avg_sq", "-", after[2]);
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
            side_add_all(&s[k], 0, "parameter", "-", 1);
            side_add_all(&s[k], 1, "grad", "-", 0.5f);
            side_add_all(&s[k], 1, "parameter", "-", cases[which].parameter);
            side_add_all(&s[k], 1, "state.momentum_buffer", "-",
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
            side_add_all(&ours, 0, "parameter", "-", 1);
            side_add_all(&theirs, 0, "parameter", "-", 1);
            side_add_all(&theirs, 1, "grad", "-", 0.5f);
            side_add_all(&theirs, 1, "parameter", "-", cases[done].parameter);
            expect(&ours, &theirs,
                   said == done ? FSDP_VERDICT_WITHIN_ROUNDING
                                : FSDP_VERDICT_WRONG,
                   said == done ? NULL : "parameter");
        }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("verdict_update");
    TCase *tcase = tcase_create("updates");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, updates_of_adamw);
    tcase_add_test(tcase, updates_of_sgd);
    tcase_add_test(tcase, updates_of_groups);
    return mck_run(argc, argv, suite);
}
