/* The update that the verdict expects (verify/verdict/update.h), with one thing
 * changed, from what the trace has. */

#include "verify/diagnosis/variant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

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

/* The states before the step; false: they are needed and not there. */
static bool
read_states(const symptom_t *s, update_t *u)
{
    bool adam = s->meant->optimizer == FSDP_TRACE_ADAMW;
    u->state[0] =
        symptom_get(s, s->step - 1,
                    adam ? FSDP_TRACE_EXP_AVG : FSDP_TRACE_MOMENTUM_BUFFER, -1);
    if (adam)
        u->state[1] = symptom_get(s, s->step - 1, FSDP_TRACE_EXP_AVG_SQ, -1);
    u->begins = u->state[0] == NULL;
    return !u->begins || s->step == 1 || (!adam && s->meant->sgd.momentum == 0);
}

static bool
start(const symptom_t *s, const variant_t *v, update_t *u)
{
    if (s->step < 1 || s->meant->optimizer == FSDP_TRACE_NO_OPTIMIZER)
        return false;
    *u = (update_t){.parameter =
                        symptom_get(s, s->step - 1, FSDP_TRACE_PARAMETER, -1),
                    .grad = gradient_of(s, v),
                    .coefficient = 1,
                    .lr = v->lr != 0 ? v->lr : symptom_lr(s, s->step),
                    .steps = steps_before(s) + 1 + v->more_steps,
                    .round = rounding_of(s->dtype),
                    .variant = v->update};
    update_choose_own(s->meant, s->theirs, s->name, u);
    return read_states(s, u) && u->parameter != NULL && u->grad != NULL &&
           !isnan(u->lr);
}

bool
variant_explains(const symptom_t *s, cause_t *cause, const variant_t *v,
                 const char *format, ...)
{
    update_t u;
    update_what_t what;
    char text[256];
    if (s->copy != NULL || !update_what_of(s->phase, &what) || !start(s, v, &u))
        return false;
    candidate_t c = candidate_make(s);
    for (uint64_t i = 0; i < s->numel; i++) {
        running_t x = s->meant->optimizer == FSDP_TRACE_ADAMW
                          ? update_adamw(&s->meant->adamw, &u, what, i)
                          : update_sgd(&s->meant->sgd, &u, what, i);
        c.value[i] = x.v;
        c.bound[i] = 2 * x.e;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return candidate_explains(s, &c, cause, "%s", text);
}
