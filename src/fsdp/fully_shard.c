#include "fsdp/fully_shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/fsdp_init.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/fsdp_state.h"
#include "fsdp/memory.h"

fsdp_options_t
fsdp_options_default(void)
{
    return (fsdp_options_t){.reshard_after_forward = FSDP_RESHARD_AUTO,
                            .reduce_order = FSDP_ORDER_TREE};
}

static fsdp_status_t
check_call(fsdp_module_t *const *modules, int num_modules,
           const fsdp_options_t *options)
{
    if (num_modules < 1)
        return fsdp_error(FSDP_ERR_USAGE, "fully_shard: no module given");
    if (options == NULL || options->mesh == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fully_shard: options.mesh is not set; make one with "
                          "fsdp_mesh_create_1d()");
    int reshard = options->reshard_after_forward;
    if (reshard != FSDP_RESHARD_AUTO && reshard != FSDP_RESHARD_TRUE &&
        reshard != FSDP_RESHARD_FALSE)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fully_shard: reshard_after_forward is %d; use "
                          "FSDP_RESHARD_AUTO, _TRUE or _FALSE",
                          reshard);
    for (int i = 0; i < num_modules; i++)
        if (modules[i]->fsdp_state != NULL)
            return fsdp_error(FSDP_ERR_USAGE,
                              "fully_shard was already applied to module "
                              "\"%s\"; apply it once to each",
                              modules[i]->name);
    return FSDP_OK;
}

static fsdp_status_t
check_parameters(fsdp_parameter_t *const *parameters, int count)
{
    for (int i = 0; i < count; i++) {
        const fsdp_parameter_t *p = parameters[i];
        if (p->managed != NULL)
            return fsdp_error(FSDP_ERR_USAGE,
                              "parameter %s would be in two groups; put the "
                              "modules that share it under one fully_shard",
                              p->name);
        if (p->data != NULL)
            return fsdp_error(FSDP_ERR_USAGE,
                              "parameter %s is already whole on this rank; "
                              "call fully_shard before the model is used",
                              p->name);
        if (p->dtype != parameters[0]->dtype)
            return fsdp_error(FSDP_ERR_USAGE,
                              "parameters %s and %s of one group have types "
                              "%s and %s; one type is needed",
                              parameters[0]->name, p->name,
                              fsdp_dtype_name(parameters[0]->dtype),
                              fsdp_dtype_name(p->dtype));
    }
    return FSDP_OK;
}

/* "layers.0, layers.1"; the caller frees. */
static char *
group_fqn(fsdp_module_t *const *modules, int num_modules)
{
    char *fqn = fsdp_strdup(modules[0]->name);
    for (int i = 1; i < num_modules; i++) {
        char *longer = fsdp_format("%s, %s", fqn, modules[i]->name);
        fsdp_free(fqn);
        fqn = longer;
    }
    return fqn;
}

/* An upper bound of what the call can take. */
static int
count_parameters(fsdp_module_t *const *modules, int num_modules)
{
    size_t count = 0;
    for (int i = 0; i < num_modules; i++)
        count += fsdp_module_parameters(modules[i], NULL, 0);
    return (int)count;
}

fsdp_status_t
fully_shard_list(fsdp_module_t *const *modules, int num_modules,
                 const fsdp_options_t *options)
{
    fsdp_status_t status = check_call(modules, num_modules, options);
    if (status != FSDP_OK)
        return status;

    int max = count_parameters(modules, num_modules);
    fsdp_parameter_t **parameters =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)max * sizeof *parameters);
    int count =
        fsdp_get_managed_parameters(modules, num_modules, parameters, max);
    status = check_parameters(parameters, count);
    if (status == FSDP_OK) {
        char *fqn = group_fqn(modules, num_modules);
        fsdp_param_group_t *group = NULL;
        if (count > 0)
            group = fsdp_param_group_create(fqn, parameters, count, options);
        fsdp_state_create(modules, num_modules, group, options);
        fsdp_free(fqn);
    }
    fsdp_free(parameters);
    return status;
}

fsdp_status_t
fully_shard(fsdp_module_t *module, const fsdp_options_t *options)
{
    return fully_shard_list(&module, 1, options);
}

fsdp_status_t
fsdp_module_set_gradient_divide_factor(fsdp_module_t *module, double factor)
{
    if (module->fsdp_state == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "module \"%s\" was not given to fully_shard",
                          module->name);
    if (!(factor > 0.0) || isinf(factor))
        return fsdp_error(FSDP_ERR_USAGE,
                          "a gradient divide factor of %g; it must be "
                          "positive",
                          factor);
    if (module->fsdp_state->group != NULL)
        module->fsdp_state->group->gradient_divide_factor = factor;
    return FSDP_OK;
}
