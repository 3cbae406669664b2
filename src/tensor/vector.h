/** \file vector.h  Floor 1, tensor: sums and quotients in any floating type.
 *
 *  What is done with gradients between a backward and an optimizer.  16-bit
 *  types compute in float32 and round once per operation, as PyTorch's CPU
 *  kernels do.  Elementwise, so no bit depends on the number of threads.
 */
#ifndef FSDP_TENSOR_VECTOR_H
#define FSDP_TENSOR_VECTOR_H

#include <stddef.h>

#include "fsdp/dtype.h"

/** y = y + x */
void fsdp_vector_add(fsdp_dtype_t dtype, void *y, const void *x, size_t n);
/** x = x / divisor; the divisor is rounded to float32, or float64 for that. */
void fsdp_vector_divide(fsdp_dtype_t dtype, void *x, double divisor, size_t n);
/** x = x * factor; rounded likewise. */
void fsdp_vector_multiply(fsdp_dtype_t dtype, void *x, double factor, size_t n);

#endif
