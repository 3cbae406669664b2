#include "cli/replay.h"

#include <math.h>
#include <string.h>

struct cli_replay {
    fsdp_trace_t *trace;
    trace_source_t source;
    char mesh[32], divide[40]; /* values of options */
};

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

/* A person should know of what the trace does not say. */
static void
say_taken(const cli_options_t *o, bool unknown, const char *option,
          const char *value)
{
    if (unknown && cli_speaks() && !cli_is_given(o, option))
        printf("fsdp: the trace does not say --%s; taking %s\n", option, value);
}

/* ---- filling in ------------------------------------------------------------------ */

static int
choice_of(fsdp_dtype_t dtype)
{
    int i = 0;
    while (cli_type(i) != dtype)
        i++;
    return i;
}

static void
fill_precision(cli_options_t *o, const fsdp_trace_about_t *a)
{
    bool own = cli_is_given(o, "dtype"); /* everything in it */
    if (!cli_is_given(o, "param-dtype") && !own)
        o->param_dtype = choice_of(a->precision.param_dtype);
    if (!cli_is_given(o, "reduce-dtype") && !own)
        o->reduce_dtype = choice_of(a->precision.reduce_dtype);
    if (!cli_is_given(o, "output-dtype") && !own && !cli_is_fsdp1(o))
        o->output_dtype = choice_of(a->precision.output_dtype);
    if (o->param_dtype != 0 && a->has_precision)
        o->no_cast_forward_inputs |= !a->precision.cast_forward_inputs;
}

static void
fill_sgd(cli_options_t *o, const fsdp_sgd_options_t *sgd)
{
    if (!cli_is_given(o, "momentum"))
        o->momentum = sgd->momentum;
    if (!cli_is_given(o, "nesterov"))
        o->nesterov = sgd->nesterov;
    if (!cli_is_given(o, "weight-decay"))
        o->weight_decay = sgd->weight_decay;
    o->dampening = sgd->dampening;
}

static void
fill_adamw(cli_options_t *o, const fsdp_adamw_options_t *adamw)
{
    if (!cli_is_given(o, "beta1"))
        o->beta1 = adamw->beta1;
    if (!cli_is_given(o, "beta2"))
        o->beta2 = adamw->beta2;
    if (!cli_is_given(o, "eps"))
        o->eps = adamw->eps;
    if (!cli_is_given(o, "weight-decay"))
        o->weight_decay = adamw->weight_decay;
}

static fsdp_status_t
fill_optimizer(cli_options_t *o, const trace_source_t *s)
{
    const fsdp_trace_about_t *a = s->about;
    bool given = cli_is_given(o, "optimizer");
    if (!given && a->optimizer == FSDP_TRACE_NO_OPTIMIZER)
        return fsdp_error(
            FSDP_ERR_INPUT,
            "--replay %s: its trace.json names %s%s; sgd and adamw can be run "
            "again: give --optimizer",
            o->replay, a->optimizer_name != NULL ? "the optimizer " : "none",
            a->optimizer_name != NULL ? a->optimizer_name : "");
    if (!given)
        o->optimizer = a->optimizer == FSDP_TRACE_SGD ? CLI_SGD : CLI_ADAMW;
    if (o->optimizer == CLI_SGD && a->optimizer == FSDP_TRACE_SGD)
        fill_sgd(o, &a->sgd);
    if (o->optimizer == CLI_ADAMW && a->optimizer == FSDP_TRACE_ADAMW)
        fill_adamw(o, &a->adamw);
    for (long step = s->first_step;
         step <= s->last_step && !cli_is_given(o, "lr"); step++)
        if (isnan(trace_source_lr(s, step)))
            return fsdp_error(FSDP_ERR_INPUT,
                              "--replay %s: its trace.json does not say the "
                              "\"lr\" of step %ld; add it to \"steps\", or "
                              "give --lr",
                              o->replay, step);
    say_taken(o, isnan(a->grad_clip), "grad-clip", "0");
    if (!cli_is_given(o, "grad-clip") && !isnan(a->grad_clip))
        o->grad_clip = a->grad_clip;
    o->norm_type = a->norm_type;
    return FSDP_OK;
}

