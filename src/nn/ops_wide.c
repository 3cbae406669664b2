#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

static bool
is_16_bit(fsdp_dtype_t dtype)
{
    return dtype == FSDP_BF16 || dtype == FSDP_FP16;
}

fsdp_dtype_t
fsdp_op_compute_dtype(fsdp_dtype_t dtype)
{
    return is_16_bit(dtype) ? FSDP_FP32 : dtype;
}

fsdp_wide_t
fsdp_wide(fsdp_dtype_t dtype)
{
    fsdp_dtype_t compute = fsdp_op_compute_dtype(dtype);
    return (fsdp_wide_t){
        .dtype = dtype, .compute = compute, .k = fsdp_kernels(compute)};
}

/* Room for numel elements; `rounded` is where they go in the end, or NULL. */
static void *
add_copy(fsdp_wide_t *wide, void *rounded, size_t numel)
{
    FSDP_CHECK(wide->count < FSDP_WIDE_MAX,
               "an operator with more than %d "
               "widened arrays",
               FSDP_WIDE_MAX);
    size_t bytes = numel * fsdp_dtype_size(wide->compute);
    void *copy = fsdp_alloc(FSDP_MEM_ACTIVATION, bytes);
    wide->copy[wide->count++] = (fsdp_wide_copy_t){copy, rounded, numel};
    return copy;
}

const void *
fsdp_wide_in(fsdp_wide_t *wide, const void *data, size_t numel)
{
    if (data == NULL || wide->compute == wide->dtype)
        return data;
    void *copy = add_copy(wide, NULL, numel);
    fsdp_convert(wide->dtype, data, wide->compute, copy, numel);
    return copy;
}

void *
fsdp_wide_out(fsdp_wide_t *wide, void *data, size_t numel)
{
    if (data == NULL || wide->compute == wide->dtype)
        return data;
    return add_copy(wide, data, numel);
}

void
fsdp_wide_round(const fsdp_wide_t *wide, void *values, size_t numel)
{
    if (wide->compute == wide->dtype)
        return;
    void *narrow =
        fsdp_alloc(FSDP_MEM_ACTIVATION, numel * fsdp_dtype_size(wide->dtype));
    fsdp_convert(wide->compute, values, wide->dtype, narrow, numel);
    fsdp_convert(wide->dtype, narrow, wide->compute, values, numel);
    fsdp_free(narrow);
}

void
fsdp_wide_end(fsdp_wide_t *wide)
{
    while (wide->count > 0) {
        fsdp_wide_copy_t *c = &wide->copy[--wide->count];
        if (c->rounded != NULL)
            fsdp_convert(wide->compute, c->values, wide->dtype, c->rounded,
                         c->numel);
        fsdp_free(c->values);
    }
}
