/* A step run again: what a verdict makes of forward and backward of another
 * system, without anything else to go by.  A trace is made by a replay, element
 * by element, and one element is moved: by a rounding or two nothing happens,
 * by more than rounding can do it is wrong, in its place. */
/* Ranks: 1 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/verdict.h"
#include "hand_trace.h"
#include "mck.h"
#include "verify/trace/replay.h"

/* A trained layer of 2, 3 and 2, two rows a step, two steps. */
static const char about[] =
    "{\"format\":\"libfsdp-trace\",\"version\":1,\"producer\":\"by hand\","
    "\"api\":\"none\",\"world_size\":1,\"ranks\":[0],\"micro_batches\":1,"
    "\"gradient_sync\":\"each\",\"steps\":[{\"step\":1,\"lr\":0.25},"
    "{\"step\":2,\"lr\":0.25}],%s\"loss\":{\"kind\":\"cross_entropy\","
    "\"average\":\"rank\",\"scale\":1},\"optimizer\":{\"name\":\"adamw\","
    "\"betas\":[0.9,0.999],\"eps\":1e-8,\"weight_decay\":0.01},"
    "\"precision\":{\"dtype\":\"float32\"},\"parameters\":["
    "{\"name\":\"layers.0.weight\",\"shape\":[3,2],\"unit\":\"layers.0\"},"
    "{\"name\":\"layers.0.bias\",\"shape\":[3],\"unit\":\"layers.0\"},"
    "{\"name\":\"layers.1.weight\",\"shape\":[2,3],\"unit\":\"layers.1\"},"
    "{\"name\":\"layers.1.bias\",\"shape\":[2],\"unit\":\"layers.1\"}],"
    "\"units\":[\"layers.0\",\"layers.1\",\"(root)\"]}";
static const char model[] = "\"model\":{\"type\":\"mlp\",\"config\":{"
                            "\"widths\":[2,3,2],\"activation\":\"gelu\"}},";

enum { MAX_TENSORS = 120 };

/** All that the replay showed. */
typedef struct shown {
    hand_tensor_t tensor[MAX_TENSORS];
    char key[MAX_TENSORS][64], shape[MAX_TENSORS][16];
    long step[MAX_TENSORS];
    fsdp_trace_phase_t phase[MAX_TENSORS];
    int count;
    long from; /**< steps before are not listed */
} shown_t;

static void
show(void *context, const fsdp_replay_value_t *value)
{
    shown_t *s = context;
    if (value->step < s->from)
        return;
    int k = s->count++, n = 0;
    char micro[16] = "-";
    ck_assert_int_lt(k, MAX_TENSORS);
    if (value->micro >= 0)
        snprintf(micro, sizeof micro, "%d", value->micro);
    snprintf(s->key[k], sizeof s->key[k], "%s/%s/%s",
             fsdp_trace_phase_name(value->phase), micro, value->name);
    for (int d = 0; d < value->ndim; d++)
        n += snprintf(s->shape[k] + n, sizeof s->shape[k] - (size_t)n, "%s%d",
                      d > 0 ? "," : "[", (int)value->shape[d]);
    snprintf(s->shape[k] + n, sizeof s->shape[k] - (size_t)n, "]");
    s->tensor[k] =
        (hand_tensor_t){s->key[k], s->shape[k], value->numel, {0}, NULL};
    ck_assert_uint_le(value->numel, 8);
    for (size_t i = 0; i < value->numel; i++)
        s->tensor[k].values[i] = value->dtype == FSDP_INT64
                                     ? (float)((const int64_t *)value->data)[i]
                                 : value->dtype == FSDP_INT32
                                     ? (float)((const int32_t *)value->data)[i]
                                 : value->dtype == FSDP_FP64
                                     ? (float)((const double *)value->data)[i]
                                     : ((const float *)value->data)[i];
    if (!fsdp_dtype_is_floating(value->dtype))
        s->tensor[k].dtype = "I64";
    s->step[k] = value->step;
    s->phase[k] = value->phase;
}

static void
put_about(const char *folder, bool with_model)
{
    char text[2000], path[64];
    snprintf(text, sizeof text, about, with_model ? model : "");
    snprintf(path, sizeof path, "%s/trace.json", folder);
    hand_put(path, text);
}

