#include "cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static FILE *log_file;
static const char *log_name;

static int
world_size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

/* ---- the log file ------------------------------------------------------- */

fsdp_status_t
cli_report_open(const char *log_path)
{
    fsdp_status_t status = FSDP_OK;
    log_name = log_path;
    if (log_path != NULL && cli_speaks()) {
        log_file = fopen(log_path, "w");
        if (log_file == NULL)
            status =
                fsdp_error(FSDP_ERR_IO, "--log-file %s cannot be written: %s",
                           log_path, strerror(errno));
    }
    return fsdp_comm_agree(fsdp_comm_world(), status);
}

fsdp_status_t
cli_report_close(void)
{
    fsdp_status_t status = FSDP_OK;
    if (log_file != NULL) {
        bool failed = ferror(log_file) != 0;
        failed |= fclose(log_file) != 0;
        log_file = NULL;
        if (failed)
            status = fsdp_error(FSDP_ERR_IO,
                                "--log-file %s could not be written; is the "
                                "disk full?",
                                log_name);
    }
    return fsdp_comm_agree(fsdp_comm_world(), status);
}

static fsdp_json_writer_t *
begin_event(const char *event)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_json_open_object(json);
    fsdp_json_key(json, "event");
    fsdp_json_string(json, event);
    return json;
}

static void
end_event(fsdp_json_writer_t *json)
{
    fsdp_json_close_object(json);
    fprintf(log_file, "%s\n", fsdp_json_writer_text(json));
    fflush(log_file);
    fsdp_json_writer_destroy(&json);
}

static void
log_step(const cli_step_t *s)
{
    fsdp_json_writer_t *json = begin_event("step");
    fsdp_json_put_integer(json, "step", s->step);
    fsdp_json_put_double(json, "loss", s->loss);
    fsdp_json_put_double(json, "grad_norm", s->grad_norm);
    fsdp_json_put_double(json, "lr", s->lr);
    fsdp_json_put_double(json, "tokens_per_s", s->per_second);
    fsdp_json_put_integer(json, "verified", (int64_t)s->report.compared);
    fsdp_json_put_integer(json, "differing", (int64_t)s->report.differing);
    end_event(json);
}

static void
put_divergence(fsdp_json_writer_t *json, const fsdp_divergence_t *d)
{
    fsdp_json_key(json, "first_divergence");
    if (!d->found) {
        fsdp_json_null(json);
        return;
    }
    fsdp_json_open_object(json);
    fsdp_json_put_integer(json, "step", d->step);
    fsdp_json_put_string(json, "phase", d->phase);
    fsdp_json_put_string(json, "unit", d->unit);
    fsdp_json_put_string(json, "name", d->name);
    fsdp_json_put_integer(json, "micro_batch", d->micro);
    fsdp_json_put_integer(json, "element", (int64_t)d->element);
    fsdp_json_put_integer(json, "rank", d->rank);
    fsdp_json_put_double(json, "ours", d->ours);
    fsdp_json_put_double(json, "expected", d->expected);
    fsdp_json_put_double(json, "ulps", d->ulps);
    fsdp_json_close_object(json);
}

