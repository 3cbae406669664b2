/* Verdicts on traces that are not alike: micro-batches, data, names, gaps. */
/* Ranks: 1 */
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "verdict_sides.h"

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
            side_add_input(&one, 0, 0, x, 8);
            side_add_input(&two, 0, 0, x, 4);
            side_add_input(&two, 1, 1, x + 4, 4);
            side_add_input(&one, 0, 0, x, 8);
            strcpy(one.key[one.count - 1], "unit_output/0/u");
            for (int r = 0; r < 2; r++) {
                side_add_input(&two, r, r, x + 4 * r, 4);
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
        side_add_input(&ours, r, r, x[r], 8);
        side_add_input(&dealt, r, r, x[1 - r], 8);
        side_add_input(&other, r, r, x[r == 1 ? 2 : 0], 8);
        side_add_input(&twice, r, r, x[0], 8);
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
    side_add_all(&a, 0, "parameter", "-", 1);
    side_add_all(&b, 0, "parameter", "-", 1);
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
    side_add_all(&ours, 0, "parameter", "-", 1);
    side_add_all(&ours, 1, "grad", "-", 0.5f);
    side_add_all(&theirs, 0, "parameter", "-", 1);
    side_add_all(&theirs, 1, "reduced_grad", "0", 0.5f);
    ck_assert(judge(&ours, &theirs, NULL, &v) == FSDP_OK);
    ck_assert(v->kind == FSDP_VERDICT_EQUAL);
    ck_assert_int_eq(v->num_missing, 2);
    ck_assert(!v->missing[0].of_ours &&
              v->missing[0].phase == FSDP_TRACE_REDUCED_GRAD);
    ck_assert(v->missing[1].of_ours && v->missing[1].phase == FSDP_TRACE_GRAD);
    ck_assert_uint_eq(v->missing[1].count, 1);
    fsdp_verdict_destroy(&v);
    side_add_all(&theirs, 1, "grad", "-", 0.25f);
    expect(&ours, &theirs, FSDP_VERDICT_WRONG, "grad");
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("verdict_match");
    TCase *tcase = tcase_create("matching");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, merged_micro_batches);
    tcase_add_test(tcase, dealt_data);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, missing_things);
    return mck_run(argc, argv, suite);
}
