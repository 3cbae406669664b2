/* What a recording writes is what happened: values of one step, read back, are
 * tied to each other by formulas that none of the library's code computes. */
#include <float.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "hand_trace.h"
#include "mck.h"
#include "recorded_run.h"

/* |a - b| <= gamma_k times the magnitude; false for NaN. */
static bool
near(double a, double b, int k, double eps, double magnitude)
{
    return fabs(a - b) <= k * eps / (1 - k * eps) * magnitude;
}

static const struct {
    const char *name, *unit;
    int numel;
} params[] = {{"layers.0.weight", "layers.0", IN *HIDDEN},
              {"layers.0.bias", "layers.0", HIDDEN},
              {"layers.1.weight", "layers.1", HIDDEN *OUT},
              {"layers.1.bias", "layers.1", OUT}};

/* Every element of everything is there, and no two ranks have it otherwise. */
static bool
is_complete(void)
{
    bool good = true;
    for (size_t i = 0; i < fsdp_trace_count(trace); i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(trace, i);
        double values[MOST];
        fsdp_trace_conflict_t conflict;
        ck_assert(fsdp_trace_read(trace, r, values, NULL, &conflict) ==
                  FSDP_OK);
        good &= !conflict.found && !r->dtypes_differ;
        for (uint64_t e = 0; e < r->numel; e++)
            good &= !isnan(values[e]);
    }
    return good;
}

/* What is gathered is what the step before has left, rounded to the type that is
 * computed in. */
static bool
gathered_is_parameter(const run_t *run, long step, int micro)
{
    bool good = true;
    for (int p = 0; p < 4; p++) {
        double before[MOST], gathered[MOST];
        values_of(step - 1, FSDP_TRACE_PARAMETER, -1, params[p].name, before);
        values_of(step, FSDP_TRACE_GATHERED_PARAMETER, micro, params[p].name,
                  gathered);
        for (int i = 0; i < params[p].numel; i++)
            good &= run->variant->low == FSDP_BF16
                        ? near(gathered[i], before[i], 1, 1.0 / 256,
                               fabs(before[i]))
                        : gathered[i] == before[i];
    }
    return good;
}

/* The hidden layer gives on what is positive. */
static bool
inputs_are_outputs(int micro, long step)
{
    double x[MOST], root[MOST], out[MOST], in[MOST];
    bool good = true;
    values_of(step, FSDP_TRACE_UNIT_INPUT, micro, "layers.0", x);
    values_of(step, FSDP_TRACE_UNIT_INPUT, micro, "(root)", root);
    values_of(step, FSDP_TRACE_UNIT_OUTPUT, micro, "layers.0", out);
    values_of(step, FSDP_TRACE_UNIT_INPUT, micro, "layers.1", in);
    for (int i = 0; i < ROWS * IN; i++)
        good &= x[i] == root[i];
    for (int i = 0; i < ROWS * HIDDEN; i++)
        good &= in[i] == (out[i] > 0 ? out[i] : 0);
    return good;
}

/* The mean of -log softmax. */
static bool
loss_is_cross_entropy(int micro, long step)
{
    double x[MOST], y[MOST], loss[MOST], sum = 0;
    values_of(step, FSDP_TRACE_UNIT_OUTPUT, micro, "(root)", x);
    values_of(step, FSDP_TRACE_INPUT, micro, "targets", y);
    values_of(step, FSDP_TRACE_LOSS, micro, "loss", loss);
    for (int r = 0; r < ROWS; r++) {
        double all = 0;
        for (int c = 0; c < OUT; c++)
            all += exp(x[r * OUT + c]);
        sum += log(all) - x[r * OUT + (int)y[r]];
    }
    return near(loss[0], sum / ROWS, 64, FLT_EPSILON, 1 + fabs(sum));
}

