#include "fsdp/layers.h"

#include <math.h>

#include "fsdp/ops.h"

static fsdp_parameter_t *
add_parameter(fsdp_module_t *module, const char *what, fsdp_dtype_t dtype,
              int ndim, const size_t *shape, fsdp_init_kind_t init,
              double scale, uint64_t seed)
{
    char *name = module->name[0] == '\0'
                     ? fsdp_strdup(what)
                     : fsdp_format("%s.%s", module->name, what);
    fsdp_parameter_t *parameter =
        fsdp_parameter_create(name, dtype, ndim, shape, init, scale, seed);
    fsdp_free(name);
    return fsdp_module_add_parameter(module, parameter);
}

/* ---- Linear ------------------------------------------------------------- */

static fsdp_values_t
linear_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(
        fsdp_linear(tape, inputs.tensor[0], self->parameter[0],
                    self->num_parameters > 1 ? self->parameter[1] : NULL));
}

fsdp_module_t *
fsdp_linear_create(const char *name, size_t in_features, size_t out_features,
                   bool bias, fsdp_dtype_t dtype, uint64_t seed)
{
    fsdp_module_t *m =
        fsdp_module_create(name, "Linear", linear_forward, NULL, 0);
    double bound = in_features > 0 ? 1 / sqrt((double)in_features) : 0;
    add_parameter(m, "weight", dtype, 2, (size_t[]){out_features, in_features},
                  FSDP_INIT_UNIFORM, bound, seed);
    if (bias)
        add_parameter(m, "bias", dtype, 1, &out_features, FSDP_INIT_UNIFORM,
                      bound, seed);
    return m;
}

/* ---- Conv1D ------------------------------------------------------------- */

static fsdp_values_t
conv1d_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(fsdp_conv1d(tape, inputs.tensor[0], self->parameter[0],
                                    self->parameter[1]));
}

fsdp_module_t *
fsdp_conv1d_create(const char *name, size_t in_features, size_t out_features,
                   double std, fsdp_dtype_t dtype, uint64_t seed)
{
    fsdp_module_t *m =
        fsdp_module_create(name, "Conv1D", conv1d_forward, NULL, 0);
    add_parameter(m, "weight", dtype, 2, (size_t[]){in_features, out_features},
                  FSDP_INIT_NORMAL, std, seed);
    add_parameter(m, "bias", dtype, 1, &out_features, FSDP_INIT_ZEROS, 0, seed);
    return m;
}

/* ---- Embedding ---------------------------------------------------------- */

static fsdp_values_t
embedding_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(
        fsdp_embedding(tape, inputs.tensor[0], self->parameter[0]));
}

static fsdp_values_t
position_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(
        fsdp_position_embedding(tape, inputs.tensor[0], self->parameter[0]));
}

static fsdp_module_t *
create_table(fsdp_module_t *m, size_t num, size_t channels, double std,
             fsdp_dtype_t dtype, uint64_t seed)
{
    add_parameter(m, "weight", dtype, 2, (size_t[]){num, channels},
                  FSDP_INIT_NORMAL, std, seed);
    return m;
}

fsdp_module_t *
fsdp_embedding_create(const char *name, size_t num, size_t channels, double std,
                      fsdp_dtype_t dtype, uint64_t seed)
{
    return create_table(
        fsdp_module_create(name, "Embedding", embedding_forward, NULL, 0), num,
        channels, std, dtype, seed);
}

fsdp_module_t *
fsdp_position_embedding_create(const char *name, size_t num, size_t channels,
                               double std, fsdp_dtype_t dtype, uint64_t seed)
{
    return create_table(fsdp_module_create(name, "PositionEmbedding",
                                           position_forward, NULL, 0),
                        num, channels, std, dtype, seed);
}

/* ---- LayerNorm ---------------------------------------------------------- */

static fsdp_values_t
layer_norm_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const double *eps = self->config;
    return fsdp_values1(fsdp_layer_norm(
        tape, inputs.tensor[0], self->parameter[0], self->parameter[1], *eps));
}

fsdp_module_t *
fsdp_layer_norm_create(const char *name, size_t channels, double eps,
                       fsdp_dtype_t dtype)
{
    fsdp_module_t *m = fsdp_module_create(name, "LayerNorm", layer_norm_forward,
                                          &eps, sizeof eps);
    add_parameter(m, "weight", dtype, 1, &channels, FSDP_INIT_ONES, 0, 0);
    add_parameter(m, "bias", dtype, 1, &channels, FSDP_INIT_ZEROS, 0, 0);
    return m;
}

/* ---- RMSNorm ------------------------------------------------------------ */

static fsdp_values_t
rms_norm_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const double *eps = self->config;
    return fsdp_values1(
        fsdp_rms_norm(tape, inputs.tensor[0], self->parameter[0], *eps));
}

fsdp_module_t *
fsdp_rms_norm_create(const char *name, size_t channels, double eps,
                     fsdp_dtype_t dtype)
{
    fsdp_module_t *m =
        fsdp_module_create(name, "RMSNorm", rms_norm_forward, &eps, sizeof eps);
    add_parameter(m, "weight", dtype, 1, &channels, FSDP_INIT_ONES, 0, 0);
    return m;
}
