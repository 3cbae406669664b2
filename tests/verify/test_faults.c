/* Every fault of fsdp/fault.h that needs no special kind of run (for the others
 * see tests/cli/inject.sh) is found at the step at which it happens, at the
 * place where it acts: in the MLP with layers of 7, 6 and 3 rows. */
/* Ranks: 2 3 4 */
#include <stdio.h>
#include <string.h>

#include "fsdp/fault.h"
#include "mck.h"
#include "trainer.h"

typedef struct seen {
    const char *phase, *unit, *name; /* NULL: not the same everywhere */
} seen_t;

#define LAST "layers.2"
#define FIRST "layers.0"

/* In a backward the last layer comes first, with its weight before its bias;
 * between steps the first layer does. */
static const struct {
    fsdp_fault_kind_t fault;
    seen_t by_phase, by_step;
} faults[] = {
    {FSDP_FAULT_SKIP_BIAS_REDUCE,
     {"reduced gradient", LAST, LAST ".bias"},
     {"gradient", FIRST, FIRST ".bias"}},
    {FSDP_FAULT_SUM_NOT_MEAN,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_MEAN_NOT_SUM,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_STALE_SHARD,
     {"gathered parameter", FIRST, FIRST ".weight"},
     {"loss", "", ""}},
    {FSDP_FAULT_DROP_TAIL,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_SHIFT_CHUNK,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_SKIP_RANK,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_REUSE_BUFFER,
     {"reduced gradient", LAST, LAST ".weight"},
     {"gradient", FIRST, FIRST ".weight"}},
    {FSDP_FAULT_LOCAL_NORM, {"norm", "", ""}, {"norm", "", ""}},
    {FSDP_FAULT_UNREDUCED_REPLICA,
     {"gathered parameter", FIRST, FIRST ".bias"},
     {"loss", "", ""}},
    {FSDP_FAULT_HALF_BATCH, {"unit output", FIRST, ""}, {"loss", "", ""}},
    {FSDP_FAULT_WRONG_ORDER,
     {"reduced gradient", LAST, NULL},
     {"gradient", NULL, NULL}},
};

enum { FAULTS = sizeof faults / sizeof *faults };

static int
size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

static fsdp_divergence_t
divergence_of(fsdp_fault_kind_t fault, fsdp_verify_level_t level)
{
    char text[64];
    trainer_t t = {.dtype = FSDP_FP32,
                   .level = level,
                   .micros = fault == FSDP_FAULT_WRONG_ORDER ? 4 : 2,
                   .clip = 0.5};
    snprintf(text, sizeof text, "%s@2", fsdp_fault_name(fault));
    ck_assert(fsdp_fault_choose(text) == FSDP_OK);
    trainer_result_t r = trainer_run(&t);
    fsdp_fault_choose_none();
    mck_assert(r.step[0].differing == 0 && !r.step[0].first.found);
    mck_assert(r.step[1].differing > 0 && r.step[1].first.found);
    mck_assert(r.total.first.step == 2);
    return r.total.first;
}

static bool
is(const char *seen, const char *expected)
{
    return expected == NULL || strcmp(seen, expected) == 0;
}

static void
assert_seen(const fsdp_divergence_t *d, const seen_t *expected)
{
    bool right = is(d->phase, expected->phase) && is(d->unit, expected->unit) &&
                 is(d->name, expected->name);
    if (!right) {
        char text[512];
        fsdp_divergence_format(d, text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
    mck_assert(right);
}

/* layers.2.weight is [3, 6], layers.0.weight [7, 5]. */
static int
owner_of_row(size_t row, size_t rows)
{
    size_t w = (size_t)size();
    return (int)(row / ((rows + w - 1) / w));
}

/* What more is known of the place. */
static void
assert_place(fsdp_fault_kind_t fault, const fsdp_divergence_t *d)
{
    int last = size() - 1;
    if (fault == FSDP_FAULT_DROP_TAIL) { /* the last of three rows */
        mck_assert(d->element / 6 == 2);
        mck_assert(d->rank == owner_of_row(2, 3));
    }
    if (fault == FSDP_FAULT_STALE_SHARD) { /* the last of seven */
        mck_assert(d->rank == last);
        mck_assert(owner_of_row(d->element / 5, 7) == last);
    }
    if (fault == FSDP_FAULT_SKIP_RANK || fault == FSDP_FAULT_SHIFT_CHUNK)
        mck_assert(d->rank == owner_of_row(d->element / 6, 3));
    if (fault == FSDP_FAULT_HALF_BATCH)
        mck_assert(d->rank == 1 && d->micro == 1);
    /* Every number is wrong by the number of ranks. */
    if (fault == FSDP_FAULT_SUM_NOT_MEAN && size() != 3)
        mck_assert(d->ours == d->expected * size());
    if (fault == FSDP_FAULT_MEAN_NOT_SUM && size() != 3)
        mck_assert(d->ours == d->expected / size());
}

/* Of two ranks each has all sums of two terms in one order only; what is then
 * out of order is the sum over micro-batches. */
static seen_t
seen_by_phase(int i)
{
    if (faults[i].fault == FSDP_FAULT_WRONG_ORDER && size() == 2)
        return faults[i].by_step;
    return faults[i].by_phase;
}

START_TEST(found_by_phase)
{
    fsdp_divergence_t d = divergence_of(faults[_i].fault, FSDP_VERIFY_PHASE);
    seen_t expected = seen_by_phase(_i);
    assert_seen(&d, &expected);
    assert_place(faults[_i].fault, &d);
}
END_TEST

START_TEST(found_by_step)
{
    fsdp_divergence_t d = divergence_of(faults[_i].fault, FSDP_VERIFY_STEP);
    assert_seen(&d, &faults[_i].by_step);
}
END_TEST

/* With MPI's own order only rounding is forgiven. */
START_TEST(found_within_bounds)
{
    trainer_t t = {.dtype = FSDP_FP32,
                   .order = FSDP_ORDER_MPI,
                   .level = FSDP_VERIFY_PHASE,
                   .micros = 2,
                   .clip = 0.5};
    ck_assert(fsdp_fault_choose("skip-bias-reduce@2") == FSDP_OK);
    trainer_result_t r = trainer_run(&t);
    fsdp_fault_choose_none();
    mck_assert(r.step[0].differing == 0 && r.total.first.step == 2);
    mck_assert(strcmp(r.total.first.name, LAST ".bias") == 0);
    mck_assert(r.total.bound_ratio > 1);
}
END_TEST

START_TEST(all_faults_are_here)
{
    ck_assert_int_eq(FAULTS, FSDP_FAULT_WRONG_ORDER); /* the last */
    for (int i = 0; i < FAULTS; i++)
        for (int k = 0; k < i; k++)
            ck_assert(faults[i].fault != faults[k].fault);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("faults");
    TCase *tcase = tcase_create("found");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, found_by_phase, 0, FAULTS);
    tcase_add_loop_test(tcase, found_by_step, 0, FAULTS);
    tcase_add_test(tcase, found_within_bounds);
    tcase_add_test(tcase, all_faults_are_here);
    return mck_run(argc, argv, suite);
}