/* A linear layer's gradient is that of its output times its input. */
static bool
gradient_is_product(const run_t *run, int micro, long step)
{
    double g[MOST], x[MOST], w[MOST], in[MOST], weight[MOST];
    double eps = run->variant->low == FSDP_BF16 ? 1.0 / 128 : FLT_EPSILON;
    bool good = true;
    values_of(step, FSDP_TRACE_OUTPUT_GRAD, micro, "layers.1", g);
    values_of(step, FSDP_TRACE_UNIT_INPUT, micro, "layers.1", x);
    values_of(step, FSDP_TRACE_INPUT_GRAD, micro, "layers.1", in);
    values_of(step, FSDP_TRACE_UNREDUCED_GRAD, micro, "layers.1.weight", w);
    values_of(step, FSDP_TRACE_GATHERED_PARAMETER, micro, "layers.1.weight",
              weight);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < HIDDEN; i++) {
            double sum = 0, magnitude = 0;
            for (int r = 0; r < ROWS; r++) {
                double term = g[r * OUT + o] * x[r * HIDDEN + i];
                sum += term;
                magnitude += fabs(term);
            }
            good &= near(w[o * HIDDEN + i], sum, ROWS + 1, eps, magnitude);
        }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < HIDDEN; i++) {
            double sum = 0, magnitude = 0;
            for (int o = 0; o < OUT; o++) {
                double term = g[r * OUT + o] * weight[o * HIDDEN + i];
                sum += term;
                magnitude += fabs(term);
            }
            good &= near(in[r * HIDDEN + i], sum, OUT + 1, eps, magnitude);
        }
    return good;
}

/* The sum over all micro-batches of ours, divided by the ranks; and the sum of
 * what was reduced. */
static bool
gradients_add_up(const run_t *run, long step)
{
    bool good = true;
    bool each = run->variant->sync == FSDP_SYNC_EACH;
    int all = run->size * MICROS;
    for (int p = 0; p < 4; p++) {
        double grad[MOST], sum[MOST] = {0}, magnitude[MOST] = {0};
        double reduced[MOST] = {0}, part[MOST];
        values_of(step, FSDP_TRACE_GRAD, -1, params[p].name, grad);
        for (int g = 0; g < all; g++) {
            values_of(step, FSDP_TRACE_UNREDUCED_GRAD, g, params[p].name, part);
            for (int i = 0; i < params[p].numel; i++) {
                sum[i] += part[i] / run->size;
                magnitude[i] += fabs(part[i] / run->size);
            }
        }
        for (int g = each ? run->size - 1 : all - 1; g < all; g += run->size) {
            values_of(step, FSDP_TRACE_REDUCED_GRAD, g, params[p].name, part);
            for (int i = 0; i < params[p].numel; i++)
                reduced[i] += part[i];
        }
        for (int i = 0; i < params[p].numel; i++)
            good &= near(grad[i], sum[i], all + 3, FLT_EPSILON, magnitude[i]) &&
                    near(grad[i], reduced[i], 2, FLT_EPSILON, magnitude[i]);
    }
    return good;
}

/* Clipped by the norm over everything, then SGD. */
static bool
update_is_sgd(long step)
{
    double norm[MOST], square = 0;
    bool good = true;
    values_of(step, FSDP_TRACE_NORM, -1, "norm", norm);
    double factor = clip / (norm[0] + 1e-6);
    if (factor > 1)
        factor = 1;
    for (int p = 0; p < 4; p++) {
        double grad[MOST], clipped[MOST], before[MOST], after[MOST];
        values_of(step, FSDP_TRACE_GRAD, -1, params[p].name, grad);
        values_of(step, FSDP_TRACE_CLIPPED_GRAD, -1, params[p].name, clipped);
        values_of(step - 1, FSDP_TRACE_PARAMETER, -1, params[p].name, before);
        values_of(step, FSDP_TRACE_PARAMETER, -1, params[p].name, after);
        for (int i = 0; i < params[p].numel; i++) {
            square += grad[i] * grad[i];
            good &= near(clipped[i], grad[i] * factor, 4, FLT_EPSILON,
                         fabs(grad[i]));
            good &= near(after[i], before[i] - lr * clipped[i], 2, FLT_EPSILON,
                         fabs(before[i]) + fabs(lr * clipped[i]));
        }
    }
    return good && factor < 1 &&
           near(norm[0], sqrt(square), 2, FLT_EPSILON, norm[0]);
}

START_TEST(records_what_happened)
{
    run_t run;
    run_record(&run, &variants[_i]);
    if (is_first()) {
        open_trace();
        bool good = is_complete() && fsdp_trace_about(trace)->num_steps == 2 &&
                    fsdp_trace_about(trace)->num_units == 3 &&
                    fsdp_trace_record(trace, 0)->step == 1;
        ck_assert(good);
        for (long step = 2; step <= STEPS; step++) {
            for (int g = 0; g < run.size * MICROS; g++) {
                ck_assert(gathered_is_parameter(&run, step, g));
                ck_assert(inputs_are_outputs(g, step));
                ck_assert(loss_is_cross_entropy(g, step));
                ck_assert(gradient_is_product(&run, g, step));
            }
            ck_assert(gradients_add_up(&run, step));
            ck_assert(update_is_sgd(step));
        }
        fsdp_trace_close(&trace);
    }
}
END_TEST

