/* The optimizer's step, from their own gradient, parameter and state. */

#include "verify/verdict/update.h"

#include <string.h>

/* ---- what it starts from --------------------------------------------------------- */

static double *
read_theirs(judging_t *j, const record_t *like, long step,
            fsdp_trace_phase_t phase)
{
    return verdict_read(j, j->theirs, verdict_theirs(j, like, step, phase, -1));
}

/* The settings that are meant: ours, if they are known. */
static const fsdp_trace_about_t *
settings(const judging_t *j)
{
    return j->our_about->optimizer != FSDP_TRACE_NO_OPTIMIZER ? j->our_about
                                                              : j->their_about;
}

static double
rate_in(const fsdp_trace_about_t *about, long step)
{
    for (int i = 0; i < about->num_steps; i++)
        if (about->step[i].step == step)
            return about->step[i].lr;
    return NAN;
}

static double
rate_of(const judging_t *j, long step)
{
    double ours = rate_in(j->our_about, step);
    return isnan(ours) ? rate_in(j->their_about, step) : ours;
}

/* What their optimizer does with this parameter alone, by their trace.json: a
 * script has groups of parameters on purpose, and says so. */
void
update_choose_own(const fsdp_trace_about_t *meant,
                  const fsdp_trace_about_t *theirs, const char *name,
                  update_t *u)
{
    u->weight_decay = meant->optimizer == FSDP_TRACE_ADAMW
                          ? meant->adamw.weight_decay
                          : meant->sgd.weight_decay;
    for (int i = 0; i < theirs->num_parameters; i++) {
        const fsdp_trace_parameter_t *p = &theirs->parameter[i];
        if (strcmp(p->name, name) != 0)
            continue;
        if (!isnan(p->weight_decay))
            u->weight_decay = p->weight_decay;
        if (!isnan(p->lr_factor))
            u->lr *= p->lr_factor;
        return;
    }
}

/* How many steps the optimizer has made with it, this one counted: as they say of
 * the step before, or by the number of the step. */
static double
steps_of(judging_t *j, const record_t *record)
{
    const record_t *before = fsdp_trace_find(
        j->theirs, record->step - 1, FSDP_TRACE_STATE_STEP, -1, record->name);
    double *count = before != NULL && before->numel == 1
                        ? verdict_read(j, j->theirs, before)
                        : NULL;
    double steps = count != NULL ? count[0] + 1 : (double)record->step;
    fsdp_free(count);
    return steps;
}

/* Is `state` before this step known to be nothing? */
static bool
begins(const judging_t *j, const record_t *record)
{
    (void)j;
    return record->step == 1;
}

static bool
read_states(judging_t *j, const record_t *record, update_t *u)
{
    const fsdp_trace_about_t *s = settings(j);
    static const fsdp_trace_phase_t adam[] = {FSDP_TRACE_EXP_AVG,
                                              FSDP_TRACE_EXP_AVG_SQ};
    static const fsdp_trace_phase_t sgd[] = {FSDP_TRACE_MOMENTUM_BUFFER};
    bool is_adam = s->optimizer == FSDP_TRACE_ADAMW;
    int count = is_adam ? 2 : s->sgd.momentum != 0;
    for (int k = 0; k < count; k++) {
        fsdp_trace_phase_t phase = is_adam ? adam[k] : sgd[k];
        u->state[k] = read_theirs(j, record, record->step - 1, phase);
        u->after[k] = read_theirs(j, record, record->step, phase);
        if (u->state[k] == NULL && !u->begins)
            return false;
    }
    return true;
}

/* What is needed if their states after it are known already. */
static bool
states_suffice(const judging_t *j, const update_t *u)
{
    const fsdp_trace_about_t *s = settings(j);
    if (s->optimizer == FSDP_TRACE_ADAMW)
        return u->after[0] != NULL && u->after[1] != NULL;
    return u->after[0] != NULL;
}

static bool
read_gradient(judging_t *j, const record_t *record, update_t *u)
{
    u->coefficient = 1;
    u->grad = read_theirs(j, record, record->step, FSDP_TRACE_CLIPPED_GRAD);
    if (u->grad != NULL)
        return true;
    u->grad = read_theirs(j, record, record->step, FSDP_TRACE_GRAD);
    return u->grad != NULL &&
           verdict_clip_coefficient(j, record->step, record->dtype,
                                    &u->coefficient, &u->coefficient_error);
}

