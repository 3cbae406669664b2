/* Options that a trace settles: model, steps, optimizer, precision. */

#include <math.h>
#include <string.h>

#include "cli/replay_fill.h"

/* A person should know of what the trace does not say. */
void
cli_replay_say_taken(const cli_options_t *o, bool unknown, const char *option,
                     const char *value)
{
    if (unknown && cli_speaks() && !cli_is_given(o, option))
        printf("fsdp: the trace does not say --%s; taking %s\n", option, value);
}

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
    cli_replay_say_taken(o, isnan(a->grad_clip), "grad-clip", "0");
    if (!cli_is_given(o, "grad-clip") && !isnan(a->grad_clip))
        o->grad_clip = a->grad_clip;
    o->norm_type = a->norm_type;
    return FSDP_OK;
}

/* Only our own masks can be made again. */
static fsdp_status_t
fill_dropout(cli_options_t *o, const fsdp_trace_about_t *a)
{
    if (cli_is_given(o, "dropout") || isnan(a->dropout) || a->dropout == 0)
        return FSDP_OK;
    o->dropout = a->dropout;
    o->seed = (long)a->seed;
    if (cli_replay_is_ours(a) && a->seed >= 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "--replay %s was made with a dropout of %g, whose masks "
                      "are in no trace; record without (model.eval(), or p=0), "
                      "or give --dropout 0 to compare all the same",
                      o->replay, a->dropout);
}

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

fsdp_status_t
cli_replay_fill(cli_options_t *o, cli_replay_t *replay)
{
    const trace_source_t *s = &replay->source;
    fill_model(o, s);
    fsdp_status_t status = fill_steps(o, s);
    if (status == FSDP_OK)
        status = fill_optimizer(o, s);
    if (status == FSDP_OK)
        status = fill_dropout(o, s->about);
    if (status == FSDP_OK)
        status = cli_replay_fill_sharding(o, replay);
    if (status == FSDP_OK)
        fill_precision(o, s->about);
    if (status == FSDP_OK)
        status = cli_options_check(o);
    return status == FSDP_OK ? check_verify(o, s) : status;
}
