/** \file gradients.h  Floor 4, optim: local gradients of any floating type. */
#ifndef FSDP_OPTIM_GRADIENTS_H
#define FSDP_OPTIM_GRADIENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fsdp/dtype.h"

/** No infinity, no NaN among n elements. */
bool fsdp_grad_is_finite(fsdp_dtype_t dtype, const void *grad, size_t n);
/** grad = grad * factor, which is first rounded to float32 for a 16-bit type, to
 *  the type for the others; each product is rounded once. */
void fsdp_grad_multiply(fsdp_dtype_t dtype, void *grad, double factor,
                        size_t n);

#endif
