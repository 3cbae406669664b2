/* A file into a model of any cut and type; files that do not fit are refused on
 * all ranks alike, and leave the model as it was. */
#include "mck.h"

#include "checkpoint/model_case.h"

/* Multiples of 1/8 survive every type. */
START_TEST(any_floating_type)
{
    static const char *const types[] = {"F64", "F32", "BF16", "F16"};
    hand_t hand[SPECS + 2];
    for (int t = 0; t < 4; t++) {
        hand_model(hand, types[t]);
        hand_write(hand, SPECS, value);
        for (int d = 0; d < 2; d++)
            for (int cut = 0; cut < GIVEN_CUTS; cut++) {
                fsdp_module_t *model = make(d == 0 ? FSDP_FP32 : FSDP_FP64,
                                            (given_cut_t)cut, zero);
                mck_assert(fsdp_model_load(model, world, path) == FSDP_OK);
                mck_assert(has(model, value));
                fsdp_module_destroy(&model);
            }
        fsdp_barrier(world, "next");
    }
}
END_TEST

START_TEST(rounded_to_the_type)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F64");
    hand_write(hand, SPECS, third);
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, zero);
    ck_assert(fsdp_model_load(model, world, path) == FSDP_OK);
    mck_assert(has(model, third));
    fsdp_module_destroy(&model);
}
END_TEST

/* The file's names have the prefix and the model's do not. */
START_TEST(prefix_in_the_file_only)
{
    static const given_spec_t bare = {"ln_f.bias", 1, {9}, GIVEN_USED};
    hand_t hand = {"transformer.ln_f.bias", "F32", "9", 9, "ln_f.bias", false};
    hand_write(&hand, 1, value);
    fsdp_module_t *model =
        given_create(&bare, 1, FSDP_FP32, mesh, GIVEN_ALL, zero);
    fsdp_module_t *alone =
        given_create(&bare, 1, FSDP_FP32, mesh, GIVEN_WHOLE, zero);
    ck_assert(fsdp_model_load(model, world, path) == FSDP_OK);
    ck_assert(fsdp_model_load(alone, NULL, path) == FSDP_OK);
    fsdp_module_t *both[] = {model, alone};
    for (int m = 0; m < 2; m++) {
        fsdp_local_t local = fsdp_parameter_local(
            fsdp_module_find_parameter(both[m], "ln_f.bias"));
        bool good = true;
        for (size_t e = 0; e < local.numel; e++)
            good = good && ((float *)local.data)[e] ==
                               (float)value("ln_f.bias", fsdp_layout_begin(&local.layout) + e);
        mck_assert(good);
    }
    fsdp_module_destroy(&model);
    fsdp_module_destroy(&alone);
}
END_TEST

/* What old and tied files of GPT-2 hold besides. */
START_TEST(head_and_masks)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand[SPECS] = (hand_t){"lm_head.weight",         "F32", "7,4", 28,
                           "transformer.wte.weight", false};
    hand[SPECS + 1] =
        (hand_t){"h.0.attn.bias", "F32", "1,1,2,2", 4, "mask", false};
    hand_write(hand, SPECS + 2, value);
    for (int cut = 0; cut < GIVEN_CUTS; cut++) {
        fsdp_module_t *model = make(FSDP_FP32, (given_cut_t)cut, zero);
        mck_assert(fsdp_model_load(model, world, path) == FSDP_OK);
        mck_assert(has(model, value));
        fsdp_module_destroy(&model);
    }
}
END_TEST

/* -- loading that fails -- */

/* The message names the file and has all of `words`; the model is as before. */
static void
check_refused(const hand_t *hand, int count, const char *const words[3])
{
    hand_write(hand, count, value);
    for (int cut = 0; cut < GIVEN_CUTS; cut++) {
        fsdp_module_t *model = make(FSDP_FP32, (given_cut_t)cut, third);
        mck_assert(fsdp_model_load(model, world, path) == FSDP_ERR_INPUT);
        mck_assert(strstr(fsdp_error_message(), path) != NULL);
        for (int i = 0; i < 3; i++)
            mck_assert(words[i] == NULL ||
                       strstr(fsdp_error_message(), words[i]) != NULL);
        mck_assert(has(model, third));
        fsdp_module_destroy(&model);
    }
}

#define WORDS(...)                                                             \
    (const char *const[3])                                                     \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

START_TEST(missing)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    check_refused(hand, SPECS - 1, WORDS("transformer.wte.weight", "missing"));
}
END_TEST

START_TEST(superfluous)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand[SPECS] = (hand_t){"h.1.weight", "F32", "2", 2, "x", false};
    check_refused(hand, SPECS + 1, WORDS("h.1.weight", "superfluous"));
    hand[SPECS] = (hand_t){"transformer.ln_f.bias", "F32", "9", 9, "x", false};
    check_refused(hand, SPECS + 1, WORDS("ln_f.bias", "twice"));
}
END_TEST

START_TEST(other_shape)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand[C_FC].shape = "2,5,3";
    check_refused(hand, SPECS,
                  WORDS("h.0.c_fc.weight", "[2, 5, 3]", "[2, 3, 5]"));
    hand[C_FC].shape = "2,15"; /* as many elements */
    check_refused(hand, SPECS,
                  WORDS("h.0.c_fc.weight", "[2, 15]", "[2, 3, 5]"));
}
END_TEST

START_TEST(other_type)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand[C_FC].dtype = "I32";
    check_refused(hand, SPECS, WORDS("h.0.c_fc.weight", "int32"));
}
END_TEST

START_TEST(head_that_is_not_tied)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand[SPECS] = (hand_t){"lm_head.weight",         "F32", "7,4", 28,
                           "transformer.wte.weight", true};
    check_refused(hand, SPECS + 1, WORDS("lm_head.weight", "wte.weight"));
    hand[SPECS] = (hand_t){"lm_head.weight",         "F32", "4,7", 28,
                           "transformer.wte.weight", false};
    check_refused(hand, SPECS + 1, WORDS("lm_head.weight", "[4, 7]", "[7, 4]"));
}
END_TEST

/* A file that the last rank alone cannot see. */
START_TEST(not_there_on_one_rank)
{
    bool last = rank == fsdp_comm_size(world) - 1;
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    hand_write(hand, SPECS, value);
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, third);
    fsdp_status_t status =
        fsdp_model_load(model, world, last ? "/no/such/file" : path);
    mck_assert(status != FSDP_OK);
    mck_assert(strstr(fsdp_error_message(), "/no/such/file") != NULL);
    mck_assert(has(model, third));
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("model_load");
    TCase *tcase = tcase_create("model_load");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, any_floating_type);
    tcase_add_test(tcase, rounded_to_the_type);
    tcase_add_test(tcase, prefix_in_the_file_only);
    tcase_add_test(tcase, head_and_masks);
    tcase_add_test(tcase, missing);
    tcase_add_test(tcase, superfluous);
    tcase_add_test(tcase, other_shape);
    tcase_add_test(tcase, other_type);
    tcase_add_test(tcase, head_that_is_not_tied);
    tcase_add_test(tcase, not_there_on_one_rank);
    return mck_run(argc, argv, suite);
}
