/* This rank's part of a parameter, for those who only want that. */
#include "fsdp/local.h"

#include <string.h>

#include "fsdp/memory.h"

static fsdp_local_t
whole(fsdp_parameter_t *parameter)
{
    fsdp_parameter_data(parameter); /* made if it is new */
    size_t numel = fsdp_parameter_numel(parameter);
    return (fsdp_local_t){
        .data = parameter->data,
        .grad = parameter->grad != NULL ? parameter->grad->data : NULL,
        .numel = numel,
        .padded_numel = numel,
        .layout = fsdp_layout_whole(parameter),
    };
}

fsdp_local_t
fsdp_parameter_local(fsdp_parameter_t *parameter)
{
    return parameter->managed != NULL
               ? parameter->managed->manager->local(parameter)
               : whole(parameter);
}

void
fsdp_parameter_local_zero_grad(fsdp_parameter_t *parameter)
{
    fsdp_parameter_zero_grad(parameter);
    if (parameter->managed != NULL)
        parameter->managed->manager->zero_grad(parameter);
}

const char *
fsdp_parameter_unit(const fsdp_parameter_t *parameter)
{
    return parameter->managed != NULL
               ? parameter->managed->manager->unit(parameter)
               : NULL;
}

/* ---- all of it ---------------------------------------------------------- */

/* This rank's elements in a buffer that is as long on every rank; NULL if
 * `local` is one. */
static void *
equal_length(const fsdp_local_t *mine, const void *local, size_t size)
{
    size_t bytes = fsdp_layout_max_numel(&mine->layout) * size;
    if (mine->padded_numel * size >= bytes)
        return NULL;
    char *copy = fsdp_calloc(FSDP_MEM_COMM, bytes);
    if (mine->numel > 0)
        memcpy(copy, local, mine->numel * size);
    return copy;
}

void
fsdp_parameter_gather(fsdp_parameter_t *parameter, const void *local,
                      fsdp_comm_t *comm, int root, void *out)
{
    fsdp_local_t mine = fsdp_parameter_local(parameter);
    size_t size = fsdp_dtype_size(parameter->dtype);
    bool is_root = fsdp_comm_rank(comm) == root;
    size_t world = is_root ? (size_t)fsdp_comm_size(comm) : 0;
    size_t bytes = fsdp_layout_max_numel(&mine.layout) * size;
    if (local == NULL)
        local = mine.data;
    if (mine.comm == NULL && mine.layout.num_parts == 1) {
        if (is_root) /* everybody has all of it */
            memcpy(out, local, mine.numel * size);
        return;
    }
    fsdp_layout_t *layouts = fsdp_alloc(FSDP_MEM_COMM, world * sizeof *layouts);
    char *all = fsdp_alloc(FSDP_MEM_COMM, world * bytes);
    void *row = equal_length(&mine, local, size);
    fsdp_gather(comm, parameter->name, FSDP_UINT8, &mine.layout, layouts,
                sizeof *layouts, root);
    fsdp_gather(comm, parameter->name, FSDP_UINT8, row != NULL ? row : local,
                all, bytes, root);
    for (size_t r = 0; r < world; r++)
        if (layouts[r].primary)
            fsdp_layout_place(&layouts[r], size, all + r * bytes, out);
    fsdp_free(row);
    fsdp_free(all);
    fsdp_free(layouts);
}
