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

static double
beta1(const fsdp_adamw_options_t *o, const update_t *u)
{
    return u->variant.betas_swapped ? o->beta2 : o->beta1;
}

static double
beta2(const fsdp_adamw_options_t *o, const update_t *u)
{
    return u->variant.betas_swapped ? o->beta1 : o->beta2;
}

static running_t
gradient(const update_t *u, uint64_t i)
{
    return u->variant.coupled ? update_decayed_gradient(u, i)
                              : update_gradient(u, i);
}

static running_t
exp_avg(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    double beta = beta1(o, u);
    running_t old =
        running_mul(r, running_constant(r, beta), update_state(u, 0, i));
    running_t g = gradient(u, i);
    return running_add(r, old, running_mul(r, one_minus(u, beta), g));
}

static running_t
exp_avg_sq(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    double beta = beta2(o, u);
    running_t old =
        running_mul(r, running_constant(r, beta), update_state(u, 1, i));
    running_t g = gradient(u, i);
    running_t square = running_mul(r, running_mul(r, one_minus(u, beta), g), g);
    return running_add(r, old, square);
}

/* 1 - beta^steps; in the type, its power is rounded first. */
static running_t
correction(const update_t *u, double beta, bool none)
{
    running_t c =
        running_constant(u->round, none ? 1 : 1 - pow(beta, u->steps));
    if (u->careless)
        c.e += (2 + u->steps) * u->round.u;
    return c;
}

/* sqrt(v / correction2) + eps */
static running_t
denominator(const fsdp_adamw_options_t *o, const update_t *u, running_t v)
{
    rounding_t r = u->round;
    running_t eps = running_constant(r, o->eps);
    running_t c = correction(u, beta2(o, u), u->variant.no_correction2);
    if (u->variant.eps_inside)
        return running_sqrt(r, running_add(r, running_div(r, v, c), eps));
    running_t root = running_sqrt(r, c);
    if (u->variant.eps_before_correction)
        return running_div(r, running_add(r, running_sqrt(r, v), eps), root);
    return running_add(r, running_div(r, running_sqrt(r, v), root), eps);
}

/* x (1 - lr decay) - lr m / correction1 / denominator */
static running_t
parameter(const fsdp_adamw_options_t *o, const update_t *u, uint64_t i)
{
    rounding_t r = u->round;
    running_t m =
        u->after[0] != NULL ? running_exact(u->after[0][i]) : exp_avg(o, u, i);
    running_t v = u->after[1] != NULL ? running_exact(u->after[1][i])
                                      : exp_avg_sq(o, u, i);
    running_t size =
        running_div(r, running_constant(r, -u->lr),
                    correction(u, beta1(o, u), u->variant.no_correction1));
    running_t way =
        running_div(r, running_mul(r, size, m), denominator(o, u, v));
    running_t kept = u->variant.coupled ? running_exact(u->parameter[i])
                                        : update_decayed_parameter(u, i);
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
