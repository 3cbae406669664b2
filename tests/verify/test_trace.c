/* Reading a trace: what was written by hand is found, in the order in which it
 * happened, and everything that is wrong is refused with one message. */
/* Ranks: 1 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fsdp/memory.h"
#include "fsdp/trace.h"
#include "hand_trace.h"
#include "mck.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- a sound trace of two ranks ------------------------------------------- */

static const char about[] =
    "{\"format\":\"libfsdp-trace\",\"version\":1,\"producer\":\"by hand\","
    "\"api\":\"fsdp2\",\"world_size\":2,\"ranks\":[1,0],"
    "\"mesh\":{\"replicate\":1,\"shard\":2,\"tensor\":1},"
    "\"micro_batches\":1,\"gradient_sync\":\"each\","
    "\"steps\":[{\"step\":1,\"lr\":0.25}],"
    "\"model\":{\"type\":\"mlp\",\"config\":{\"widths\":[2,3]}},"
    "\"loss\":{\"kind\":\"mse\",\"average\":\"rank\",\"scale\":0.5},"
    "\"optimizer\":{\"name\":\"adamw\",\"betas\":[0.5,0.75],\"eps\":1e-6,"
    "\"weight_decay\":0.125},\"grad_clip\":null,\"norm_type\":\"inf\","
    "\"precision\":{\"dtype\":\"float32\",\"param_dtype\":\"bfloat16\","
    "\"reduce_dtype\":null,\"cast_forward_inputs\":false},"
    "\"averaging\":\"premultiply\",\"divide_factor\":4,"
    "\"reduce_order\":\"ring\",\"unknown member\":[{}],"
    "\"parameters\":[{\"name\":\"b\",\"shape\":[3],\"dtype\":\"float32\","
    "\"unit\":\"layers.1\"},{\"name\":\"a\",\"shape\":[2,3],\"unit\":"
    "\"layers.0\",\"weight_decay\":0,\"lr_factor\":2}],\"units\":[\"layers.1\","
    "\"layers.0\",\"(root)\"]}";

/* Parameter a [2,3] is cut along its columns: columns 0 and 1, column 2; b [3]
 * has two elements and one. */
static const char pieces[2][600] = {
    "{\"rank\":0,\"step\":0,\"pieces\":{\"parameter/-/a\":{\"shape\":[2,3],"
    "\"runs\":[[0,2,3,2]]},\"parameter/-/b\":{\"shape\":[3],\"runs\":"
    "[[0,2,0,1]]}}}",
    "{\"rank\":1,\"step\":0,\"data_parallel_rank\":1,\"pieces\":{\"parameter/-/"
    "a\":{\"shape\":[2,3],\"runs\":[[2,1,3,2]]},\"parameter/-/b\":{\"shape\":"
    "[3],\"runs\":[[2,1,0,1]]}},\"order\":[\"parameter/-/b\",\"parameter/-/"
    "a\"],\"ledger\":[{\"sequence\":1,\"kind\":\"all_gather\",\"unit\":"
    "\"layers.0\",\"dtype\":\"float32\",\"bytes\":4096,\"op\":null,\"group\":"
    "\"shard\"}]}"};

static void
put_initial(void)
{
    const hand_tensor_t first[] = {
        {"parameter/-/a", "[2,2]", 4, {0, 1, 3, 4}, NULL},
        {"parameter/-/b", "[2]", 2, {10, 11}, NULL}};
    const hand_tensor_t second[] = {{"parameter/-/a", "[2]", 2, {2, 5}, NULL},
                                    {"parameter/-/b", "[1]", 1, {12}, NULL}};
    hand_put_tensors("step-000000/rank-00000.safetensors", first, 2);
    hand_put_tensors("step-000000/rank-00001.safetensors", second, 2);
    hand_put("step-000000/rank-00000.json", pieces[0]);
    hand_put("step-000000/rank-00001.json", pieces[1]);
}