/* A reduced gradient comes after all that went into it, and the loss after what
 * its micro-batch computed. */
START_TEST(order_is_that_of_events)
{
    run_t run;
    run_record(&run, &variants[0]);
    if (is_first()) {
        open_trace();
        for (int g = 0; g < run.size * MICROS; g++) {
            int sum = g / run.size * run.size + run.size - 1;
            const fsdp_trace_record_t *in_order[] = {
                fsdp_trace_find(trace, 2, FSDP_TRACE_INPUT, g, "x"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_GATHERED_PARAMETER, g,
                                "layers.0.weight"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_UNIT_OUTPUT, g,
                                "layers.0"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_UNIT_INPUT, g, "layers.1"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_UNIT_OUTPUT, g, "(root)"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_LOSS, g, "loss"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_OUTPUT_GRAD, g,
                                "layers.1"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_INPUT_GRAD, g, "layers.1"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_OUTPUT_GRAD, g,
                                "layers.0"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_UNREDUCED_GRAD, g,
                                "layers.0.weight"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_REDUCED_GRAD, sum,
                                "layers.0.weight"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_GRAD, -1,
                                "layers.0.weight"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_NORM, -1, "norm"),
                fsdp_trace_find(trace, 2, FSDP_TRACE_PARAMETER, -1,
                                "layers.0.weight")};
            for (size_t i = 1; i < sizeof in_order / sizeof *in_order; i++)
                ck_assert_msg(fsdp_trace_index(trace, in_order[i - 1]) <
                                  fsdp_trace_index(trace, in_order[i]),
                              "%zu comes before %zu", i, i - 1);
        }
        fsdp_trace_close(&trace);
    }
}
END_TEST

/* On the last rank; the others hear of it. */
START_TEST(full_disk_is_told_to_all)
{
    run_t run;
    struct rlimit before, small;
    bool full = fsdp_comm_rank(fsdp_comm_world()) ==
                fsdp_comm_size(fsdp_comm_world()) - 1;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1 << 10;
    signal(SIGXFSZ, SIG_IGN);
    run_begin(&run, &variants[0]);
    fsdp_trace_about_t about = run_about(&run);
    run_begin_recording(&run, &about);
    run_step(&run, 1);
    ck_assert(fsdp_trace_recorder_end_step(run.recorder) == FSDP_OK);
    run_step(&run, 2);
    if (full)
        setrlimit(RLIMIT_FSIZE, &small);
    fsdp_status_t status = fsdp_trace_recorder_end_step(run.recorder);
    setrlimit(RLIMIT_FSIZE, &before);
    mck_assert(status == FSDP_ERR_IO);
    mck_assert(strstr(fsdp_error_message(), "cannot be written") != NULL);
    fsdp_trace_recorder_finish(&run.recorder);
    run_end(&run);
    if (is_first()) {
        ck_assert(fsdp_trace_open(hand_folder, &trace) == FSDP_ERR_INPUT);
        ck_assert(strstr(fsdp_error_message(), "not finished") != NULL);
    }
}
END_TEST

/* A second recording would be mixed with the first. */
START_TEST(used_folder_is_refused)
{
    run_t run;
    run_record(&run, &variants[0]);
    fsdp_trace_recorder_options_t options = {.dir = hand_folder};
    fsdp_trace_recorder_t *recorder;
    ck_assert(fsdp_trace_recorder_create(&options, &recorder) ==
              FSDP_ERR_USAGE);
    ck_assert(recorder == NULL);
    ck_assert(strstr(fsdp_error_message(), "of an earlier recording") != NULL);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("record");
    TCase *tcase = tcase_create("recording");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_loop_test(tcase, records_what_happened, 0, VARIANTS);
    tcase_add_test(tcase, order_is_that_of_events);
    tcase_add_test(tcase, full_disk_is_told_to_all);
    tcase_add_test(tcase, used_folder_is_refused);
    return mck_run(argc, argv, suite);
}
