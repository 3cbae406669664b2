/* Whatever is wrong with a trace is refused with one message. */
/* Ranks: 1 */
#include <stdio.h>
#include <string.h>

#include "hand_trace.h"
#include "mck.h"
#include "sound_trace.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

typedef struct unsound {
    const char *file, *text, *message;
} unsound_t;

#define HEAD "{\"format\":\"libfsdp-trace\",\"version\":1,\"world_size\":2"
#define RANK "{\"rank\":0,\"step\":0"
#define A "\"pieces\":{\"parameter/-/a\":{\"shape\":[2,3],\"runs\":"

/* Each replaces one file of the sound trace; NULL: takes it away. */
static const unsound_t unsound[] = {
    {"trace.json", NULL, "has no trace.json, which is written last"},
    {"trace.json", "{", "not JSON"},
    {"trace.json", "[]", "holds no object"},
    {"trace.json", "{\"version\":1,\"world_size\":2}", "\"format\" must be"},
    {"trace.json", "{\"format\":\"libfsdp-trace\",\"version\":2}",
     "\"version\" must be 1"},
    {"trace.json", "{\"format\":\"libfsdp-trace\",\"version\":1}",
     "\"world_size\" must be given"},
    {"trace.json", HEAD ",\"world_size\":2}", "not JSON: duplicate"},
    {"trace.json", HEAD ",\"ranks\":[0,1,1]}", "\"ranks\" must be each rank"},
    {"trace.json", HEAD ",\"ranks\":[0,2]}", "below \"world_size\""},
    {"trace.json", HEAD ",\"ranks\":[0]}", "a file of rank 1"},
    {"trace.json", HEAD ",\"ranks\":[0.5]}", "\"ranks\" must be whole"},
    {"trace.json",
     "{\"format\":\"libfsdp-trace\",\"version\":1,\"world_size\":1}",
     "rank 1, but trace.json says \"world_size\" 1"},
    {"trace.json",
     "{\"format\":\"libfsdp-trace\",\"version\":1,\"world_size\":3,"
     "\"ranks\":[0,1,2]}",
     "no file of rank 2"},
    {"trace.json", HEAD ",\"mesh\":{\"replicate\":2,\"shard\":2}}",
     "\"mesh\" must be dimensions"},
    {"trace.json", HEAD ",\"steps\":[{\"step\":1,\"lr\":\"NaN\"}]}",
     "\"lr\" must be a number"},
    {"trace.json", HEAD ",\"steps\":[{\"step\":1,\"lr\":NaN}]}", "not JSON"},
    {"trace.json", HEAD ",\"steps\":[{\"step\":2},{\"step\":1}]}",
     "\"steps\" must be in ascending order"},
    {"trace.json", HEAD ",\"steps\":[{\"step\":3}]}",
     "step-000001 is a step that trace.json does not list"},
    {"trace.json", HEAD ",\"gradient_sync\":\"never\"}",
     "\"gradient_sync\" must be one of"},
    {"trace.json", HEAD ",\"precision\":{\"param_dtype\":\"int32\"}}",
     "\"param_dtype\" must be float64"},
    {"trace.json", HEAD ",\"optimizer\":{\"name\":\"adamw\",\"betas\":[1,0]}}",
     "\"betas\" must be two numbers"},
    {"trace.json", HEAD ",\"parameters\":[{\"name\":\"a\",\"shape\":[3,2]}]}",
     "another shape than trace.json says"},
    {"trace.json",
     HEAD ",\"parameters\":[{\"name\":\"a\",\"shape\":[4294967296,"
          "4294967296]}]}",
     "\"shape\" must be an array"},
    {"trace.json", HEAD ",\"units\":[1]}", "\"units\" must be strings"},
    {"step-000000/rank-00000.json", "{\"rank\":1,\"step\":0}",
     "\"rank\" is not the rank of the file's name"},
    {"step-000000/rank-00000.json", "{\"rank\":0,\"step\":1}",
     "\"step\" is not the step"},
    {"step-000000/rank-00000.json", RANK ",\"data_parallel_rank\":2}",
     "\"data_parallel_rank\" is no whole number below"},
    {"step-000000/rank-00000.json", RANK ",\"pieces\":[]}", "is no object"},
    {"step-000000/rank-00000.json", RANK ",\"pieces\":{\"grad/-/a\":{}}}",
     "grad/-/a is in \"pieces\", but no tensor"},
    {"step-000000/rank-00000.json",
     RANK ",\"pieces\":{\"parameter/-/a\":{\"shape\":[-1],\"runs\":[]}}}",
     "shape whose size overflows"},
    {"step-000000/rank-00000.json",
     RANK ",\"pieces\":{\"parameter/-/a\":{\"shape\":[9223372036854775807,4],"
          "\"runs\":[]}}}",
     "shape whose size overflows"},
    {"step-000000/rank-00000.json", RANK "," A "[[0,4,0]]}}}",
     "not four whole numbers"},
    {"step-000000/rank-00000.json", RANK "," A "[[3,4,0,1]]}}}",
     "run that lies outside"},
    {"step-000000/rank-00000.json",
     RANK "," A "[[0,1,9223372036854775807,4]]}}}", "run that lies outside"},
    {"step-000000/rank-00000.json", RANK "," A "[[0,2,1,2]]}}}",
     "run that lies outside"},
    {"step-000000/rank-00000.json", RANK "," A "[[0,3,0,1]]}}}",
     "another number of elements than its runs"},
    {"step-000000/rank-00000.json", RANK "," A "[[0,3,0,1],[3,3,0,1]]}}}",
     "another number of elements than its runs"},
    {"step-000000/rank-00000.json",
     RANK ",\"pieces\":{\"parameter/-/a\":{\"shape\":[3,2],\"runs\":"
          "[[0,4,0,1]]}}}",
     "has another shape on rank 1 than on rank 0"},
    {"step-000000/rank-00000.json", RANK "}", "another shape on rank 1"},
    {"step-000000/rank-00000.json", RANK ",\"order\":[\"parameter/-/c\"]}",
     "is in \"order\", but no tensor"},
    {"step-000000/rank-00000.json",
     RANK ",\"order\":[\"parameter/-/a\",\"parameter/-/a\"]}",
     "is in \"order\" twice"},
    {"step-000000/rank-00000.json", RANK ",\"ledger\":[{\"bytes\":-1}]}",
     "numbers that are no whole ones"},
    {"step-000000/rank-00000.json", RANK ",\"ledger\":[{\"kind\":1}]}",
     "words that are no strings"},
    {"step-000000/rank-00000.safetensors", "1234", "only 4 bytes"},
    {"step-000000/rank-00000.safetensors", "\377\377\377\377\377\377\377\177{}",
     "claims a header of"},
    {"step-000000/rank-0.safetensors", "", "five digits"},
    {"step-0/x", "", "six digits"},
    {"step-000002/rank-00000.json", "{}", "does not list"},
};

