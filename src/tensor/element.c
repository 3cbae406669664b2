#include <math.h>
#include <stdint.h>

#include "fsdp/status.h"
#include "fsdp/tensor.h"

static const void *
element(const fsdp_tensor_t *tensor, size_t i)
{
    size_t numel = fsdp_tensor_numel(tensor);
    FSDP_CHECK(i < numel, "element %zu of a tensor with %zu", i, numel);
    FSDP_CHECK(tensor->data != NULL, "an element of a tensor without storage");
    return (const char *)tensor->data + i * fsdp_dtype_size(tensor->dtype);
}

double
fsdp_tensor_get(const fsdp_tensor_t *tensor, size_t i)
{
    const void *at = element(tensor, i);
    double value;
    switch (tensor->dtype) {
    case FSDP_INT32:
        return *(const int32_t *)at;
    case FSDP_INT64:
        return (double)*(const int64_t *)at;
    case FSDP_UINT8:
        return *(const uint8_t *)at;
    default:
        fsdp_convert(tensor->dtype, at, FSDP_FP64, &value, 1);
        return value;
    }
}

/* `value` to the nearest integer, which must be in [low, high). */
static int64_t
to_integer(double value, double low, double high, fsdp_dtype_t dtype)
{
    double rounded = rint(value);
    FSDP_CHECK(rounded >= low && rounded < high, "%g does not fit in %s", value,
               fsdp_dtype_name(dtype));
    return (int64_t)rounded;
}

void
fsdp_tensor_set(fsdp_tensor_t *tensor, size_t i, double value)
{
    void *at = (void *)element(tensor, i);
    switch (tensor->dtype) {
    case FSDP_INT32:
        *(int32_t *)at =
            (int32_t)to_integer(value, -0x1p31, 0x1p31, tensor->dtype);
        break;
    case FSDP_INT64:
        *(int64_t *)at = to_integer(value, -0x1p63, 0x1p63, tensor->dtype);
        break;
    case FSDP_UINT8:
        *(uint8_t *)at = (uint8_t)to_integer(value, 0, 256, tensor->dtype);
        break;
    default:
        fsdp_convert(FSDP_FP64, &value, tensor->dtype, at, 1);
    }
}