/* Step 1 has no order of its own. */
static void
put_step(void)
{
    for (int r = 0; r < 2; r++) {
        char key[10][64], name[64], shard[512];
        const char *const list[] = {"input/%d/x",
                                    "gathered_parameter/%d/b",
                                    "unit_input/%d/(root)",
                                    "unit_output/%d/layers.0",
                                    "unit_output/%d/layers.1",
                                    "unit_output/%d/(root)",
                                    "loss/%d/loss",
                                    "output_grad/%d/(root)",
                                    "unreduced_grad/%d/b",
                                    "input_grad/%d/layers.0"};
        hand_tensor_t t[12];
        for (int i = 0; i < 10; i++) {
            snprintf(key[i], sizeof key[i], list[i], r);
            t[i] =
                (hand_tensor_t){key[i], "[1]", 1, {(float)(100 * r + i)}, NULL};
        }
        t[0].dtype = "I64";
        t[1].shape = t[8].shape = "[3]";
        t[1].numel = t[8].numel = 3;
        t[10] = (hand_tensor_t){"norm/-/norm", "[1]", 1, {7}, "F64"};
        t[11] = (hand_tensor_t){
            "reduced_grad/1/b", r ? "[1]" : "[2]", r ? 1 : 2, {5, 6}, NULL};
        snprintf(name, sizeof name, "step-000001/rank-%05d.safetensors", r);
        hand_put_tensors(name, t, 12);
        snprintf(name, sizeof name, "step-000001/rank-%05d.json", r);
        snprintf(shard, sizeof shard,
                 "{\"rank\":%d,\"step\":1,\"pieces\":{\"reduced_grad/1/b\":{"
                 "\"shape\":[3],\"runs\":[[%d,%d,0,1]]}}}",
                 r, r ? 2 : 0, r ? 1 : 2);
        hand_put(name, shard);
    }
}

static void
put_sound(void)
{
    hand_trace_begin();
    put_initial();
    put_step();
    hand_put("trace.json", about);
}

static fsdp_trace_t *
open_sound(void)
{
    fsdp_trace_t *trace;
    fsdp_status_t status = fsdp_trace_open(hand_folder, &trace);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
    return trace;
}

START_TEST(about_says_what_was_written)
{
    fsdp_trace_t *trace = open_sound();
    const fsdp_trace_about_t *a = fsdp_trace_about(trace);
    ck_assert_str_eq(a->producer, "by hand");
    ck_assert_int_eq(a->world_size, 2);
    ck_assert_int_eq(a->num_ranks, 2);
    ck_assert(a->rank[0] == 0 && a->rank[1] == 1);
    ck_assert(a->replicas == 1 && a->shards == 2 && a->tensor == 1);
    ck_assert_int_eq(a->gradient_sync, FSDP_SYNC_EACH);
    ck_assert(a->num_steps == 1 && a->step[0].lr == 0.25);
    ck_assert_str_eq(a->model_type, "mlp");
    ck_assert(a->loss_scale == 0.5 && a->ignore_index == -100);
    ck_assert_int_eq(a->optimizer, FSDP_TRACE_ADAMW);
    ck_assert(a->adamw.beta1 == 0.5 && a->adamw.beta2 == 0.75);
    ck_assert(a->adamw.eps == 1e-6 && a->adamw.weight_decay == 0.125);
    ck_assert(a->grad_clip == 0 && isinf(a->norm_type));
    ck_assert_int_eq(a->dtype, FSDP_FP32);
    ck_assert_int_eq(a->precision.param_dtype, FSDP_BF16);
    ck_assert_int_eq(a->precision.reduce_dtype, FSDP_DTYPE_NONE);
    ck_assert(!a->precision.cast_forward_inputs);
    ck_assert_int_eq(a->averaging, FSDP_PREMULTIPLY);
    ck_assert(a->divide_factor == 4);
    ck_assert_int_eq(a->reduce_order, FSDP_ORDER_RING);
    ck_assert(isnan(a->dropout));
    ck_assert(a->num_parameters == 2 && a->parameter[1].numel == 6);
    ck_assert_int_eq(a->parameter[1].dtype, FSDP_DTYPE_NONE);
    ck_assert(a->parameter[1].weight_decay == 0 &&
              a->parameter[1].lr_factor == 2);
    ck_assert(isnan(a->parameter[0].weight_decay) &&
              isnan(a->parameter[0].lr_factor));
    fsdp_trace_close(&trace);
}
END_TEST

START_TEST(pieces_make_the_whole)
{
    fsdp_trace_t *trace = open_sound();
    const fsdp_trace_record_t *a =
        fsdp_trace_find(trace, 0, FSDP_TRACE_PARAMETER, -1, "a");
    const int owners[6] = {0, 0, 1, 0, 0, 1};
    const uint64_t places[2] = {2, 5};
    double values[6];
    int owner[6];
    uint64_t element[2];
    size_t count;
    fsdp_trace_conflict_t conflict;
    ck_assert(a != NULL && a->numel == 6 && a->ndim == 2 && a->num_pieces == 2);
    ck_assert(fsdp_trace_read(trace, a, values, owner, &conflict) == FSDP_OK);
    for (int i = 0; i < 6; i++)
        ck_assert_msg(values[i] == i && owner[i] == owners[i], "element %d", i);
    ck_assert(!conflict.found);
    ck_assert(fsdp_trace_read_rank(trace, a, 1, values, element, &count) ==
              FSDP_OK);
    ck_assert(count == 2 && values[0] == 2 && values[1] == 5);
    ck_assert(memcmp(element, places, sizeof places) == 0);
    fsdp_trace_close(&trace);
}
END_TEST

