#include "fsdp/fully_shard.h"

#include <string.h>

#include "fsdp/fsdp_init.h"
#include "fsdp/fsdp_state.h"
#include "fsdp/memory.h"
#include "fsdp/offload.h"

static const char *const averaging_names[] = {"sum-then-divide", "premultiply",
                                              "pre-post"};
enum { NUM_AVERAGINGS = sizeof averaging_names / sizeof *averaging_names };

const char *
fsdp_averaging_name(fsdp_averaging_t averaging)
{
    return averaging_names[averaging];
}

bool
fsdp_averaging_from_name(const char *name, fsdp_averaging_t *averaging)
{
    for (int i = 0; i < NUM_AVERAGINGS; i++)
        if (strcmp(name, averaging_names[i]) == 0) {
            *averaging = (fsdp_averaging_t)i;
            return true;
        }
    return false;
}

fsdp_options_t
fsdp_options_default(void)
{
    return (fsdp_options_t){.reshard_after_forward = FSDP_RESHARD_AUTO,
                            .mp_policy.cast_forward_inputs = true,
                            .reduce_order = FSDP_ORDER_TREE};
}

/* ---- groups -------------------------------------------------------------- */

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

/* Parameters that no group has yet and that share the mesh of the first of them
 * become a group. */
static fsdp_param_group_t *
next_group(const char *fqn, const fsdp_managed_states_t *states,
           const fsdp_options_t *options)
{
    size_t n = (size_t)states->count;
    fsdp_parameter_t **parameter =
        fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *parameter);
    int *dim = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *dim), count = 0;
    fsdp_mesh_t *mesh = NULL;
    fsdp_param_group_t *group = NULL;
    for (int i = 0; i < states->count; i++) {
        if (states->parameter[i]->managed != NULL)
            continue;
        if (mesh == NULL)
            mesh = states->mesh[i];
        if (states->mesh[i] != mesh)
            continue;
        parameter[count] = states->parameter[i];
        dim[count++] = states->dim[i];
    }
    if (count > 0)
        group =
            fsdp_param_group_create(fqn, mesh, parameter, dim, count, options);
    fsdp_free(parameter);
    fsdp_free(dim);
    return group;
}

static void
make_state(fsdp_module_t *const *modules, int num_modules,
           const fsdp_managed_states_t *states, const fsdp_options_t *options)
{
    char *fqn = group_fqn(modules, num_modules);
    fsdp_param_group_t *group, **groups = NULL;
    int num_groups = 0, reshard = options->reshard_after_forward;
    groups = fsdp_alloc(FSDP_MEM_OTHER,
                        ((size_t)states->count + 1) * sizeof *groups);
    while ((group = next_group(fqn, states, options)) != NULL) {
        /* Smaller groups of ranks are made here, where all ranks are. */
        fsdp_param_group_set_reshard_after_forward(
            group, reshard == FSDP_RESHARD_AUTO ? FSDP_RESHARD_TRUE : reshard);
        groups[num_groups++] = group;
    }
    fsdp_state_create(modules, num_modules, groups, num_groups, options);
    fsdp_free(fqn);
}

/* ---- the call ------------------------------------------------------------ */

/* Can every rank make its file there?  Holds it open until the groups do. */
static fsdp_status_t
open_offload(const fsdp_options_t *options, fsdp_offload_t **offload)
{
    fsdp_status_t status = FSDP_OK;
    *offload = NULL;
    if (options->offload_policy.directory == NULL)
        return FSDP_OK;
    status = fsdp_offload_open(options->offload_policy.directory, offload);
    return fsdp_comm_agree(fsdp_mesh_shard_comm(options->mesh), status);
}

fsdp_status_t
fully_shard_list(fsdp_module_t *const *modules, int num_modules,
                 const fsdp_options_t *options)
{
    fsdp_status_t status = fsdp_check_call(modules, num_modules, options);
    if (status != FSDP_OK)
        return status;

    fsdp_offload_t *offload = NULL;
    fsdp_managed_states_t states =
        fsdp_get_managed_states(modules, num_modules, options);
    status = fsdp_check_managed_states(&states, options);
    if (status == FSDP_OK)
        status = open_offload(options, &offload);
    if (status == FSDP_OK)
        make_state(modules, num_modules, &states, options);
    fsdp_offload_close(&offload);
    fsdp_managed_states_free(&states);
    return status;
}

fsdp_status_t
fully_shard(fsdp_module_t *module, const fsdp_options_t *options)
{
    return fully_shard_list(&module, 1, options);
}
