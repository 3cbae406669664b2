#include "optim/gradients.h"

#include <stdint.h>

#include "fsdp/status.h"
#include "nn/ops_internal.h"

/* All exponent bits set: infinity or NaN. */
#define ALL_FINITE(type, mask)                                                 \
    do {                                                                       \
        const type *bits = grad;                                               \
        for (size_t i = 0; i < n; i++)                                         \
            special |= (bits[i] & (mask)) == (mask);                           \
    } while (0)

bool
fsdp_grad_is_finite(fsdp_dtype_t dtype, const void *grad, size_t n)
{
    int special = 0;
    if (dtype == FSDP_FP32)
        ALL_FINITE(uint32_t, 0x7f800000);
    else if (dtype == FSDP_FP64)
        ALL_FINITE(uint64_t, 0x7ff0000000000000);
    else if (dtype == FSDP_BF16)
        ALL_FINITE(uint16_t, 0x7f80);
    else if (dtype == FSDP_FP16)
        ALL_FINITE(uint16_t, 0x7c00);
    else
        FSDP_CHECK(n == 0, "a gradient of %s", fsdp_dtype_name(dtype));
    return !special;
}

void
fsdp_grad_multiply(fsdp_dtype_t dtype, void *grad, double factor, size_t n)
{
    fsdp_wide_t w = fsdp_wide(dtype);
    const void *in = fsdp_wide_in(&w, grad, n);
    w.k->scale(in, factor, fsdp_wide_out(&w, grad, n), n);
    fsdp_wide_end(&w);
}