START_TEST(ledger_and_ranks_are_there)
{
    fsdp_trace_t *trace = open_sound();
    size_t count;
    const fsdp_trace_collective_t *c = fsdp_trace_ledger(trace, 0, 1, &count);
    ck_assert(count == 1 && c->bytes == 4096 && c->sequence == 1);
    ck_assert_str_eq(c->unit, "layers.0");
    ck_assert(c->op == NULL);
    ck_assert(fsdp_trace_ledger(trace, 0, 0, &count) == NULL && count == 0);
    ck_assert_int_eq(fsdp_trace_data_parallel_rank(trace, 0, 1), 1);
    ck_assert_int_eq(fsdp_trace_data_parallel_rank(trace, 1, 1), -1);
    fsdp_trace_close(&trace);
}
END_TEST

/* As the page on the format says; rank 1 begins its micro-batch after rank 0 has
 * come to what both share.  Layers run 1, 0. */
START_TEST(order_is_that_of_events)
{
    static const char *const expected[] = {"parameter - b",
                                           "parameter - a",
                                           "input 0 x",
                                           "unit_input 0 (root)",
                                           "gathered_parameter 0 b",
                                           "unit_output 0 layers.1",
                                           "unit_output 0 layers.0",
                                           "unit_output 0 (root)",
                                           "loss 0 loss",
                                           "output_grad 0 (root)",
                                           "input_grad 0 layers.0",
                                           "unreduced_grad 0 b",
                                           "input 1 x",
                                           "unit_input 1 (root)",
                                           "gathered_parameter 1 b",
                                           "unit_output 1 layers.1",
                                           "unit_output 1 layers.0",
                                           "unit_output 1 (root)",
                                           "loss 1 loss",
                                           "output_grad 1 (root)",
                                           "input_grad 1 layers.0",
                                           "unreduced_grad 1 b",
                                           "reduced_grad 1 b",
                                           "norm - norm"};
    fsdp_trace_t *trace = open_sound();
    ck_assert_uint_eq(fsdp_trace_count(trace), COUNT(expected));
    for (size_t i = 0; i < COUNT(expected); i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(trace, i);
        char micro[16] = "-", text[64];
        if (r->micro >= 0)
            snprintf(micro, sizeof micro, "%d", r->micro);
        snprintf(text, sizeof text, "%s %s %s", fsdp_trace_phase_name(r->phase),
                 micro, r->name);
        ck_assert_str_eq(text, expected[i]);
        ck_assert_uint_eq(fsdp_trace_index(trace, r), i);
        ck_assert(
            fsdp_trace_find(trace, r->step, r->phase, r->micro, r->name) == r);
    }
    fsdp_trace_close(&trace);
}
END_TEST

/* Ranks that contradict each other: all records are there, each once. */
START_TEST(contradicting_orders_end)
{
    hand_put("step-000000/rank-00000.json",
             "{\"rank\":0,\"step\":0,\"order\":[\"parameter/-/b\","
             "\"parameter/-/a\"]}");
    hand_put("step-000000/rank-00001.json",
             "{\"rank\":1,\"step\":0,\"order\":[\"parameter/-/a\"]}");
    const hand_tensor_t both[] = {{"parameter/-/a", "[2,3]", 6, {0}, NULL},
                                  {"parameter/-/b", "[3]", 3, {0}, NULL}};
    hand_put_tensors("step-000000/rank-00000.safetensors", both, 2);
    hand_put_tensors("step-000000/rank-00001.safetensors", both, 2);
    fsdp_trace_t *trace = open_sound();
    ck_assert_str_eq(fsdp_trace_record(trace, 0)->name, "b");
    ck_assert_str_eq(fsdp_trace_record(trace, 1)->name, "a");
    ck_assert_uint_eq(fsdp_trace_count(trace), 24);
    fsdp_trace_close(&trace);
}
END_TEST

