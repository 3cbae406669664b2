#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "nn/llama_internal.h"

/* A table, and those that were too short. */
struct llama_table {
    fsdp_tensor_t *table;
    struct llama_table *shorter;
};

static void
destroy(void *context)
{
    llama_rotary_t *rotary = context;
    for (int i = 0; i < 2; i++)
        while (rotary->longest[i] != NULL) {
            struct llama_table *t = rotary->longest[i];
            rotary->longest[i] = t->shorter;
            fsdp_tensor_destroy(&t->table);
            fsdp_free(t);
        }
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

/* The shorter tables stay, as a backward that is still to come may read them;
 * since each is at least twice as long as the one before, the last perhaps
 * excepted, all of them together are less than three times the longest. */
static struct llama_table *
longer(const llama_rotary_t *rotary, fsdp_dtype_t dtype, size_t positions,
       struct llama_table *old)
{
    struct llama_table *t = fsdp_alloc(FSDP_MEM_OTHER, sizeof *t);
    size_t twice = old != NULL ? 2 * old->table->shape[0] : 0;
    size_t rows = twice > positions ? twice : positions;
    rows = rows < rotary->positions ? rows : rotary->positions;
    t->table = fsdp_rotary_table(dtype, rows, rotary->head_dim, rotary->theta);
    t->shorter = old;
    return t;
}

const fsdp_tensor_t *
llama_rotary_table(llama_rotary_t *rotary, fsdp_dtype_t dtype, size_t positions)
{
    struct llama_table **longest = &rotary->longest[dtype == FSDP_FP64];
    if (*longest == NULL || (*longest)->table->shape[0] < positions)
        *longest = longer(rotary, dtype, positions, *longest);
    return (*longest)->table;
}
