/* PyTorch: torch/optim/sgd.py, _single_tensor_sgd(). */

#include "verify/verdict/update.h"

/* The gradient with what weight decay adds. */
static running_t
decayed(const update_t *u, uint64_t i)
{
    running_t g = update_gradient(u, i);
    if (u->weight_decay == 0)
        return g;
    running_t x = running_exact(u->parameter[i]);
    return running_add(
        u->round, g,
        running_mul(u->round, running_constant(u->round, u->weight_decay), x));
}

static running_t
momentum(const fsdp_sgd_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    running_t g = decayed(u, i);
    if (u->begins)
        return g;
    running_t old =
        running_mul(r, running_constant(r, o->momentum), update_state(u, 0, i));
    running_t rest = running_constant(r, 1 - o->dampening);
    return running_add(r, old, running_mul(r, rest, g));
}

running_t
update_sgd(const fsdp_sgd_options_t *o, const update_t *u, update_what_t what,
           uint64_t i)
{
    rounding_t r = u->round;
    running_t buffer, step;
    if (what != UPDATE_PARAMETER)
        return momentum(o, u, i);
    if (o->momentum == 0) {
        step = decayed(u, i);
    } else {
        buffer = u->after[0] != NULL ? running_exact(u->after[0][i])
                                     : momentum(o, u, i);
        step =
            !o->nesterov
                ? buffer
                : running_add(
                      r, decayed(u, i),
                      running_mul(r, running_constant(r, o->momentum), buffer));
    }
    running_t way = running_mul(r, running_constant(r, -u->lr), step);
    return running_add(r, running_exact(u->parameter[i]), way);
}