START_TEST(copies_that_differ_are_told)
{
    const hand_tensor_t other[] = {{"norm/-/norm", "[1]", 1, {8}, "F64"},
                                   {"input/1/x", "[3]", 3, {1, 2, NAN}, "F64"}};
    const hand_tensor_t one = {"input/1/x", "[3]", 3, {1, 2, NAN}, NULL};
    hand_put_tensors("step-000001/rank-00001.safetensors", other, 2);
    hand_put_tensors("step-000001/rank-00000.safetensors", &one, 1);
    hand_remove("step-000001/rank-00000.json");
    hand_remove("step-000001/rank-00001.json");
    const hand_tensor_t norm[] = {{"norm/-/norm", "[1]", 1, {7}, NULL}, one};
    hand_put_tensors("step-000001/rank-00000.safetensors", norm, 2);
    fsdp_trace_t *trace = open_sound();
    const fsdp_trace_record_t *r =
        fsdp_trace_find(trace, 1, FSDP_TRACE_NORM, -1, "norm");
    double values[3];
    fsdp_trace_conflict_t c;
    ck_assert(r != NULL && r->dtypes_differ);
    ck_assert(fsdp_trace_read(trace, r, values, NULL, &c) == FSDP_OK);
    ck_assert(c.found && c.element == 0 && c.rank[0] == 0 && c.rank[1] == 1);
    ck_assert(c.value[0] == 7 && c.value[1] == 8);
    r = fsdp_trace_find(trace, 1, FSDP_TRACE_INPUT, 1, "x");
    ck_assert(fsdp_trace_read(trace, r, values, NULL, &c) == FSDP_OK);
    ck_assert_msg(!c.found, "two NaNs are alike");
    fsdp_trace_close(&trace);
}
END_TEST

/* Elements 2 and 0 are not the same, in this order of rank 1's file. */
START_TEST(first_conflict_is_told)
{
    const hand_tensor_t first = {"parameter/-/b", "[3]", 3, {10, 11, 12}, NULL};
    const hand_tensor_t second = {
        "parameter/-/b", "[3]", 3, {13, 11, 14}, NULL};
    hand_put_tensors("step-000000/rank-00000.safetensors", &first, 1);
    hand_put_tensors("step-000000/rank-00001.safetensors", &second, 1);
    hand_remove("step-000000/rank-00000.json");
    hand_put("step-000000/rank-00001.json",
             "{\"rank\":1,\"step\":0,\"pieces\":{\"parameter/-/b\":{"
             "\"shape\":[3],\"runs\":[[2,1,0,1],[0,2,0,1]]}}}");
    fsdp_trace_t *trace = open_sound();
    double values[3];
    fsdp_trace_conflict_t c;
    ck_assert(fsdp_trace_read(
                  trace,
                  fsdp_trace_find(trace, 0, FSDP_TRACE_PARAMETER, -1, "b"),
                  values, NULL, &c) == FSDP_OK);
    ck_assert(c.found && c.element == 0 && c.value[0] == 10 &&
              c.value[1] == 11);
    fsdp_trace_close(&trace);
}
END_TEST

/* Only rank 0 recorded: what rank 1 has is nobody's. */
START_TEST(missing_ranks_leave_holes)
{
    hand_remove("step-000000/rank-00001.safetensors");
    hand_remove("step-000000/rank-00001.json");
    hand_remove("step-000001/rank-00001.safetensors");
    hand_remove("step-000001/rank-00001.json");
    hand_put("trace.json", "{\"format\":\"libfsdp-trace\",\"version\":1,"
                           "\"world_size\":2,\"ranks\":[0]}");
    fsdp_trace_t *trace = open_sound();
    double values[3];
    int owner[3];
    const fsdp_trace_record_t *b =
        fsdp_trace_find(trace, 0, FSDP_TRACE_PARAMETER, -1, "b");
    ck_assert(fsdp_trace_read(trace, b, values, owner, NULL) == FSDP_OK);
    ck_assert(values[0] == 10 && values[1] == 11 && isnan(values[2]));
    ck_assert(owner[1] == 0 && owner[2] == -1);
    const fsdp_trace_about_t *a = fsdp_trace_about(trace);
    ck_assert(isnan(a->grad_clip) && isnan(a->loss_scale));
    ck_assert(a->micro_batches == 0 && a->replicas == 0 && a->producer == NULL);
    ck_assert(a->gradient_sync == -1 && a->averaging == -1);
    fsdp_trace_close(&trace);
}
END_TEST

/* ---- what is refused ------------------------------------------------------- */

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
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("reading");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, put_sound, hand_trace_end);
    tcase_add_test(tcase, about_says_what_was_written);
    tcase_add_test(tcase, pieces_make_the_whole);
    tcase_add_test(tcase, ledger_and_ranks_are_there);
    tcase_add_test(tcase, order_is_that_of_events);
    tcase_add_test(tcase, contradicting_orders_end);
    tcase_add_test(tcase, copies_that_differ_are_told);
    tcase_add_test(tcase, first_conflict_is_told);
    tcase_add_test(tcase, missing_ranks_leave_holes);
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
