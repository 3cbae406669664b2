#include "fsdp/fsdp_init.h"

#include "fsdp/memory.h"
#include "fsdp/status.h"

/* ---- what a call takes --------------------------------------------------- */

static bool
is_ignored(const fsdp_parameter_t *parameter, const fsdp_options_t *options)
{
    for (int i = 0; i < options->num_ignored_params; i++)
        if (options->ignored_params[i] == parameter)
            return true;
    return false;
}

static void
add_once(fsdp_managed_states_t *states, fsdp_parameter_t *parameter)
{
    for (int i = 0; i < states->count; i++)
        if (states->parameter[i] == parameter)
            return;
    states->parameter[states->count++] = parameter;
}

/* Children first, as PyTorch's walk does. */
static void
visit(fsdp_module_t *module, const fsdp_options_t *options,
      fsdp_managed_states_t *states)
{
    for (int i = 0; i < module->num_children; i++)
        if (module->child[i]->fsdp_state == NULL)
            visit(module->child[i], options, states);
    for (int i = 0; i < module->num_parameters; i++)
        if (!is_ignored(module->parameter[i], options))
            add_once(states, module->parameter[i]);
}

/* Which dim, counted from the front, and which mesh. */
static void
place(fsdp_managed_states_t *states, int i, const fsdp_options_t *options)
{
    const fsdp_parameter_t *parameter = states->parameter[i];
    fsdp_shard_placement_t placement = {0};
    if (options->shard_placement_fn != NULL)
        placement =
            options->shard_placement_fn(options->placement_context, parameter);
    states->dim[i] =
        placement.dim < 0 ? placement.dim + parameter->ndim : placement.dim;
    states->mesh[i] = placement.mesh != NULL ? placement.mesh : options->mesh;
}

fsdp_managed_states_t
fsdp_get_managed_states(fsdp_module_t *const *modules, int num_modules,
                        const fsdp_options_t *options)
{
    fsdp_managed_states_t states = {0};
    size_t max = 0;
    for (int i = 0; i < num_modules; i++)
        max += fsdp_module_parameters(modules[i], NULL, 0);
    states.parameter =
        fsdp_alloc(FSDP_MEM_OTHER, max * sizeof *states.parameter);
    states.dim = fsdp_alloc(FSDP_MEM_OTHER, max * sizeof *states.dim);
    states.mesh = fsdp_alloc(FSDP_MEM_OTHER, max * sizeof *states.mesh);
    for (int i = 0; i < num_modules; i++)
        visit(modules[i], options, &states);
    for (int i = 0; i < states.count; i++)
        place(&states, i, options);
    return states;
}

void
fsdp_managed_states_free(fsdp_managed_states_t *states)
{
    fsdp_free(states->parameter);
    fsdp_free(states->dim);
    fsdp_free(states->mesh);
    *states = (fsdp_managed_states_t){0};
}

/* ---- what is refused ----------------------------------------------------- */

static fsdp_status_t
check_policy(const fsdp_mixed_precision_policy_t *policy)
{
    const struct {
        const char *name;
        fsdp_dtype_t dtype;
    } all[] = {{"param_dtype", policy->param_dtype},
               {"reduce_dtype", policy->reduce_dtype},
               {"output_dtype", policy->output_dtype}};
    for (int i = 0; i < 3; i++)
        if (all[i].dtype != FSDP_DTYPE_NONE &&
            !fsdp_dtype_is_floating(all[i].dtype))
            return fsdp_error(FSDP_ERR_USAGE,
                              "fully_shard: mp_policy.%s is %s; use a floating "
                              "type, or FSDP_DTYPE_NONE for no cast",
                              all[i].name, fsdp_dtype_name(all[i].dtype));
    return FSDP_OK;
}

static fsdp_status_t
check_reshard(int reshard, fsdp_mesh_t *mesh)
{
    int ranks = fsdp_comm_size(fsdp_mesh_shard_comm(mesh));
    if (reshard == FSDP_RESHARD_AUTO || reshard == FSDP_RESHARD_TRUE ||
        reshard == FSDP_RESHARD_FALSE)
        return FSDP_OK;
    if (reshard < 0 || reshard > ranks || ranks % reshard != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fully_shard: reshard_after_forward is %d; give "
                          "FSDP_RESHARD_AUTO, _TRUE, _FALSE or a number that "
                          "divides the %d ranks of the shard dimension",
                          reshard, ranks);
    return FSDP_OK;
}

