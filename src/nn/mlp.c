#include "fsdp/mlp.h"

#include "fsdp/layers.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

static fsdp_tensor_t *
activate(fsdp_mlp_activation_t activation, fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    switch (activation) {
    case FSDP_MLP_GELU:
        return fsdp_gelu_erf(tape, x);
    case FSDP_MLP_GELU_TANH:
        return fsdp_gelu_tanh(tape, x);
    default:
        return fsdp_relu(tape, x);
    }
}

static fsdp_values_t
mlp_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    for (int i = 0; i < self->num_children; i++) {
        if (i > 0)
            x = activate(fsdp_mlp_get_activation(self), tape, x);
        x = fsdp_module_call1(self->child[i], tape, x);
    }
    return fsdp_values1(x);
}

fsdp_module_t *
fsdp_mlp_create(const fsdp_mlp_config_t *config)
{
    FSDP_CHECK(config->num_layers >= 1 &&
                   config->num_layers <= FSDP_MLP_MAX_LAYERS,
               "an MLP of %d layers; 1 to %d are possible", config->num_layers,
               FSDP_MLP_MAX_LAYERS);
    fsdp_dtype_t dtype =
        config->dtype == FSDP_DTYPE_NONE ? FSDP_FP32 : config->dtype;
    fsdp_module_t *mlp = fsdp_module_create(
        "", "MLP", mlp_forward, &config->activation, sizeof config->activation);
    for (int i = 0; i < config->num_layers; i++) {
        char *name = config->layer_name != NULL
                         ? fsdp_strdup(config->layer_name[i])
                         : fsdp_format("layers.%d", i);
        fsdp_module_add_child(mlp, fsdp_linear_create(name, config->width[i],
                                                      config->width[i + 1],
                                                      !config->no_bias, dtype,
                                                      config->seed));
        fsdp_free(name);
    }
    return mlp;
}

fsdp_module_t *
fsdp_mlp_layer(fsdp_module_t *mlp, int i)
{
    FSDP_CHECK(i >= 0 && i < mlp->num_children, "layer %d of %d", i,
               mlp->num_children);
    return mlp->child[i];
}

fsdp_mlp_activation_t
fsdp_mlp_get_activation(const fsdp_module_t *mlp)
{
    return *(const fsdp_mlp_activation_t *)mlp->config;
}

int
fsdp_mlp_num_layers(const fsdp_module_t *mlp)
{
    return mlp->num_children;
}

fsdp_tensor_t *
fsdp_mlp_loss(fsdp_tape_t *tape, fsdp_module_t *mlp, fsdp_tensor_t *x,
              fsdp_tensor_t *target)
{
    fsdp_tensor_t *logits = fsdp_module_call1(mlp, tape, x);
    return fsdp_cross_entropy(
        tape, fsdp_cast(tape, logits, fsdp_op_compute_dtype(logits->dtype)),
        target, FSDP_IGNORE_INDEX);
}
