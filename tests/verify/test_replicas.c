/* One bit of one copy changed behind the verifier's back: it is told as a
 * replica's, of the rank that was tampered with; and nothing differs if nobody
 * does.  Two replicas. */
/* Ranks: 2 4 */
#include "mck.h"
#include "trainer.h"

static const struct {
    tamper_t tamper;
    const char *what;
} cases[] = {
    {TAMPER_GRADIENT, "gradient"},        {TAMPER_NORM, "norm"},
    {TAMPER_CLIPPED, "clipped gradient"}, {TAMPER_PARAMETER, "parameter"},
    {TAMPER_STATE, "exp_avg_sq"},
};

static trainer_t
two_replicas(void)
{
    return (trainer_t){.dtype = FSDP_FP32,
                       .level = FSDP_VERIFY_STEP,
                       .micros = 2,
                       .adamw = true,
                       .clip = 0.5,
                       .replicas = 2};
}

START_TEST(equal_ones_differ_nowhere)
{
    trainer_t t = two_replicas();
    t.gpt2 = _i == 1;
    t.level = FSDP_VERIFY_PHASE;
    trainer_result_t r = trainer_run(&t);
    mck_assert(r.total.compared > 1000 && r.total.differing == 0);
}
END_TEST

START_TEST(a_changed_copy_is_found)
{
    trainer_t t = two_replicas();
    t.tamper = cases[_i].tamper;
    trainer_result_t r = trainer_run(&t);
    const fsdp_divergence_t *first = &r.total.first;
    mck_assert(r.tampered && r.step[0].differing == 0);
    mck_assert(first->found && first->step == 2);
    ck_assert_str_eq(first->phase, "replica");
    ck_assert_str_eq(first->what, cases[_i].what);
    mck_assert(first->rank == r.tamperer && first->ulps == 1);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("replicas");
    TCase *tcase = tcase_create("replicas");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, equal_ones_differ_nowhere, 0, 2);
    tcase_add_loop_test(tcase, a_changed_copy_is_found, 0,
                        (int)(sizeof cases / sizeof *cases));
    return mck_run(argc, argv, suite);
}