/* Only what a replay needs. */
static void
put_seed(void)
{
    const hand_tensor_t initial[] = {
        {"parameter/-/layers.0.weight",
         "[3,2]",
         6,
         {0.5f, -0.3f, 0.7f, 0.2f, -0.9f, 0.4f},
         NULL},
        {"parameter/-/layers.0.bias", "[3]", 3, {0.1f, -0.2f, 0.3f}, NULL},
        {"parameter/-/layers.1.weight",
         "[2,3]",
         6,
         {0.6f, -0.8f, 0.35f, -0.45f, 0.15f, 0.95f},
         NULL},
        {"parameter/-/layers.1.bias", "[2]", 2, {0.05f, -0.15f}, NULL}};
    const hand_tensor_t inputs[] = {
        {"input/0/x", "[2,2]", 4, {0.3f, -1.1f, 0.8f, 0.6f}, NULL},
        {"input/0/targets", "[2]", 2, {1, 0}, "I64"}};
    hand_put_tensors("seed/step-000000/rank-00000.safetensors", initial, 4);
    hand_put_tensors("seed/step-000001/rank-00000.safetensors", inputs, 2);
    hand_put_tensors("seed/step-000002/rank-00000.safetensors", inputs, 2);
    put_about("seed", true);
}

/* Adds what a folder's steps from `first` show. */
static void
run(const char *folder, long first, shown_t *s)
{
    char path[100];
    fsdp_trace_t *trace;
    fsdp_replay_options_t options = {
        .first_step = first, .context = s, .show = show};
    snprintf(path, sizeof path, "%s/%s", hand_folder, folder);
    ck_assert_msg(fsdp_trace_open(path, &trace) == FSDP_OK, "%s",
                  fsdp_error_message());
    ck_assert_msg(fsdp_trace_replay(trace, &options) == FSDP_OK, "%s",
                  fsdp_error_message());
    fsdp_trace_close(&trace);
}

static void
run_seed(shown_t *s)
{
    put_seed();
    s->count = 0;
    s->from = 0;
    run("seed", 1, s);
}

static void
put_shown(const char *folder, const shown_t *s, bool with_model)
{
    hand_tensor_t list[MAX_TENSORS];
    char path[100];
    for (long step = 0; step <= 2; step++) {
        size_t n = 0;
        for (int k = 0; k < s->count; k++)
            if (s->step[k] == step) {
                list[n] = s->tensor[k];
                list[n].key = s->key[k];
                list[n++].shape = s->shape[k];
            }
        snprintf(path, sizeof path, "%s/step-%06ld/rank-00000.safetensors",
                 folder, step);
        hand_put_tensors(path, list, n);
    }
    put_about(folder, with_model);
}

static fsdp_verdict_t *
judge(void)
{
    char ours[100], theirs[100];
    fsdp_verdict_t *v;
    snprintf(ours, sizeof ours, "%s/ours", hand_folder);
    snprintf(theirs, sizeof theirs, "%s/theirs", hand_folder);
    ck_assert_msg(fsdp_verdict_make(ours, theirs, NULL, &v) == FSDP_OK, "%s",
                  fsdp_error_message());
    return v;
}

static bool
is_run_again(fsdp_trace_phase_t phase)
{
    return phase >= FSDP_TRACE_UNIT_INPUT && phase <= FSDP_TRACE_UNREDUCED_GRAD;
}

/* The tensor that was moved. */
static const fsdp_verdict_tensor_t *
moved_tensor(const fsdp_verdict_t *v, const shown_t *s, int k)
{
    char key[100];
    for (size_t i = 0; i < v->num_tensors; i++) {
        const fsdp_trace_record_t *r = v->tensor[i].theirs;
        snprintf(key, sizeof key, "%s/%d/%s", fsdp_trace_phase_name(r->phase),
                 r->micro, r->name);
        if (r->step == s->step[k] && strcmp(key, s->key[k]) == 0)
            return &v->tensor[i];
    }
    return NULL;
}

/* Moves the largest element by `ulps`; its own place, or what is held to it, is
 * judged. */
static void
move(const shown_t *clean, int k, int ulps, shown_t *s)
{
    float *x = s->tensor[k].values;
    size_t at = 0;
    *s = *clean;
    for (size_t i = 1; i < s->tensor[k].numel; i++)
        if (fabsf(x[i]) > fabsf(x[at]))
            at = i;
    int exponent;
    frexpf(x[at], &exponent);
    x[at] += ldexpf((float)ulps, exponent - 24);
}

/* Of the largest element of each tensor of both steps the bound is between 2 and
 * 2,000 ulps: p is sqrt(16 + 6) < 5, t is below 30 for 16 degrees of freedom and
 * 6 elements, and no product here has more than 4 terms or cancels to a tenth. */
