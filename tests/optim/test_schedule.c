/* Ranks: 1 */
/* Warm-up and cosine, against numbers worked out by hand. */
#include "mck.h"

#include <float.h>
#include <math.h>

#include "fsdp/optim.h"

START_TEST(warm_up)
{
    fsdp_schedule_t s = {.lr = 1, .warmup_steps = 4, .total_steps = 100};
    ck_assert(fsdp_schedule_lr(&s, 1) == 0.25);
    ck_assert(fsdp_schedule_lr(&s, 2) == 0.5);
    ck_assert(fsdp_schedule_lr(&s, 3) == 0.75);
    ck_assert(fsdp_schedule_lr(&s, 4) == 1);
    ck_assert(fsdp_schedule_lr(&s, 5) < 1);
}
END_TEST

/* lr + min_lr = 4 and lr - min_lr = 2: 2 + cos(30 i degrees).  The angle is off
 * by two ulps of pi, the rest rounds a few times at sizes up to 4. */
START_TEST(cosine)
{
    fsdp_schedule_t s = {
        .lr = 3, .min_lr = 1, .warmup_steps = 6, .total_steps = 12};
    const double want[] = {3, 2 + sqrt(0.75), 2.5, 2, 1.5, 2 - sqrt(0.75), 1};
    for (int i = 0; i <= 6; i++)
        ck_assert(fabs(fsdp_schedule_lr(&s, 6 + i) - want[i]) <=
                  8 * DBL_EPSILON);
    ck_assert(fsdp_schedule_lr(&s, 6) == 3);
    ck_assert(fsdp_schedule_lr(&s, 12) == 1);
    ck_assert(fsdp_schedule_lr(&s, 13) == 1);
    ck_assert(fsdp_schedule_lr(&s, 1000000) == 1);
    for (long step = 7; step <= 12; step++)
        ck_assert(fsdp_schedule_lr(&s, step) < fsdp_schedule_lr(&s, step - 1));
}
END_TEST

START_TEST(without_warm_up)
{
    fsdp_schedule_t s = {.lr = 2, .total_steps = 3};
    ck_assert(fabs(fsdp_schedule_lr(&s, 1) - 1.5) <= 8 * DBL_EPSILON);
    ck_assert(fabs(fsdp_schedule_lr(&s, 2) - 0.5) <= 8 * DBL_EPSILON);
    ck_assert(fsdp_schedule_lr(&s, 3) == 0);
}
END_TEST

START_TEST(constant)
{
    fsdp_schedule_t s = {.lr = 0.3, .min_lr = 0.1};
    for (long step = 1; step < 10; step++)
        ck_assert(fsdp_schedule_lr(&s, step) == 0.3);
    s.warmup_steps = 2;
    ck_assert(fsdp_schedule_lr(&s, 1) == 0.15);
    for (long step = 2; step < 10; step++)
        ck_assert(fsdp_schedule_lr(&s, step) == 0.3);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("schedule");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, warm_up);
    tcase_add_test(tcase, cosine);
    tcase_add_test(tcase, without_warm_up);
    tcase_add_test(tcase, constant);
    return mck_run(argc, argv, suite);
}
