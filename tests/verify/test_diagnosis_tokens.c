/* What a micro-batch's loss counts for, by its targets: each mistaken weight has its
 * name and not another's; a factor that no such weight gives has neither. */
/* Ranks: 1 */
#include <math.h>
#include <string.h>

#include "mck.h"
#include "verify/diagnosis/diagnosis.h"

enum { N = 2, M = 2, TARGETS = 9, NUMEL = 12, IGNORED = -100 };

/* Of the micro-batches 0, 1 (of rank 0), 2, 3 (of rank 1). */
static const int counting[N * M] = {3, 5, 7, 8};

static const double *
get(void *context, bool ours, long step, fsdp_trace_phase_t phase, int micro,
    const char *name, int rank, uint64_t *numel)
{
    static double targets[N * M][TARGETS];
    (void)context;
    (void)ours;
    (void)rank;
    *numel = TARGETS;
    if (step != 1 || phase != FSDP_TRACE_INPUT || strcmp(name, "targets") != 0)
        return NULL;
    for (int i = 0; i < TARGETS; i++)
        targets[micro][i] = i < counting[micro] ? i : IGNORED;
    return targets[micro];
}

/** The id of the first cause of a gradient of micro-batch g, theirs `weight` times
 *  that of the mean, if it should be `expected` times; "" if there is none. */
static const char *
cause_of(const char *average, double scale, fsdp_trace_phase_t phase, int g,
         double weight, double expected)
{
    static fsdp_cause_t cause[FSDP_MAX_CAUSES];
    fsdp_trace_about_t about = {.world_size = N,
                                .replicas = 1,
                                .shards = N,
                                .micro_batches = M,
                                .gradient_sync = FSDP_SYNC_LAST,
                                .average = (char *)average,
                                .ignore_index = IGNORED,
                                .loss_scale = scale};
    double is[NUMEL], right[NUMEL], bound[NUMEL];
    for (int i = 0; i < NUMEL; i++) {
        double mean = (i * 37 % 11 - 4.5) / 8;
        right[i] = (double)(float)(expected * mean);
        is[i] = (double)(float)(weight * mean);
        bound[i] = 0x1p-22 * fabs(right[i]);
    }
    fsdp_symptom_t s = {.meant = &about,
                        .theirs = &about,
                        .step = 1,
                        .phase = phase,
                        .micro = g,
                        .name = "w",
                        .dtype = FSDP_FP32,
                        .ndim = 1,
                        .shape = {NUMEL},
                        .numel = NUMEL,
                        .is = is,
                        .expected = right,
                        .bound = bound,
                        .get = get};
    return fsdp_diagnose(&s, cause) > 0 ? cause[0].id : "";
}

static const fsdp_trace_phase_t phases[] = {
    FSDP_TRACE_OUTPUT_GRAD, FSDP_TRACE_INPUT_GRAD, FSDP_TRACE_UNREDUCED_GRAD};

START_TEST(of_one_that_should_be_by_tokens)
{
    /* 23 targets count, 8 of rank 0, 15 of rank 1 */
    for (int g = 0; g < N * M; g++)
        for (int p = 0; p < 3; p++) {
            double scale = 0.75, n = counting[g], own = g < M ? 8 : 15;
            double right = scale * n * N * M / 23;
            const char *id = cause_of("token", scale, phases[p], g, 1, right);
            ck_assert_str_eq(id, "token-mean");
            id = cause_of("token", scale, phases[p], g, 0.5, right);
            ck_assert_str_eq(id, "token-mean");
            id = cause_of("token", scale, phases[p], g, n / own, right);
            ck_assert_str_eq(id, "token-mean");
            id = cause_of("token", scale, phases[p], g, n / TARGETS, right);
            ck_assert_str_eq(id, "ignored-targets");
            id = cause_of("token", scale, phases[p], g, 0.9, right);
            ck_assert_str_eq(id, "constant-factor");
        }
}
END_TEST

START_TEST(of_one_that_should_count_as_all)
{
    for (int g = 0; g < N * M; g++)
        for (int p = 0; p < 3; p++) {
            double scale = 0.4, n = counting[g];
            const char *id =
                cause_of("rank", scale, phases[p], g, n * N * M / 23, scale);
            ck_assert_str_eq(id, "token-mean");
            id = cause_of("rank", scale, phases[p], g, n / TARGETS / M, scale);
            ck_assert_str_eq(id, "ignored-targets");
            id = cause_of("rank", scale, phases[p], g, 0.9, scale);
            ck_assert_str_eq(id, "constant-factor");
        }
}
END_TEST

/* A loss is no gradient: only what it is divided by can be wrong. */
START_TEST(of_a_loss)
{
    const char *id =
        cause_of("rank", 0.5, FSDP_TRACE_LOSS, 1, 5.0 / TARGETS, 1);
    ck_assert_str_eq(id, "ignored-targets");
    id = cause_of("rank", 0.5, FSDP_TRACE_LOSS, 1, 5.0 * N * M / 23, 1);
    ck_assert_str_eq(id, "constant-factor");
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("diagnosis_tokens");
    TCase *tcase = tcase_create("diagnosis_tokens");
    tcase_add_test(tcase, of_one_that_should_be_by_tokens);
    tcase_add_test(tcase, of_one_that_should_count_as_all);
    tcase_add_test(tcase, of_a_loss);
    suite_add_tcase(suite, tcase);
    return mck_run(argc, argv, suite);
}
