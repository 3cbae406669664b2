/** \file half_optimizers.h  Floor 1, tensor: SGD and AdamW of 16-bit parameters.
 *
 *  PyTorch: torch/optim/sgd.py, adam.py on bfloat16 and float16 tensors.
 *
 *  Parameters, gradients and states are of `dtype`, FSDP_BF16 or FSDP_FP16.
 *  Each tensor operation of the single-tensor path computes in float32 and
 *  rounds once; a scalar is a float32, but the alpha of add_() and what add_()
 *  adds are of the tensors' type.  So it is in PyTorch's vector loops; the last
 *  elements of its tensors, fewer than a vector, round products apart, which no
 *  sharding could repeat.
 */
#ifndef FSDP_TENSOR_HALF_OPTIMIZERS_H
#define FSDP_TENSOR_HALF_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>

#include "fsdp/dtype.h"

/** Arguments as those of fsdp_kernels_t's sgd and adamw. */
void fsdp_half_sgd(fsdp_dtype_t dtype, void *param, const void *grad,
                   void *buffer, size_t n, double lr, double momentum,
                   double dampening, double weight_decay, bool nesterov,
                   bool first);
void fsdp_half_adamw(fsdp_dtype_t dtype, void *param, const void *grad,
                     void *exp_avg, void *exp_avg_sq, size_t n, double lr,
                     double beta1, double beta2, double eps,
                     double weight_decay, long step);

#endif
