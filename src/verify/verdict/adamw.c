/* PyTorch: torch/optim/adam.py, _single_tensor_adam(), with decoupled decay. */

#include "verify/verdict/update.h"

/* 1 - beta, taken in double and rounded, or in the type. */
static running_t
one_minus(const update_t *u, double beta)
{
    running_t c = running_constant(u->round, 1 - beta);
    if (u->careless)
        c.e += 2 * u->round.u;
    return c;
}

static running_t
exp_avg(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    running_t old =
        running_mul(r, running_constant(r, o->beta1), update_state(u, 0, i));
    running_t g = update_gradient(u, i);
    return running_add(r, old, running_mul(r, one_minus(u, o->beta1), g));
}

static running_t
exp_avg_sq(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    running_t old =
        running_mul(r, running_constant(r, o->beta2), update_state(u, 1, i));
    running_t g = update_gradient(u, i);
    running_t square =
        running_mul(r, running_mul(r, one_minus(u, o->beta2), g), g);
    return running_add(r, old, square);
}

/* 1 - beta^steps; in the type, its power is rounded first. */
static running_t
correction(const update_t *u, double beta)
{
    running_t c = running_constant(u->round, 1 - pow(beta, u->steps));
    if (u->careless)
        c.e += (2 + u->steps) * u->round.u;
    return c;
}

/* x (1 - lr decay) - lr m / correction1 / (sqrt(v / correction2) + eps) */
static running_t
parameter(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    running_t m =
        u->after[0] != NULL ? running_exact(u->after[0][i]) : exp_avg(o, u, i);
    running_t v = u->after[1] != NULL ? running_exact(u->after[1][i])
                                      : exp_avg_sq(o, u, i);
    running_t root = running_sqrt(r, correction(u, o->beta2));
    running_t denom = running_div(r, running_sqrt(r, v), root);
    denom = running_add(r, denom, running_constant(r, o->eps));
    running_t size =
        running_div(r, running_constant(r, -u->lr), correction(u, o->beta1));
    running_t way = running_div(r, running_mul(r, size, m), denom);
    running_t kept =
        running_mul(r, running_exact(u->parameter[i]),
                    running_constant(r, 1 - u->lr * u->weight_decay));
    return running_add(r, kept, way);
}

running_t
update_adamw(const fsdp_adamw_options_t *o, const update_t *u,
             update_what_t what, uint64_t i)
{
    return what == UPDATE_STATE_0   ? exp_avg(o, u, i)
           : what == UPDATE_STATE_1 ? exp_avg_sq(o, u, i)
                                    : parameter(o, u, i);
}