static bool
is_ours(const fsdp_trace_about_t *a)
{
    return a->producer != NULL && strncmp(a->producer, "libfsdp ", 8) == 0;
}

/* Only our own masks can be made again. */
static fsdp_status_t
fill_dropout(cli_options_t *o, const fsdp_trace_about_t *a)
{
    if (cli_is_given(o, "dropout") || isnan(a->dropout) || a->dropout == 0)
        return FSDP_OK;
    o->dropout = a->dropout;
    o->seed = (long)a->seed;
    if (is_ours(a) && a->seed >= 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--replay %s was made with a dropout of %g, whose masks "
                      "are in no trace; record without (model.eval(), or p=0), "
                      "or give --dropout 0 to compare all the same",
                      o->replay, a->dropout);
}

/* ---- sharding --------------------------------------------------------------------- */

/* The ranks are those of the trace: the mesh too.  Else all of them share. */
static void
fill_mesh(cli_options_t *o, cli_replay_t *replay, int ranks)
{
    const fsdp_trace_about_t *a = replay->source.about;
    bool same = ranks == replay->source.ranks && a->replicas > 1;
    if (!cli_is_given(o, "api") && !cli_is_given(o, "strategy") &&
        a->api != NULL && strcmp(a->api, "fsdp1") == 0)
        o->api = CLI_FSDP1;
    if (o->mesh == NULL && same && o->strategy == 0) {
        snprintf(replay->mesh, sizeof replay->mesh, "%dx%d", a->replicas,
                 a->shards);
        o->mesh = replay->mesh;
    }
    if (o->api == CLI_FSDP1 && !cli_is_given(o, "sharding-strategy") &&
        o->mesh != NULL && strchr(o->mesh, 'x') != NULL)
        o->sharding_strategy = FSDP_HYBRID_SHARD;
}

static void
fill_reduction(cli_options_t *o, cli_replay_t *replay, int ranks)
{
    const trace_source_t *s = &replay->source;
    const fsdp_trace_about_t *a = s->about;
    bool replicas = o->mesh != NULL && strchr(o->mesh, 'x') != NULL;
    if (!cli_is_given(o, "gradient-sync") && a->gradient_sync >= 0)
        o->gradient_sync = a->gradient_sync;
    if (!cli_is_given(o, "gradient-sync") && !replicas &&
        o->gradient_sync == FSDP_SYNC_LAST_ALL_REDUCE)
        o->gradient_sync = FSDP_SYNC_LAST;
    if (!cli_is_given(o, "reduce-order") && a->reduce_order >= 0)
        o->reduce_order = a->reduce_order;
    if (!cli_is_given(o, "averaging") && a->averaging >= 0 && !cli_is_fsdp1(o))
        o->averaging = a->averaging;
    if (!cli_is_given(o, "force-sum") && !cli_is_fsdp1(o))
        o->force_sum = a->force_sum;
    say_taken(o, a->gradient_sync < 0 && s->micros > s->ranks, "gradient-sync",
              "each");
    say_taken(o, a->reduce_order < 0, "reduce-order", "tree");
    say_taken(o, a->averaging < 0 && !cli_is_fsdp1(o), "averaging",
              "sum-then-divide");
    if (cli_is_given(o, "divide-factor"))
        return;
    /* The mean over the trace's ranks, whoever adds up here. */
    snprintf(replay->divide, sizeof replay->divide, "%.17g",
             isnan(a->divide_factor) ? s->ranks : a->divide_factor);
    if (isnan(a->divide_factor) && ranks == s->ranks)
        strcpy(replay->divide, "default");
    o->divide_factor = replay->divide;
}

static fsdp_status_t
check_ranks(const trace_source_t *s, int ranks)
{
    if (s->micros % ranks == 0)
        return FSDP_OK;
    int fewer = ranks < s->micros ? ranks : s->micros;
    while (s->micros % fewer != 0)
        fewer--;
    return fsdp_error(FSDP_ERR_USAGE,
                      "the %d micro-batches of the trace cannot be dealt "
                      "evenly to %d rank%s; start %d",
                      s->micros, ranks, ranks > 1 ? "s" : "", fewer);
}

