#include "fsdp/optim.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Warm-up: lr step / warmup_steps, so that the last step of it has the full
 * rate.  Then half a period of a cosine, whose last step has min_lr; without a
 * total the full rate stays. */
double
fsdp_schedule_lr(const fsdp_schedule_t *schedule, long step)
{
    const fsdp_schedule_t *s = schedule;
    if (step < s->warmup_steps)
        return s->lr * (double)step / (double)s->warmup_steps;
    if (s->total_steps == 0 || step == s->warmup_steps)
        return s->lr;
    if (step >= s->total_steps)
        return s->min_lr;
    double way = (double)(step - s->warmup_steps) /
                 (double)(s->total_steps - s->warmup_steps);
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + cos(pi * way));
}
