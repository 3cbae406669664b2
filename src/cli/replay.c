#include <math.h>
#include <string.h>

#include "cli/replay_fill.h"

const trace_source_t *
cli_replay_source(const cli_replay_t *replay)
{
    return replay != NULL ? &replay->source : NULL;
}

/* ---- what cannot be said as well ------------------------------------------------ */

static fsdp_status_t
check_given(const cli_options_t *o)
{
    static const char *const settled[] = {
        "model",        "layers",       "heads",
        "kv-heads",     "width",        "intermediate-size",
        "context",      "vocab-size",   "untied",
        "tied",         "hidden",       "data",
        "label-column", "batch-size",   "micro-batch-size",
        "eval-every",   "eval-batches", "documents",
        "init",         "resume",       "grad-scaler",
        "seed"};
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (cli_is_given(o, settled[i]))
            return fsdp_error(FSDP_ERR_USAGE,
                              "--%s and --replay: the trace settles that; "
                              "leave --%s out",
                              settled[i], settled[i]);
    return FSDP_OK;
}

bool
cli_replay_is_ours(const fsdp_trace_about_t *a)
{
    return a->producer != NULL && strncmp(a->producer, "libfsdp ", 8) == 0;
}

/* ---- the whole ---------------------------------------------------------------------- */

/* What is meant is the gradient of the mean loss, of all micro-batches; a script
 * that forgets to divide has another.  What this library records is meant. */
static void
take_the_mean(const cli_options_t *o, trace_source_t *s)
{
    const fsdp_trace_about_t *a = s->about;
    double divisor = isnan(a->divide_factor) ? s->ranks : a->divide_factor;
    double factor = s->micros * s->scale / divisor;
    if (o->keep_loss_scale || cli_is_given(o, "divide-factor") ||
        cli_replay_is_ours(a) || !isfinite(factor) || factor <= 0 ||
        fabs(factor - 1) < 1e-9)
        return;
    if (cli_speaks())
        printf("fsdp: their gradients are %.6g times that of the mean loss: %d "
               "micro-batches, each loss times %.6g, the sum divided by %g; "
               "ours is the mean, --keep-loss-scale takes theirs\n",
               factor, s->micros, s->scale, divisor);
    s->scale /= factor;
}

static void
say_what(const cli_options_t *o, const fsdp_trace_about_t *a)
{
    if (!cli_speaks())
        return;
    printf("fsdp: replaying %s, recorded by %s on %d rank%s\n", o->replay,
           a->producer != NULL ? a->producer : "an unknown producer",
           a->world_size, a->world_size > 1 ? "s" : "");
}

fsdp_status_t
cli_replay_open(cli_options_t *o, cli_replay_t **replay)
{
    *replay = NULL;
    if (o->replay == NULL)
        return FSDP_OK;
    cli_replay_t *r = fsdp_calloc(FSDP_MEM_OTHER, sizeof *r);
    fsdp_dtype_t dtype = FSDP_DTYPE_NONE;
    if (cli_is_given(o, "dtype"))
        dtype = o->dtype == 1 ? FSDP_FP64 : FSDP_FP32;
    fsdp_status_t status = check_given(o);
    if (status == FSDP_OK)
        status = fsdp_trace_open(o->replay, &r->trace);
    if (status == FSDP_OK)
        status = trace_source_open(r->trace, NULL, dtype, 0, 0, &r->source);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status == FSDP_OK) {
        say_what(o, r->source.about);
        take_the_mean(o, &r->source);
        status = fsdp_comm_agree(fsdp_comm_world(), cli_replay_fill(o, r));
    }
    *replay = r;
    if (status != FSDP_OK)
        cli_replay_close(replay);
    return status;
}

void
cli_replay_close(cli_replay_t **replay)
{
    cli_replay_t *r = *replay;
    if (r == NULL)
        return;
    trace_source_close(&r->source);
    fsdp_trace_close(&r->trace);
    fsdp_free(r);
    *replay = NULL;
}
