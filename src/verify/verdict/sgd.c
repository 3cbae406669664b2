/* PyTorch: torch/optim/sgd.py, _single_tensor_sgd(). */

#include "verify/verdict/update.h"

/* The gradient with what weight decay adds. */
static running_t
gradient(const update_t *u, uint64_t i)
{
    return u->variant.decoupled ? update_gradient(u, i)
                                : update_decayed_gradient(u, i);
}

static running_t
momentum(const fsdp_sgd_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    double dampening = u->variant.dampened     ? o->momentum
                       : u->variant.undampened ? 0
                                               : o->dampening;
    running_t g = gradient(u, i);
    if (u->begins && !u->variant.dampened)
        return g;
    running_t fresh = running_mul(r, running_constant(r, 1 - dampening), g);
    if (u->begins)
        return fresh;
    running_t old =
        running_mul(r, running_constant(r, o->momentum), update_state(u, 0, i));
    return running_add(r, old, fresh);
}

/* What the parameter goes along. */
static running_t
way(const fsdp_sgd_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    if (o->momentum == 0 || u->variant.no_momentum)
        return gradient(u, i);
    running_t buffer =
        u->after[0] != NULL ? running_exact(u->after[0][i]) : momentum(o, u, i);
    if (o->nesterov == u->variant.nesterov_other)
        return buffer;
    return running_add(
        r, gradient(u, i),
        running_mul(r, running_constant(r, o->momentum), buffer));
}

running_t
update_sgd(const fsdp_sgd_options_t *o, const update_t *u, update_what_t what,
           uint64_t i)
{
    rounding_t r = u->round;
    if (what != UPDATE_PARAMETER)
        return momentum(o, u, i);
    running_t kept = u->variant.decoupled ? update_decayed_parameter(u, i)
                                          : running_exact(u->parameter[i]);
    running_t step = running_mul(r, running_constant(r, -u->lr), way(o, u, i));
    return running_add(r, kept, step);
}