/* PyTorch and this library take 1 - beta in double. */
static bool
is_careless(const judging_t *j)
{
    const char *producer = j->their_about->producer;
    return producer == NULL || (strncmp(producer, "PyTorch", 7) != 0 &&
                                strncmp(producer, "libfsdp", 7) != 0);
}

static bool
update_read(judging_t *j, const record_t *record, update_what_t what,
            update_t *u)
{
    *u = (update_t){.begins = begins(j, record),
                    .steps = steps_of(j, record),
                    .lr = rate_of(j, record->step),
                    .careless = is_careless(j),
                    .round = rounding_of(record->dtype)};
    update_choose_own(settings(j), j->their_about, record->name, u);
    u->parameter =
        read_theirs(j, record, record->step - 1, FSDP_TRACE_PARAMETER);
    bool states = read_states(j, record, u);
    if (!states && (what != UPDATE_PARAMETER || !states_suffice(j, u)))
        return false;
    if (!read_gradient(j, record, u))
        return false;
    bool decays =
        settings(j)->optimizer == FSDP_TRACE_SGD && u->weight_decay != 0;
    if (u->parameter == NULL && (what == UPDATE_PARAMETER || decays))
        return false;
    return what != UPDATE_PARAMETER || !isnan(u->lr);
}

static void
update_free(update_t *u)
{
    fsdp_free((void *)u->grad);
    fsdp_free((void *)u->parameter);
    for (int k = 0; k < 2; k++) {
        fsdp_free((void *)u->state[k]);
        fsdp_free((void *)u->after[k]);
    }
}

/* ---- what comes out --------------------------------------------------------------- */

static void
fill(const judging_t *j, const update_t *u, update_what_t what, uint64_t numel,
     expected_t *expected)
{
    const fsdp_trace_about_t *s = settings(j);
    for (uint64_t i = 0; i < numel; i++) {
        running_t x = s->optimizer == FSDP_TRACE_ADAMW
                          ? update_adamw(&s->adamw, u, what, i)
                          : update_sgd(&s->sgd, u, what, i);
        expected->value[i] = x.v;
        expected->bound[i] = isnan(x.v) || isnan(x.e) ? INFINITY : 2 * x.e;
    }
}

/* state.step: one more than before. */
static bool
expect_count(judging_t *j, const record_t *record, expected_t *expected)
{
    if (record->numel != 1)
        return false;
    double steps = steps_of(j, record);
    expected_make(expected, record, "the count of the optimizer's steps");
    expected->value[0] = steps;
    return true;
}

bool
update_what_of(fsdp_trace_phase_t phase, update_what_t *what)
{
    switch (phase) {
    case FSDP_TRACE_PARAMETER:
        *what = UPDATE_PARAMETER;
        return true;
    case FSDP_TRACE_EXP_AVG:
    case FSDP_TRACE_MOMENTUM_BUFFER:
        *what = UPDATE_STATE_0;
        return true;
    case FSDP_TRACE_EXP_AVG_SQ:
        *what = UPDATE_STATE_1;
        return true;
    default:
        return false;
    }
}

bool
verdict_expect_update(judging_t *j, const record_t *record,
                      expected_t *expected)
{
    update_t u;
    update_what_t what;
    if (record->phase == FSDP_TRACE_STATE_STEP)
        return expect_count(j, record, expected);
    if (settings(j)->optimizer == FSDP_TRACE_NO_OPTIMIZER ||
        !value_is_floating(record->dtype) || record->step < 1 ||
        !update_what_of(record->phase, &what) ||
        !verdict_is_finite(j, record->step))
        return false;
    bool known = update_read(j, record, what, &u);
    if (known) {
        expected_make(expected, record,
                      what == UPDATE_PARAMETER
                          ? "the update by their own gradient and state"
                          : "their own state before, and their gradient");
        fill(j, &u, what, record->numel, expected);
    }
    update_free(&u);
    return known;
}
