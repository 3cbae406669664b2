/** \file layers.h  Floor 2, nn: modules made of one operator.
 *
 *  `name` is the full name of the module; parameters are NAME.weight and
 *  NAME.bias.  Initial values are PyTorch's: see each.
 */
#ifndef FSDP_LAYERS_H
#define FSDP_LAYERS_H

#include "fsdp/module.h"

/** weight [out, in] and bias [out], both uniform in +-1/sqrt(in).  nn.Linear. */
fsdp_module_t *fsdp_linear_create(const char *name, size_t in_features,
                                  size_t out_features, bool bias,
                                  fsdp_dtype_t dtype, uint64_t seed);
/** weight [in, out] normal(std), bias [out] zero.  Hugging Face's Conv1D. */
fsdp_module_t *fsdp_conv1d_create(const char *name, size_t in_features,
                                  size_t out_features, double std,
                                  fsdp_dtype_t dtype, uint64_t seed);
/** weight [num, channels] normal(std).  nn.Embedding (whose std is 1). */
fsdp_module_t *fsdp_embedding_create(const char *name, size_t num,
                                     size_t channels, double std,
                                     fsdp_dtype_t dtype, uint64_t seed);
/** The rows 0..T-1 of weight [num, channels] for an input [B, T]. */
fsdp_module_t *fsdp_position_embedding_create(const char *name, size_t num,
                                              size_t channels, double std,
                                              fsdp_dtype_t dtype,
                                              uint64_t seed);
/** weight ones, bias zeros, [channels].  nn.LayerNorm. */
fsdp_module_t *fsdp_layer_norm_create(const char *name, size_t channels,
                                      double eps, fsdp_dtype_t dtype);
/** weight ones, [channels].  nn.RMSNorm; Hugging Face's LlamaRMSNorm. */
fsdp_module_t *fsdp_rms_norm_create(const char *name, size_t channels,
                                    double eps, fsdp_dtype_t dtype);

#endif
