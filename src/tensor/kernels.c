#include "tensor/kernels.h"

#include "fsdp/status.h"

extern const fsdp_kernels_t fsdp_f32_kernels; /* kernels/table.c */
extern const fsdp_kernels_t fsdp_f64_kernels;

const fsdp_kernels_t *
fsdp_kernels(fsdp_dtype_t dtype)
{
    FSDP_CHECK(dtype == FSDP_FP32 || dtype == FSDP_FP64,
               "nothing is computed in %s, only in float32 and float64",
               fsdp_dtype_name(dtype));
    return dtype == FSDP_FP64 ? &fsdp_f64_kernels : &fsdp_f32_kernels;
}