START_TEST(bounds_are_of_the_size_of_rounding)
{
    static shown_t clean, moved;
    hand_trace_begin();
    run_seed(&clean);
    put_shown("ours", &clean, true);
    int tried = 0;
    for (int k = 0; k < clean.count; k++) {
        if (!is_run_again(clean.phase[k]))
            continue;
        for (int far = 0; far < 2; far++) {
            move(&clean, k, far ? 2000 : 1, &moved);
            put_shown("theirs", &moved, true);
            fsdp_verdict_t *v = judge();
            const fsdp_verdict_tensor_t *t = moved_tensor(v, &clean, k);
            ck_assert_ptr_nonnull(t);
            ck_assert_msg(t->kind == (far ? FSDP_VERDICT_WRONG
                                          : FSDP_VERDICT_WITHIN_ROUNDING),
                          "step %ld, %s, %s: %s, ratio %g", clean.step[k],
                          clean.key[k], far ? "far" : "near",
                          fsdp_verdict_kind_name(t->kind), t->ratio);
            ck_assert(!t->weak);
            if (far)
                ck_assert_ptr_eq(v->first_wrong, t);
            fsdp_verdict_destroy(&v);
        }
        tried++;
    }
    ck_assert_int_ge(tried, 2 * 12);
    hand_trace_end();
    mck_assert(fsdp_memory_live_blocks() == 0);
}
END_TEST

static int
find_key(const shown_t *s, long step, const char *key)
{
    int k = 0;
    while (k < s->count && (s->step[k] != step || strcmp(s->key[k], key) != 0))
        k++;
    ck_assert_int_lt(k, s->count);
    return k;
}

/* An update of step 1 is wrong, by far, and step 2 goes on from there as it should:
 * only that update is told. */
START_TEST(a_step_does_not_answer_for_the_one_before)
{
    static shown_t clean, first, all;
    hand_trace_begin();
    run_seed(&clean);
    put_shown("ours", &clean, true);
    first = clean;
    int k = find_key(&first, 1, "parameter/-/layers.0.weight");
    first.tensor[k].values[0] += 0.125f;
    put_shown("first", &first, true);
    all = first;
    all.count = 0;
    while (all.step[all.count] < 2)
        all.count++;
    all.from = 2;
    run("first", 2, &all);
    put_shown("theirs", &all, true);
    fsdp_verdict_t *v = judge();
    size_t wrong = 0, not_equal = 0;
    for (size_t i = 0; i < v->num_tensors; i++) {
        wrong += v->tensor[i].kind == FSDP_VERDICT_WRONG;
        not_equal += v->tensor[i].theirs->step == 2 &&
                     v->tensor[i].kind == FSDP_VERDICT_WITHIN_ROUNDING;
    }
    ck_assert_uint_eq(wrong, 1);
    ck_assert(v->first_wrong->theirs->phase == FSDP_TRACE_PARAMETER);
    ck_assert_int_eq((int)v->first_wrong->theirs->step, 1);
    ck_assert_uint_ge(not_equal, 20);
    fsdp_verdict_destroy(&v);
    hand_trace_end();
    mck_assert(fsdp_memory_live_blocks() == 0);
}
END_TEST

/* Without a model in theirs, that of ours is run; without parameters there, our
 * own run; without a model in ours too, the bound is weak, and said to be. */
START_TEST(what_cannot_be_run_again)
{
    static const struct {
        bool model, parameters;
        const char *rule;
    } cases[] = {{true, true, "the step in float64"},
                 {true, false, "our whole run"},
                 {false, true, "ours, by a bound"}};
    static shown_t clean, moved;
    hand_trace_begin();
    run_seed(&clean);
    int k = find_key(&clean, 2, "unit_output/0/layers.0");
    for (size_t c = 0; c < 3; c++)
        for (int far = 0; far < 2; far++) {
            put_shown("ours", &clean, cases[c].model);
            move(&clean, k, far ? 20000 : 2, &moved);
            for (int i = 0; i < moved.count && !cases[c].parameters; i++)
                if (moved.phase[i] == FSDP_TRACE_PARAMETER)
                    moved.step[i] = -1;
            put_shown("theirs", &moved, false);
            fsdp_verdict_t *v = judge();
            const fsdp_verdict_tensor_t *t = moved_tensor(v, &clean, k);
            ck_assert(t->kind == (far ? FSDP_VERDICT_WRONG
                                      : FSDP_VERDICT_WITHIN_ROUNDING));
            ck_assert_msg(
                strncmp(t->rule, cases[c].rule, strlen(cases[c].rule)) == 0,
                "%s", t->rule);
            ck_assert(t->weak == (c == 2));
            ck_assert_int_ge(v->num_notes, (int)c);
            fsdp_verdict_destroy(&v);
        }
    hand_trace_end();
    mck_assert(fsdp_memory_live_blocks() == 0);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("rerun");
    TCase *tests = tcase_create("rerun");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, bounds_are_of_the_size_of_rounding);
    tcase_add_test(tests, a_step_does_not_answer_for_the_one_before);
    tcase_add_test(tests, what_cannot_be_run_again);
    return mck_run(argc, argv, suite);
}
