/* Reading a trace: what was written by hand is found, in the order in which it
 * happened. */
/* Ranks: 1 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fsdp/memory.h"
#include "fsdp/trace.h"
#include "hand_trace.h"
#include "mck.h"
#include "sound_trace.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

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
    return mck_run(argc, argv, suite);
}