static void
put_peaks(fsdp_json_writer_t *json, const cli_summary_t *s)
{
    fsdp_json_key(json, "peak_bytes");
    fsdp_json_open_array(json);
    for (int r = 0; r < world_size(); r++) {
        fsdp_json_open_object(json);
        fsdp_json_put_integer(json, "rank", r);
        for (int c = 0; c < FSDP_MEM_COUNT; c++)
            fsdp_json_put_integer(
                json, fsdp_memory_category_name((fsdp_memory_category_t)c),
                s->peaks[r * CLI_PEAKS + c]);
        fsdp_json_put_integer(json, "sum",
                              s->peaks[r * CLI_PEAKS + CLI_PEAK_OF_SUM]);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static fsdp_comm_counter_t
count_of(const cli_summary_t *s, fsdp_collective_t kind)
{
    fsdp_comm_counter_t sum = fsdp_mesh_counter(s->mesh, kind), other;
    if (s->expert_mesh == NULL)
        return sum;
    other = fsdp_mesh_counter(s->expert_mesh, kind);
    sum.calls += other.calls;
    sum.bytes_sent += other.bytes_sent;
    sum.seconds += other.seconds;
    return sum;
}

static void
put_collectives(fsdp_json_writer_t *json, const cli_summary_t *s)
{
    fsdp_json_key(json, "collectives");
    fsdp_json_open_object(json);
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        fsdp_comm_counter_t counter = count_of(s, (fsdp_collective_t)k);
        fsdp_json_key(json, fsdp_collective_name((fsdp_collective_t)k));
        fsdp_json_open_object(json);
        fsdp_json_put_integer(json, "calls", (int64_t)counter.calls);
        fsdp_json_put_integer(json, "bytes", (int64_t)counter.bytes_sent);
        fsdp_json_put_double(json, "seconds", counter.seconds);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_object(json);
}

static void
log_summary(const cli_summary_t *s)
{
    fsdp_json_writer_t *json = begin_event("summary");
    fsdp_json_put_integer(json, "steps", s->steps);
    fsdp_json_put_integer(json, "verified", (int64_t)s->total.compared);
    fsdp_json_put_integer(json, "differing", (int64_t)s->total.differing);
    put_divergence(json, &s->total.first);
    fsdp_json_put_double(json, "largest_difference",
                         s->total.largest_difference);
    fsdp_json_put_double(json, "held_out_loss", s->held_out_loss);
    fsdp_json_put_double(json, "unigram_entropy", s->unigram_entropy);
    fsdp_json_put_double(json, "accuracy", s->accuracy);
    put_peaks(json, s);
    put_collectives(json, s);
    end_event(json);
}

/* ---- the screen --------------------------------------------------------- */

/* On a terminal only: how far the run is, below the lines, rubbed out before
 * the next of them. */
static bool
has_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
}

static void
rub_out_bar(void)
{
    if (has_terminal())
        fputs("\r\033[K", stderr);
}

static void
draw_bar(long step, long steps)
{
    enum { WIDTH = 40 };
    static const char done[] = "########################################";
    int n = (int)(step * WIDTH / steps);
    if (has_terminal() && step < steps)
        fprintf(stderr, "[%.*s%*s] %ld of %ld", n, done, WIDTH - n, "", step,
                steps);
}

void
cli_report_step(const cli_step_t *s, const char *unit)
{
    if (!cli_speaks())
        return;
    char verdict[64] = "";
    if (s->verifying)
        snprintf(verdict, sizeof verdict,
                 " | %" PRIu64 " of %" PRIu64 " values differ",
                 s->report.differing, s->report.compared);
    rub_out_bar();
    printf("step %4ld/%ld | loss %8.6f | norm %9.3e | lr %.2e | %7.0f %s/s%s\n",
           s->step, s->steps, s->loss, s->grad_norm, s->lr, s->per_second, unit,
           verdict);
    fflush(stdout);
    draw_bar(s->step, s->steps);
    if (log_file != NULL)
        log_step(s);
}

void
cli_report_held_out(long step, double loss, double accuracy)
{
    if (!cli_speaks())
        return;
    rub_out_bar();
    printf("held out after step %ld: loss %.6f", step, loss);
    if (!isnan(accuracy))
        printf(", %.2f %% right", 100.0 * accuracy);
    printf("\n");
    fflush(stdout);
}

static void
print_memory(const cli_summary_t *s)
{
    printf("peak bytes of a rank (largest over the ranks):\n");
    for (int c = 0; c < FSDP_MEM_COUNT; c++) {
        int64_t largest = 0;
        for (int r = 0; r < world_size(); r++)
            if (s->peaks[r * CLI_PEAKS + c] > largest)
                largest = s->peaks[r * CLI_PEAKS + c];
        printf("    %-22s %14" PRId64 "\n",
               fsdp_memory_category_name((fsdp_memory_category_t)c), largest);
    }
}

static void
print_collectives(const cli_summary_t *s)
{
    printf("collectives of rank 0:          calls          bytes sent\n");
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        fsdp_comm_counter_t c = count_of(s, (fsdp_collective_t)k);
        if (c.calls > 0)
            printf("    %-22s %10" PRIu64 " %19" PRIu64 "\n",
                   fsdp_collective_name((fsdp_collective_t)k), c.calls,
                   c.bytes_sent);
    }
}

/* Nothing is held out of a trace. */
static void
print_held_out(const cli_summary_t *s)
{
    if (isnan(s->held_out_loss) && isnan(s->unigram_entropy))
        return;
    printf("held-out loss %.4f nats", s->held_out_loss);
    if (!isnan(s->accuracy))
        printf(", %.2f %% right", 100.0 * s->accuracy);
    printf(" (guessing by frequency alone: %.4f)\n", s->unigram_entropy);
}

static void
print_verdict(const cli_summary_t *s)
{
    char text[512];
    if (!s->verifying)
        return;
    if (s->total.first.found) {
        fsdp_divergence_format(&s->total.first, text, sizeof text);
        printf("%s\n", text);
    }
    printf("%s: %" PRIu64 " of %" PRIu64 " values differ from unsharded "
           "training\n",
           s->total.differing == 0 ? "verified" : "FAILED", s->total.differing,
           s->total.compared);
}

void
cli_report_summary(const cli_summary_t *s)
{
    if (!cli_speaks())
        return;
    print_memory(s);
    if (world_size() > 1)
        print_collectives(s);
    print_held_out(s);
    print_verdict(s);
    fflush(stdout);
    if (log_file != NULL)
        log_summary(s);
}
