/** \file half_bounds.h  Bounds of the operators that PyTorch's goldens lack. */
#ifndef TESTS_NN_HALF_BOUNDS_H
#define TESTS_NN_HALF_BOUNDS_H

#include "nn/operator_bounds.h"

/** Those of operator_bounds(), and of the other operators of nn_operators. */
operator_bounds_t half_bounds(const char *name);
/** As operator_bounds_begin(), which it calls; FSDP_BF16 or FSDP_FP16. */
void half_bounds_begin(fsdp_dtype_t dtype);

#endif