START_TEST(unsound_trace_is_refused)
{
    const unsound_t *u = &unsound[_i];
    if (u->text != NULL)
        hand_put(u->file, u->text);
    else
        hand_remove(u->file);
    fsdp_trace_t *trace;
    fsdp_status_t status = fsdp_trace_open(hand_folder, &trace);
    ck_assert_msg(status == FSDP_ERR_INPUT, "%s: %s was not refused", u->file,
                  u->text);
    ck_assert(trace == NULL);
    ck_assert_msg(strstr(fsdp_error_message(), u->message) != NULL,
                  "\"%s\" does not say \"%s\"", fsdp_error_message(),
                  u->message);
}
END_TEST

static const char *const bad_keys[] = {
    "parameter",  "parameter/a", "parameter/0/a",      "input/-/x",
    "input/01/x", "input/-1/x",  "input/9999999999/x", "gradient/-/a",
    "input/0/",   "../0/x"};

START_TEST(bad_key_is_refused)
{
    const hand_tensor_t t = {bad_keys[_i], "[1]", 1, {0}, NULL};
    hand_put_tensors("step-000001/rank-00000.safetensors", &t, 1);
    fsdp_trace_t *trace;
    ck_assert(fsdp_trace_open(hand_folder, &trace) == FSDP_ERR_INPUT);
    ck_assert_msg(strstr(fsdp_error_message(), "is no key of a trace") != NULL,
                  "%s", fsdp_error_message());
}
END_TEST

START_TEST(integer_gradient_is_refused)
{
    const hand_tensor_t t = {"grad/-/a", "[1]", 1, {0}, "I32"};
    hand_put_tensors("step-000001/rank-00000.safetensors", &t, 1);
    hand_remove("step-000001/rank-00000.json");
    fsdp_trace_t *trace;
    ck_assert(fsdp_trace_open(hand_folder, &trace) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "only inputs") != NULL);
}
END_TEST

