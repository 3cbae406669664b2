#include "fsdp/fsdp_init.h"

#include "fsdp/status.h"

/* What has been found so far. */
typedef struct managed {
    fsdp_parameter_t **out;
    int max, count;
} managed_t;

static void
add_once(managed_t *managed, fsdp_parameter_t *parameter)
{
    for (int i = 0; i < managed->count; i++)
        if (managed->out[i] == parameter)
            return;
    FSDP_CHECK(managed->count < managed->max, "more than %d parameters",
               managed->max);
    managed->out[managed->count++] = parameter;
}

/* Children first, as PyTorch's walk does. */
static void
visit(fsdp_module_t *module, managed_t *managed)
{
    for (int i = 0; i < module->num_children; i++)
        if (module->child[i]->fsdp_state == NULL)
            visit(module->child[i], managed);
    for (int i = 0; i < module->num_parameters; i++)
        add_once(managed, module->parameter[i]);
}

int
fsdp_get_managed_parameters(fsdp_module_t *const *modules, int num_modules,
                            fsdp_parameter_t **out, int max)
{
    managed_t managed = {out, max, 0};
    for (int i = 0; i < num_modules; i++)
        visit(modules[i], &managed);
    return managed.count;
}
