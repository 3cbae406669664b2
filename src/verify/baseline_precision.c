/* Mixed precision in the baseline: parameters stay in their own type, copies in
 * another one are lent to the operators, and tensors are cast at the doors of
 * the units.  PyTorch: MixedPrecisionPolicy. */

#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- at the doors of units ------------------------------------------------ */

static fsdp_values_t
cast_floating(fsdp_tape_t *tape, fsdp_values_t values, fsdp_dtype_t dtype)
{
    for (int i = 0; dtype != FSDP_DTYPE_NONE && i < values.count; i++)
        if (value_is_floating(values.tensor[i]->dtype))
            values.tensor[i] = fsdp_cast(tape, values.tensor[i], dtype);
    return values;
}

static fsdp_values_t
cast_inputs(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    (void)module;
    const unit_t *unit = context;
    const fsdp_mixed_precision_policy_t *policy =
        &unit->verifier->options.mp_policy;
    bool casts = unit->is_root || !unit->verifier->options.fsdp1;
    return casts && policy->cast_forward_inputs
               ? cast_floating(tape, inputs, policy->param_dtype)
               : inputs;
}

static fsdp_values_t
cast_outputs(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    (void)module;
    const unit_t *unit = context;
    fsdp_dtype_t dtype = unit->verifier->options.mp_policy.output_dtype;
    return unit->is_root ? cast_floating(tape, outputs, dtype) : outputs;
}

void
baseline_hook_casts(unit_t *unit)
{
    fsdp_module_hooks_t hooks = {
        .context = unit,
        .pre_forward = cast_inputs,
        .post_forward = cast_outputs,
    };
    fsdp_module_add_hooks(unit->base, &hooks);
}

/* ---- parameters ----------------------------------------------------------- */

void
baseline_choose_types(const fsdp_verifier_t *verifier, verified_t *param)
{
    const fsdp_mixed_precision_policy_t *policy = &verifier->options.mp_policy;
    param->lent = param->dtype;
    if (policy->param_dtype != FSDP_DTYPE_NONE &&
        value_is_floating(param->dtype))
        param->lent = policy->param_dtype;
    param->summed = policy->reduce_dtype != FSDP_DTYPE_NONE
                        ? policy->reduce_dtype
                        : param->lent;
    if (param->lent != param->dtype)
        param->low = fsdp_alloc(FSDP_MEM_BASELINE,
                                param->numel * fsdp_dtype_size(param->lent));
}

/* Exchanges the parameter's own values for the copy, or back. */
static void
exchange(verified_t *param, fsdp_dtype_t dtype)
{
    if (param->low == NULL || param->base == NULL ||
        param->base->data_dtype == dtype)
        return;
    void *given = param->low;
    param->low = param->base->data;
    param->base->data = given;
    param->base->data_dtype = dtype;
}

void
baseline_lend(verified_t *param)
{
    exchange(param, param->lent);
}

void
baseline_take_back(verified_t *param)
{
    exchange(param, param->dtype);
}

void
baseline_refresh(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        for (size_t i = 0; param->low != NULL && i < param->numel; i++)
            value_put(param->lent, param->low, i,
                      value_get(param->dtype, param->base->data, i));
    }
}