static fsdp_status_t
fill_sharding(cli_options_t *o, cli_replay_t *replay)
{
    const trace_source_t *s = &replay->source;
    int size = fsdp_comm_size(fsdp_comm_world());
    if (!cli_is_given(o, "tp") && s->about->tensor > 1 &&
        size % s->about->tensor == 0)
        o->tp = s->about->tensor;
    int ranks = size % o->tp == 0 ? size / (int)o->tp : size;
    fill_mesh(o, replay, ranks);
    fill_reduction(o, replay, ranks);
    return check_ranks(s, ranks);
}

/* ---- the whole ---------------------------------------------------------------------- */

static fsdp_status_t
fill_steps(cli_options_t *o, const trace_source_t *s)
{
    if (!cli_is_given(o, "steps"))
        o->steps = s->last_step;
    if (o->steps > s->last_step || o->steps < s->first_step)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--steps %ld: the trace has the inputs of steps %ld "
                          "to %ld",
                          o->steps, s->first_step, s->last_step);
    return FSDP_OK;
}

static void
fill_model(cli_options_t *o, const trace_source_t *s)
{
    static const int model[] = {[TRACE_MODEL_GPT2] = CLI_GPT2,
                                [TRACE_MODEL_LLAMA] = CLI_LLAMA,
                                [TRACE_MODEL_MLP] = CLI_MLP};
    bool text = s->model.kind != TRACE_MODEL_MLP;
    const fsdp_trace_record_t *x = fsdp_trace_find(
        s->trace, s->first_step, FSDP_TRACE_INPUT, 0, text ? "tokens" : "x");
    o->model = model[s->model.kind];
    o->micro_batch_size = (long)x->shape[0];
    o->batch_size = o->micro_batch_size * s->micros;
    o->context = text ? (long)x->shape[1] : o->context;
    o->dtype = s->dtype == FSDP_FP64;
    if (!cli_is_given(o, "loss-average") && s->about->average != NULL &&
        strcmp(s->about->average, "token") == 0)
        o->loss_average = CLI_TOKEN_MEAN;
}

/* The baseline of a verification begins without states, and knows one norm. */
static fsdp_status_t
check_verify(const cli_options_t *o, const trace_source_t *s)
{
    bool states = o->optimizer == CLI_ADAMW || o->momentum > 0;
    if (o->verify == FSDP_VERIFY_OFF)
        return FSDP_OK;
    if (o->norm_type != 2)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--verify knows the norm of type 2 only, the trace "
                          "has type %g; leave --verify out",
                          o->norm_type);
    if (s->first_step > 1 && states)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--verify begins without optimizer states, the trace "
                          "with step %ld; leave --verify out, or record from "
                          "step 1",
                          s->first_step);
    return FSDP_OK;
}

static fsdp_status_t
fill(cli_options_t *o, cli_replay_t *replay)
{
    const trace_source_t *s = &replay->source;
    fill_model(o, s);
    fsdp_status_t status = fill_steps(o, s);
    if (status == FSDP_OK)
        status = fill_optimizer(o, s);
    if (status == FSDP_OK)
        status = fill_dropout(o, s->about);
    if (status == FSDP_OK)
        status = fill_sharding(o, replay);
    if (status == FSDP_OK)
        fill_precision(o, s->about);
    if (status == FSDP_OK)
        status = cli_options_check(o);
    return status == FSDP_OK ? check_verify(o, s) : status;
}

/* What is meant is the gradient of the mean loss, of all micro-batches; a script
 * that forgets to divide has another.  What this library records is meant. */
static void
take_the_mean(const cli_options_t *o, trace_source_t *s)
{
    const fsdp_trace_about_t *a = s->about;
    double divisor = isnan(a->divide_factor) ? s->ranks : a->divide_factor;
    double factor = s->micros * s->scale / divisor;
    if (o->keep_loss_scale || cli_is_given(o, "divide-factor") || is_ours(a) ||
        !isfinite(factor) || factor <= 0 || fabs(factor - 1) < 1e-9)
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
        status = fsdp_comm_agree(fsdp_comm_world(), fill(o, r));
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