static fsdp_status_t
check_mesh(const fsdp_mesh_t *mesh)
{
    if (mesh == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fully_shard: options.mesh is not set; make one with "
                          "fsdp_mesh_create_1d()");
    if (fsdp_mesh_ndim(mesh) > 2)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fully_shard: a mesh of %d dimensions; give one "
                          "(shard) or two (replicate, shard), a slice for "
                          "instance",
                          fsdp_mesh_ndim(mesh));
    return FSDP_OK;
}

fsdp_status_t
fsdp_check_call(fsdp_module_t *const *modules, int num_modules,
                const fsdp_options_t *options)
{
    if (num_modules < 1)
        return fsdp_error(FSDP_ERR_USAGE, "fully_shard: no module given");
    fsdp_status_t status = check_mesh(options != NULL ? options->mesh : NULL);
    if (status == FSDP_OK)
        status = check_reshard(options->reshard_after_forward, options->mesh);
    if (status == FSDP_OK)
        status = check_policy(&options->mp_policy);
    for (int i = 0; i < num_modules && status == FSDP_OK; i++)
        if (modules[i]->fsdp_state != NULL)
            status = fsdp_error(FSDP_ERR_USAGE,
                                "fully_shard was already applied to module "
                                "\"%s\"; apply it once to each",
                                modules[i]->name);
    return status;
}

static fsdp_status_t
check_state(const fsdp_parameter_t *p)
{
    if (p->managed != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s would be in two groups; put the "
                          "modules that share it under one fully_shard",
                          p->name);
    if (p->num_optimizers > 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s is in an optimizer already; make the "
                          "optimizer after fully_shard, for the shards",
                          p->name);
    if (p->data != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s is already whole on this rank; call "
                          "fully_shard before the model is used",
                          p->name);
    return FSDP_OK;
}

static fsdp_status_t
check_placement(const fsdp_parameter_t *p, int dim, fsdp_mesh_t *mesh,
                int reshard)
{
    fsdp_status_t status = check_mesh(mesh);
    if (status != FSDP_OK)
        return status;
    size_t ranks = (size_t)fsdp_comm_size(fsdp_mesh_shard_comm(mesh));
    if (dim < 0 || dim >= p->ndim)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s cannot be cut along dim %d; it has %d "
                          "dims",
                          p->name, dim < 0 ? dim - p->ndim : dim, p->ndim);
    if (dim > 0 && p->shape[dim] % ranks != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s has %zu elements along dim %d, which "
                          "%zu ranks cannot share evenly; only dim 0 may be "
                          "uneven",
                          p->name, p->shape[dim], dim, ranks);
    if (reshard > 1 && (size_t)reshard < ranks && p->num_parts > 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s is one part of a larger one; "
                          "reshard_after_forward = %d, a smaller group, is not "
                          "possible for such",
                          p->name, reshard);
    return FSDP_OK;
}

/* Trainable parameters of a group are reduced together, in one type. */
static fsdp_status_t
check_types(const fsdp_managed_states_t *states)
{
    const fsdp_parameter_t *first = NULL;
    for (int i = 0; i < states->count; i++) {
        const fsdp_parameter_t *p = states->parameter[i];
        if (!p->requires_grad)
            continue;
        if (first == NULL)
            first = p;
        if (!fsdp_dtype_is_floating(p->dtype))
            return fsdp_error(FSDP_ERR_USAGE,
                              "parameter %s is %s and asks for a gradient; "
                              "freeze it",
                              p->name, fsdp_dtype_name(p->dtype));
        if (p->dtype != first->dtype)
            return fsdp_error(FSDP_ERR_USAGE,
                              "parameters %s and %s of one group have types %s "
                              "and %s; trainable ones need one type",
                              first->name, p->name,
                              fsdp_dtype_name(first->dtype),
                              fsdp_dtype_name(p->dtype));
    }
    return FSDP_OK;
}

fsdp_status_t
fsdp_check_managed_states(const fsdp_managed_states_t *states,
                          const fsdp_options_t *options)
{
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < states->count && status == FSDP_OK; i++) {
        status = check_state(states->parameter[i]);
        if (status == FSDP_OK)
            status = check_placement(states->parameter[i], states->dim[i],
                                     states->mesh[i],
                                     options->reshard_after_forward);
        if (status == FSDP_OK && states->mesh[i] != options->mesh)
            status =
                check_reshard(options->reshard_after_forward, states->mesh[i]);
    }
    return status == FSDP_OK ? check_types(states) : status;
}
