/* PyTorch: torch/optim/sgd.py. */
#include "optim/optimizer.h"
#include "tensor/half_optimizers.h"
#include "tensor/kernels.h"

fsdp_sgd_options_t
fsdp_sgd_options_default(void)
{
    return (fsdp_sgd_options_t){.lr = 1e-3};
}

/* The first step makes the momentum buffer a copy of the gradient, without
 * dampening. */
static void
update(const fsdp_optimizer_t *optimizer, fsdp_slot_t *slot,
       const fsdp_local_t *local)
{
    const fsdp_sgd_options_t *o = &optimizer->options.sgd;
    fsdp_dtype_t dtype = slot->parameter->dtype;
    if (dtype == FSDP_BF16 || dtype == FSDP_FP16) {
        fsdp_half_sgd(dtype, local->data, local->grad, slot->state[0],
                      local->numel, optimizer->lr, o->momentum, o->dampening,
                      o->weight_decay, o->nesterov, slot->step == 1);
        return;
    }
    fsdp_kernels(dtype)->sgd(local->data, local->grad, slot->state[0],
                             local->numel, optimizer->lr, o->momentum,
                             o->dampening, o->weight_decay, o->nesterov,
                             slot->step == 1);
}

/* Written so that NaN is refused too. */
static fsdp_status_t
check(const fsdp_sgd_options_t *o)
{
    if (!(o->lr >= 0))
        return fsdp_error(FSDP_ERR_USAGE,
                          "SGD: a learning rate of %g; it must be at least 0",
                          o->lr);
    if (!(o->momentum >= 0))
        return fsdp_error(FSDP_ERR_USAGE,
                          "SGD: a momentum of %g; it must be at least 0",
                          o->momentum);
    if (!(o->weight_decay >= 0))
        return fsdp_error(FSDP_ERR_USAGE,
                          "SGD: a weight decay of %g; it must be at least 0",
                          o->weight_decay);
    if (o->nesterov && !(o->momentum > 0 && o->dampening == 0))
        return fsdp_error(FSDP_ERR_USAGE,
                          "SGD: Nesterov's momentum needs a momentum above 0 "
                          "and a dampening of 0, not %g and %g",
                          o->momentum, o->dampening);
    return FSDP_OK;
}

fsdp_optimizer_t *
fsdp_sgd_create(fsdp_module_t *model, const fsdp_sgd_options_t *options)
{
    static const fsdp_optimizer_class_t sgd = {update, {"momentum_buffer"}};
    if (check(options) != FSDP_OK)
        return NULL;
    int num_states = options->momentum != 0 ? 1 : 0;
    fsdp_optimizer_t *optimizer =
        fsdp_optimizer_create(&sgd, num_states, model, options->lr);
    optimizer->options.sgd = *options;
    return optimizer;
}
