/** \file real.h  Floor 1, tensor: what a kernel's source is written with.
 *
 *  Every file of kernels/ is compiled twice, for float and, with
 *  FSDP_REAL_IS_DOUBLE defined, for double.  In it
 *      real_t        is the element type,
 *      K(name)       is the kernel's symbol, fsdp_f32_name or fsdp_f64_name,
 *      REAL(1.5)     is a constant of the type,
 *      real_exp(x)   and the others below are base/vmath.h's for the type.
 *
 *  A kernel is a loop over blocks (threads/parallel.h) around a static function
 *  marked FSDP_CLONES (clones.h) that does one block.  Sums run in lanes.h's
 *  order, not in the vector unit's.
 */
#ifndef FSDP_TENSOR_KERNELS_REAL_H
#define FSDP_TENSOR_KERNELS_REAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/vmath.h"
#include "fsdp/dtype.h"
#include "tensor/clones.h"

#ifdef FSDP_REAL_IS_DOUBLE
typedef double real_t;
#define K(name) fsdp_f64_##name
#define REAL(constant) constant
#define REAL_DTYPE FSDP_FP64
#define real_exp fsdp_exp
#define real_tanh fsdp_tanh
#define real_log fsdp_log
#define real_rsqrt fsdp_rsqrt
#define real_erf fsdp_erf
#define real_sqrt __builtin_sqrt
#define real_abs __builtin_fabs
#define REAL_INFINITY __builtin_inf()
#else
typedef float real_t;
#define K(name) fsdp_f32_##name
#define REAL(constant) constant##f
#define REAL_DTYPE FSDP_FP32
#define real_exp fsdp_expf
#define real_tanh fsdp_tanhf
#define real_log fsdp_logf
#define real_rsqrt fsdp_rsqrtf
#define real_erf fsdp_erff
#define real_sqrt __builtin_sqrtf
#define real_abs __builtin_fabsf
#define REAL_INFINITY __builtin_inff()
#endif

#endif
