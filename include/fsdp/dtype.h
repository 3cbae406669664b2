/** \file dtype.h  Floor 0, base: the element types. */
#ifndef FSDP_DTYPE_H
#define FSDP_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/** name, PyTorch's name, safetensors' name, bytes */
#define FSDP_DTYPE_LIST(X)                                                     \
    X(FSDP_FP32, "float32", "F32", 4)                                          \
    X(FSDP_FP64, "float64", "F64", 8)                                          \
    X(FSDP_BF16, "bfloat16", "BF16", 2)                                        \
    X(FSDP_FP16, "float16", "F16", 2)                                          \
    X(FSDP_INT32, "int32", "I32", 4)                                           \
    X(FSDP_INT64, "int64", "I64", 8)                                           \
    X(FSDP_UINT8, "uint8", "U8", 1)

typedef enum fsdp_dtype {
    FSDP_DTYPE_NONE, /**< PyTorch's None: "leave it as it is" */
#define FSDP_DTYPE_ENUM(name, torch, safe, bytes) name,
    FSDP_DTYPE_LIST(FSDP_DTYPE_ENUM)
#undef FSDP_DTYPE_ENUM
} fsdp_dtype_t;

/** Bytes of one element; 0 for FSDP_DTYPE_NONE. */
size_t fsdp_dtype_size(fsdp_dtype_t dtype);
/** float32, float64, bfloat16 or float16? */
bool fsdp_dtype_is_floating(fsdp_dtype_t dtype);
/** "float32" for instance; "none". */
const char *fsdp_dtype_name(fsdp_dtype_t dtype);
/** "F32" for instance. */
const char *fsdp_dtype_safetensors_name(fsdp_dtype_t dtype);
/** The reverse of either name; FSDP_DTYPE_NONE if unknown. */
fsdp_dtype_t fsdp_dtype_from_name(const char *name);

#endif