/* A few bytes cannot ask for a terabyte. */
START_TEST(huge_claim_is_refused)
{
    hand_put("trace.json", HEAD "}");
    for (int r = 0; r < 2; r++) {
        char name[64], text[300];
        snprintf(name, sizeof name, "step-000000/rank-%05d.json", r);
        snprintf(text, sizeof text,
                 "{\"rank\":%d,\"step\":0,\"pieces\":{\"parameter/-/a\":{"
                 "\"shape\":[2,3],\"runs\":[[%d,%d,3,2]]},\"parameter/-/b\":{"
                 "\"shape\":[100000000000],\"runs\":[[%d,%d,0,1]]}}}",
                 r, r ? 2 : 0, r ? 1 : 2, r, 2 - r);
        hand_put(name, text);
    }
    fsdp_trace_t *trace;
    ck_assert(fsdp_trace_open(hand_folder, &trace) == FSDP_ERR_INPUT);
    ck_assert_msg(strstr(fsdp_error_message(), "record more ranks") != NULL,
                  "%s", fsdp_error_message());
}
END_TEST

/* The element is in two runs of one rank: found when values are read. */
START_TEST(element_twice_is_refused)
{
    hand_put("step-000000/rank-00000.json",
             RANK ",\"pieces\":{\"parameter/-/a\":{\"shape\":[2,3],\"runs\":"
                  "[[0,2,3,2]]},\"parameter/-/b\":{\"shape\":[3],\"runs\":"
                  "[[1,1,0,1],[1,1,0,1]]}}}");
    fsdp_trace_t *trace = open_sound();
    const fsdp_trace_record_t *b =
        fsdp_trace_find(trace, 0, FSDP_TRACE_PARAMETER, -1, "b");
    double values[3];
    ck_assert(fsdp_trace_read(trace, b, values, NULL, NULL) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "b twice") != NULL);
    fsdp_trace_close(&trace);
}
END_TEST

/* What an optimizer of another kind keeps is passed over. */
START_TEST(unknown_state_is_passed_over)
{
    const hand_tensor_t t[] = {
        {"state.max_exp_avg_sq/-/a", "[1]", 1, {0}, NULL},
        {"norm/-/norm", "[1]", 1, {7}, "F64"}};
    hand_put_tensors("step-000001/rank-00000.safetensors", t, 2);
    hand_put(
        "step-000001/rank-00000.json",
        "{\"rank\":0,\"step\":1,\"order\":[\"state.max_exp_avg_sq/-/a\"]}");
    fsdp_trace_t *trace = open_sound();
    const fsdp_trace_record_t *norm =
        fsdp_trace_find(trace, 1, FSDP_TRACE_NORM, -1, "norm");
    double value;
    ck_assert(norm->num_pieces == 2);
    ck_assert(fsdp_trace_read(trace, norm, &value, NULL, NULL) == FSDP_OK);
    ck_assert(value == 7);
    fsdp_trace_close(&trace);
}
END_TEST

START_TEST(truncated_tensors_are_refused)
{
    char path[128];
    fsdp_trace_t *trace;
    snprintf(path, sizeof path, "%s/step-000001/rank-00000.safetensors",
             hand_folder);
    FILE *file = fopen(path, "rb");
    char bytes[4096];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t cut = 0; cut < size; cut++) {
        file = fopen(path, "wb");
        fwrite(bytes, 1, cut, file);
        fclose(file);
        ck_assert_msg(fsdp_trace_open(hand_folder, &trace) == FSDP_ERR_INPUT,
                      "cut to %zu bytes", cut);
    }
}
END_TEST

START_TEST(no_folder_is_refused)
{
    fsdp_trace_t *trace;
    ck_assert(fsdp_trace_open("/nowhere/trace", &trace) == FSDP_ERR_IO);
    ck_assert(fsdp_trace_open("/dev/null", &trace) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "is no folder") != NULL);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("trace_refused");
    TCase *tcase = tcase_create("reading");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, put_sound, hand_trace_end);
    tcase_add_loop_test(tcase, unsound_trace_is_refused, 0, COUNT(unsound));
    tcase_add_loop_test(tcase, bad_key_is_refused, 0, COUNT(bad_keys));
    tcase_add_test(tcase, integer_gradient_is_refused);
    tcase_add_test(tcase, huge_claim_is_refused);
    tcase_add_test(tcase, element_twice_is_refused);
    tcase_add_test(tcase, unknown_state_is_passed_over);
    tcase_add_test(tcase, truncated_tensors_are_refused);
    tcase_add_test(tcase, no_folder_is_refused);
    return mck_run(argc, argv, suite);
}
