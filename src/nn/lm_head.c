#include "nn/lm_head.h"

#include "nn/ops_internal.h"

static fsdp_values_t
head_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_parameter_t *weight = self->parameter[0];
    fsdp_tensor_t *x = inputs.tensor[0];
    if (inputs.count == 1)
        return fsdp_values1(fsdp_linear(tape, x, weight, NULL));
    return fsdp_values1(fsdp_linear_cross_entropy(
        tape, x, weight, inputs.tensor[1], FSDP_IGNORE_INDEX));
}

fsdp_module_t *
fsdp_lm_head_create(fsdp_parameter_t *embedding, size_t vocab, size_t channels,
                    double std, fsdp_dtype_t dtype, uint64_t seed)
{
    fsdp_module_t *m =
        fsdp_module_create("lm_head", "LMHead", head_forward, NULL, 0);
    size_t shape[2] = {vocab, channels};
    if (embedding != NULL)
        fsdp_module_tie_parameter(m, embedding);
    else
        fsdp_module_add_parameter(
            m, fsdp_parameter_create("lm_head.weight", dtype, 2, shape,
                                     FSDP_INIT_NORMAL, std, seed));
    return m;
}

fsdp_values_t
fsdp_lm_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_module_t *head = self->child[FSDP_LM_HEAD];
    fsdp_values_t body = fsdp_module_call(self->child[FSDP_LM_BODY], tape,
                                          fsdp_values1(inputs.tensor[0]));
    fsdp_tensor_t *x = body.tensor[0];
    if (inputs.count == 1)
        return fsdp_module_call(head, tape,
                                fsdp_values1(fsdp_op_last_position(tape, x)));
    fsdp_values_t loss =
        fsdp_module_call(head, tape, fsdp_values2(x, inputs.tensor[1]));
    if (body.count > 1)
        loss.tensor[0] =
            fsdp_add(tape, loss.tensor[0],
                     fsdp_cast(tape, body.tensor[1], loss.tensor[0]->dtype));
    return loss;
}
