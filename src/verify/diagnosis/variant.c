/* PyTorch's torch/optim/adam.py and sgd.py, one element at a time, each term
 * with a bound of its rounding (verify/verdict/running.h). */

#include "verify/diagnosis/variant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "verify/verdict/running.h"

/** What a step starts from. */
typedef struct start {
    const double *parameter, *grad, *state[2]; /**< states NULL: zeros        */
    double lr, steps;
    bool first; /**< momentum begins with the gradient itself                 */
    rounding_t r;
} start_t;

static bool
is_adam(const symptom_t *s)
{
    return s->meant->optimizer == FSDP_TRACE_ADAMW;
}

static const double *
gradient_of(const symptom_t *s, const variant_t *v)
{
    const double *grad =
        v->unclipped ? NULL
                     : symptom_get(s, s->step, FSDP_TRACE_CLIPPED_GRAD, -1);
    return grad != NULL ? grad : symptom_get(s, s->step, FSDP_TRACE_GRAD, -1);
}

static double
steps_before(const symptom_t *s)
{
    uint64_t numel = 0;
    const double *count =
        s->get(s->context, false, s->step - 1, FSDP_TRACE_STATE_STEP, -1,
               s->name, -1, &numel);
    return count != NULL && numel == 1 ? count[0] : (double)(s->step - 1);
}

static bool
start_make(const symptom_t *s, const variant_t *v, start_t *b)
{
    if (s->step < 1 || s->meant->optimizer == FSDP_TRACE_NO_OPTIMIZER)
        return false;
    *b = (start_t){.parameter =
                       symptom_get(s, s->step - 1, FSDP_TRACE_PARAMETER, -1),
                   .grad = gradient_of(s, v),
                   .lr = v->lr != 0 ? v->lr : symptom_lr(s, s->step),
                   .steps = steps_before(s) + 1 + v->more_steps,
                   .r = rounding_of(s->dtype)};
    b->state[0] = symptom_get(
        s, s->step - 1,
        is_adam(s) ? FSDP_TRACE_EXP_AVG : FSDP_TRACE_MOMENTUM_BUFFER, -1);
    if (is_adam(s))
        b->state[1] = symptom_get(s, s->step - 1, FSDP_TRACE_EXP_AVG_SQ, -1);
    b->first = b->state[0] == NULL;
    if (b->first && s->step > 1 && (is_adam(s) || s->meant->sgd.momentum != 0))
        return false;
    return b->parameter != NULL && b->grad != NULL && !isnan(b->lr);
}

static running_t
old_state(const start_t *b, int k, uint64_t i)
{
    return running_exact(b->state[k] != NULL ? b->state[k][i] : 0);
}

static double
decay_of(double decay, const variant_t *v)
{
    return v->no_decay ? 0 : v->decay_twice ? 2 * decay : decay;
}

/* x (1 - lr decay) */
static running_t
decayed(const start_t *b, double decay, const variant_t *v, uint64_t i)
{
    double rate = v->decay_without_lr ? decay : b->lr * decay;
    return running_mul(b->r, running_exact(b->parameter[i]),
                       running_constant(b->r, 1 - rate));
}

/* g + decay x */
static running_t
with_decay(const start_t *b, double decay, uint64_t i)
{
    running_t more = running_mul(b->r, running_constant(b->r, decay),
                                 running_exact(b->parameter[i]));
    return running_add(b->r, running_exact(b->grad[i]), more);
}

/* ---- AdamW ------------------------------------------------------------------- */

static running_t
average(const start_t *b, double beta, running_t old, running_t x)
{
    return running_add(b->r,
                       running_mul(b->r, running_constant(b->r, beta), old),
                       running_mul(b->r, running_constant(b->r, 1 - beta), x));
}

static running_t
denominator(const start_t *b, running_t v2, double eps, double correction,
            const variant_t *v)
{
    rounding_t r = b->r;
    running_t e = running_constant(r, eps), c = running_constant(r, correction);
    if (v->eps_inside)
        return running_sqrt(r, running_add(r, running_div(r, v2, c), e));
    if (v->eps_before_correction)
        return running_div(r, running_add(r, running_sqrt(r, v2), e),
                           running_sqrt(r, c));
    return running_add(
        r, running_div(r, running_sqrt(r, v2), running_sqrt(r, c)), e);
}

