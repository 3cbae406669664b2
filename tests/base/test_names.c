/* The small tables of src/base: dtypes, faults, clocks. */
/* Ranks: 1 */
#include "serial.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "fsdp/clock.h"
#include "fsdp/dtype.h"
#include "fsdp/fault.h"

START_TEST(dtypes_have_sizes_and_names)
{
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_FP64), 8);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_FP32), 4);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_BF16), 2);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_FP16), 2);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_INT64), 8);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_INT32), 4);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_UINT8), 1);
    ck_assert_uint_eq(fsdp_dtype_size(FSDP_DTYPE_NONE), 0);
    ck_assert_uint_eq(fsdp_dtype_size((fsdp_dtype_t)1000), 0);
    ck_assert_str_eq(fsdp_dtype_name(FSDP_BF16), "bfloat16");
    ck_assert_str_eq(fsdp_dtype_name(FSDP_DTYPE_NONE), "none");
    ck_assert_str_eq(fsdp_dtype_safetensors_name(FSDP_INT64), "I64");
}
END_TEST

START_TEST(dtype_names_read_back)
{
    ck_assert_int_eq(fsdp_dtype_from_name("float16"), FSDP_FP16);
    ck_assert_int_eq(fsdp_dtype_from_name("F64"), FSDP_FP64);
    ck_assert_int_eq(fsdp_dtype_from_name("BF16"), FSDP_BF16);
    ck_assert_int_eq(fsdp_dtype_from_name("bf16"), FSDP_DTYPE_NONE);
    ck_assert_int_eq(fsdp_dtype_from_name(""), FSDP_DTYPE_NONE);
    for (int d = FSDP_DTYPE_NONE; d <= FSDP_UINT8; d++) {
        const char *torch = fsdp_dtype_name((fsdp_dtype_t)d);
        const char *safe = fsdp_dtype_safetensors_name((fsdp_dtype_t)d);
        ck_assert_int_eq(fsdp_dtype_from_name(torch), d);
        ck_assert_int_eq(fsdp_dtype_from_name(safe), d);
    }
}
END_TEST

START_TEST(fault_happens_at_every_step)
{
    fsdp_fault_set_step(0);
    ck_assert_int_eq(fsdp_fault_choose("drop-tail"), FSDP_OK);
    ck_assert_int_eq(fsdp_fault_chosen(), FSDP_FAULT_DROP_TAIL);
    ck_assert(!fsdp_fault(FSDP_FAULT_DROP_TAIL)); /* no step has begun */
    for (long step = 1; step < 4; step++) {
        fsdp_fault_set_step(step);
        ck_assert(fsdp_fault(FSDP_FAULT_DROP_TAIL));
        ck_assert(!fsdp_fault(FSDP_FAULT_SKIP_RANK));
        ck_assert(!fsdp_fault(FSDP_FAULT_NONE));
    }
    fsdp_fault_choose_none();
    ck_assert(!fsdp_fault(FSDP_FAULT_DROP_TAIL));
    ck_assert(!fsdp_fault(FSDP_FAULT_NONE));
    ck_assert_int_eq(fsdp_fault_chosen(), FSDP_FAULT_NONE);
}
END_TEST

START_TEST(fault_happens_at_its_step)
{
    ck_assert_int_eq(fsdp_fault_choose("half-batch@3"), FSDP_OK);
    for (long step = 0; step < 40; step++) {
        fsdp_fault_set_step(step);
        ck_assert(fsdp_fault(FSDP_FAULT_HALF_BATCH) == (step == 3));
    }
    /* The former step is forgotten with the former fault. */
    ck_assert_int_eq(fsdp_fault_choose("wrong-order"), FSDP_OK);
    ck_assert(fsdp_fault(FSDP_FAULT_WRONG_ORDER));
    fsdp_fault_choose_none();
    fsdp_fault_set_step(0);
}
END_TEST

START_TEST(bad_fault_is_refused)
{
    static const char *const bad[] = {
        "",
        "none",
        "drop",
        "drop-tails",
        "Drop-tail",
        "drop-tail@",
        "drop-tail@0",
        "drop-tail@-1",
        "drop-tail@x",
        "drop-tail@1x",
        "drop-tail@+1",
        "drop-tail@ 1",
        "drop-tail@1@2",
        "@1",
        "drop-tail@99999999999999999999",
    };
    ck_assert_int_eq(fsdp_fault_choose("skip-rank@2"), FSDP_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fsdp_error(FSDP_OK, "%s", "");
        ck_assert_int_eq(fsdp_fault_choose(bad[i]), FSDP_ERR_USAGE);
        ck_assert(strstr(fsdp_error_message(), "--inject") != NULL);
        ck_assert(strstr(fsdp_error_message(), bad[i]) != NULL);
    }
    /* The choice before is not disturbed. */
    ck_assert_int_eq(fsdp_fault_chosen(), FSDP_FAULT_SKIP_RANK);
    fsdp_fault_choose_none();
}
END_TEST

START_TEST(faults_have_names)
{
    ck_assert_str_eq(fsdp_fault_name(FSDP_FAULT_NONE), "none");
    ck_assert_int_eq(FSDP_FAULT_COUNT, 33); /* thirty-two, and none */
    for (int k = 1; k < FSDP_FAULT_COUNT; k++) {
        fsdp_fault_kind_t kind = (fsdp_fault_kind_t)k;
        ck_assert_int_eq(fsdp_fault_choose(fsdp_fault_name(kind)), FSDP_OK);
        ck_assert_int_eq(fsdp_fault_chosen(), k);
        ck_assert_uint_gt(strlen(fsdp_fault_text(kind)), 10);
    }
    fsdp_fault_choose_none();
}
END_TEST

START_TEST(clock_runs_with_sleep)
{
    const struct timespec nap = {0, 20000000};
    double before = fsdp_clock_seconds();
    nanosleep(&nap, NULL);
    double passed = fsdp_clock_seconds() - before;
    ck_assert(passed >= 0.02 && passed < 20.0);
}
END_TEST

START_TEST(cpus_are_those_of_the_mask)
{
    cpu_set_t all, one;
    ck_assert(sched_getaffinity(0, sizeof all, &all) == 0);
    ck_assert_int_eq(fsdp_cpu_count(), CPU_COUNT(&all));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert(sched_setaffinity(0, sizeof one, &one) == 0);
    ck_assert_int_eq(fsdp_cpu_count(), 1);
    ck_assert(sched_setaffinity(0, sizeof all, &all) == 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("names");
    TCase *tcase = tcase_create("names");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, dtypes_have_sizes_and_names);
    tcase_add_test(tcase, dtype_names_read_back);
    tcase_add_test(tcase, fault_happens_at_every_step);
    tcase_add_test(tcase, fault_happens_at_its_step);
    tcase_add_test(tcase, bad_fault_is_refused);
    tcase_add_test(tcase, faults_have_names);
    tcase_add_test(tcase, clock_runs_with_sleep);
    tcase_add_test(tcase, cpus_are_those_of_the_mask);
    return serial_run(suite);
}
