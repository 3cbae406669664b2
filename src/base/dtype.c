#include "fsdp/dtype.h"

#include <string.h>

typedef struct dtype_facts {
    const char *torch, *safetensors;
    size_t bytes;
} dtype_facts_t;

static const dtype_facts_t facts[] = {[FSDP_DTYPE_NONE] = {"none", "none", 0},
#define ROW(name, torch_name, safe, size) [name] = {torch_name, safe, size},
                                      FSDP_DTYPE_LIST(ROW)
#undef ROW
};

enum { NUM_DTYPES = sizeof facts / sizeof facts[0] };

static const dtype_facts_t *
facts_of(fsdp_dtype_t dtype)
{
    return &facts[(unsigned)dtype < NUM_DTYPES ? dtype : FSDP_DTYPE_NONE];
}

size_t
fsdp_dtype_size(fsdp_dtype_t dtype)
{
    return facts_of(dtype)->bytes;
}

const char *
fsdp_dtype_name(fsdp_dtype_t dtype)
{
    return facts_of(dtype)->torch;
}

const char *
fsdp_dtype_safetensors_name(fsdp_dtype_t dtype)
{
    return facts_of(dtype)->safetensors;
}

fsdp_dtype_t
fsdp_dtype_from_name(const char *name)
{
    for (unsigned i = 0; i < NUM_DTYPES; i++)
        if (strcmp(name, facts[i].torch) == 0 ||
            strcmp(name, facts[i].safetensors) == 0)
            return (fsdp_dtype_t)i;
    return FSDP_DTYPE_NONE;
}

bool
fsdp_dtype_is_floating(fsdp_dtype_t dtype)
{
    return dtype == FSDP_FP32 || dtype == FSDP_FP64 || dtype == FSDP_BF16 ||
           dtype == FSDP_FP16;
}