static running_t
adam(const symptom_t *s, const start_t *b, const variant_t *v, uint64_t i)
{
    fsdp_adamw_options_t o = s->meant->adamw;
    rounding_t r = b->r;
    double beta1 = v->betas_swapped ? o.beta2 : o.beta1;
    double beta2 = v->betas_swapped ? o.beta1 : o.beta2;
    double decay = decay_of(o.weight_decay, v);
    running_t g =
        v->coupled ? with_decay(b, decay, i) : running_exact(b->grad[i]);
    running_t m = average(b, beta1, old_state(b, 0, i), g);
    running_t v2 = average(b, beta2, old_state(b, 1, i), running_mul(r, g, g));
    if (s->phase == FSDP_TRACE_EXP_AVG)
        return m;
    if (s->phase == FSDP_TRACE_EXP_AVG_SQ)
        return v2;
    double c1 = v->no_correction1 ? 1 : 1 - pow(beta1, b->steps);
    double c2 = v->no_correction2 ? 1 : 1 - pow(beta2, b->steps);
    running_t size =
        running_div(r, running_constant(r, -b->lr), running_constant(r, c1));
    running_t way = running_div(r, running_mul(r, size, m),
                                denominator(b, v2, o.eps, c2, v));
    running_t kept =
        v->coupled ? running_exact(b->parameter[i]) : decayed(b, decay, v, i);
    return running_add(r, kept, way);
}

/* ---- SGD --------------------------------------------------------------------- */

static running_t
momentum(const symptom_t *s, const start_t *b, const variant_t *v, running_t g,
         uint64_t i)
{
    const fsdp_sgd_options_t *o = &s->meant->sgd;
    double dampening = v->dampened     ? o->momentum
                       : v->undampened ? 0
                                       : o->dampening;
    running_t fresh =
        running_mul(b->r, running_constant(b->r, 1 - dampening), g);
    if (b->first)
        return v->dampened ? fresh : g;
    return running_add(b->r,
                       running_mul(b->r, running_constant(b->r, o->momentum),
                                   old_state(b, 0, i)),
                       fresh);
}

static running_t
sgd(const symptom_t *s, const start_t *b, const variant_t *v, uint64_t i)
{
    const fsdp_sgd_options_t *o = &s->meant->sgd;
    double decay = decay_of(o->weight_decay, v);
    running_t g = v->decoupled || decay == 0 ? running_exact(b->grad[i])
                                             : with_decay(b, decay, i);
    running_t way = g;
    if (o->momentum != 0 && !v->no_momentum) {
        running_t buffer = momentum(s, b, v, g, i);
        if (s->phase == FSDP_TRACE_MOMENTUM_BUFFER)
            return buffer;
        bool nesterov = o->nesterov != v->nesterov_other;
        way = !nesterov
                  ? buffer
                  : running_add(b->r, g,
                                running_mul(b->r,
                                            running_constant(b->r, o->momentum),
                                            buffer));
    }
    running_t kept =
        v->decoupled ? decayed(b, decay, v, i) : running_exact(b->parameter[i]);
    return running_add(b->r, kept,
                       running_mul(b->r, running_constant(b->r, -b->lr), way));
}

/* ---- either ------------------------------------------------------------------ */

static bool
is_result(const symptom_t *s)
{
    if (s->copy != NULL)
        return false;
    return s->phase == FSDP_TRACE_PARAMETER || s->phase == FSDP_TRACE_EXP_AVG ||
           s->phase == FSDP_TRACE_EXP_AVG_SQ ||
           s->phase == FSDP_TRACE_MOMENTUM_BUFFER;
}

bool
variant_explains(const symptom_t *s, cause_t *cause, const variant_t *v,
                 const char *format, ...)
{
    start_t b;
    char text[256];
    if (!is_result(s) || !start_make(s, v, &b))
        return false;
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        running_t x = is_adam(s) ? adam(s, &b, v, i) : sgd(s, &b, v, i);
        c.value[i] = x.v;
        c.bound[i] = 2 * x.e;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return candidate_explains(s, &c, cause, "%s", text);
}
