/* PyTorch: torch/optim/adamw.py. */
#include "optim/optimizer.h"
#include "tensor/half_optimizers.h"
#include "tensor/kernels.h"

fsdp_adamw_options_t
fsdp_adamw_options_default(void)
{
    return (fsdp_adamw_options_t){.lr = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01};
}

static void
update(const fsdp_optimizer_t *optimizer, fsdp_slot_t *slot,
       const fsdp_local_t *local)
{
    const fsdp_adamw_options_t *o = &optimizer->options.adamw;
    fsdp_dtype_t dtype = slot->parameter->dtype;
    if (dtype == FSDP_BF16 || dtype == FSDP_FP16) {
        fsdp_half_adamw(dtype, local->data, local->grad, slot->state[0],
                        slot->state[1], local->numel, optimizer->lr, o->beta1,
                        o->beta2, o->eps, o->weight_decay, slot->step);
        return;
    }
    fsdp_kernels(dtype)->adamw(
        local->data, local->grad, slot->state[0], slot->state[1], local->numel,
        optimizer->lr, o->beta1, o->beta2, o->eps, o->weight_decay, slot->step);
}

/* Written so that NaN is refused too. */
static fsdp_status_t
check_not_negative(const char *what, double value)
{
    if (value >= 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE, "AdamW: %s of %g; it must be at least 0",
                      what, value);
}

static fsdp_status_t
check_beta(const char *which, double beta)
{
    if (beta >= 0 && beta < 1)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "AdamW: %s is %g; it must be at least 0 and below 1",
                      which, beta);
}

static bool
good(const fsdp_adamw_options_t *o)
{
    return check_not_negative("a learning rate", o->lr) == FSDP_OK &&
           check_not_negative("an eps", o->eps) == FSDP_OK &&
           check_not_negative("a weight decay", o->weight_decay) == FSDP_OK &&
           check_beta("beta1", o->beta1) == FSDP_OK &&
           check_beta("beta2", o->beta2) == FSDP_OK;
}

fsdp_optimizer_t *
fsdp_adamw_create(fsdp_module_t *model, const fsdp_adamw_options_t *options)
{
    static const fsdp_optimizer_class_t adamw = {update,
                                                 {"exp_avg", "exp_avg_sq"}};
    if (!good(options))
        return NULL;
    fsdp_optimizer_t *optimizer =
        fsdp_optimizer_create(&adamw, 2, model, options->lr);
    optimizer->options.adamw = *options;
    return optimizer;
}
