#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "nn/llama_internal.h"

static void
destroy(void *context)
{
    llama_rotary_t *rotary = context;
    for (int i = 0; i < 2; i++)
        if (rotary->table[i] != NULL)
            fsdp_tensor_destroy(&rotary->table[i]);
    fsdp_free(rotary);
}

/* Hooks that do nothing, but are freed with the module. */
llama_rotary_t *
llama_rotary_create(fsdp_module_t *owner, size_t positions, size_t head_dim,
                    double theta)
{
    llama_rotary_t *rotary = fsdp_calloc(FSDP_MEM_OTHER, sizeof *rotary);
    *rotary = (llama_rotary_t){
        .positions = positions, .head_dim = head_dim, .theta = theta};
    fsdp_module_add_hooks(
        owner,
        &(fsdp_module_hooks_t){.context = rotary, .free_context = destroy});
    return rotary;
}

const fsdp_tensor_t *
llama_rotary_table(llama_rotary_t *rotary, fsdp_dtype_t dtype)
{
    fsdp_tensor_t **table = &rotary->table[dtype == FSDP_FP64];
    if (*table == NULL)
        *table = fsdp_rotary_table(dtype, rotary->positions, rotary->head_dim,
                                   rotary->theta);
    return *table;
}
