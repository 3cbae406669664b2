#include "fsdp/fsdp1_init_utils.h"

#include <math.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"

fsdp_handle_strategy_t
fsdp1_handle_strategy(fsdp_sharding_strategy_t strategy)
{
    switch (strategy) {
    case FSDP_FULL_SHARD:
        return FSDP_HANDLE_FULL_SHARD;
    case FSDP_SHARD_GRAD_OP:
        return FSDP_HANDLE_SHARD_GRAD_OP;
    case FSDP_HYBRID_SHARD:
        return FSDP_HANDLE_HYBRID_SHARD;
    case FSDP_HYBRID_SHARD_ZERO2:
        return FSDP_HANDLE_HYBRID_SHARD_ZERO2;
    default:
        return FSDP_HANDLE_NO_SHARD;
    }
}

/* ---- the options --------------------------------------------------------- */

static fsdp_status_t
check_mesh(const fsdp1_options_t *options)
{
    const char *name = fsdp_sharding_strategy_name(options->sharding_strategy);
    bool hybrid = fsdp_sharding_strategy_is_hybrid(options->sharding_strategy);
    if (options->mesh == NULL)
        return fsdp_error(
            FSDP_ERR_USAGE, "FSDP1: options.mesh is not set; make one with %s",
            hybrid ? "fsdp_mesh_create_2d()" : "fsdp_mesh_create_1d()");
    int ndim = fsdp_mesh_ndim(options->mesh);
    if (ndim != (hybrid ? 2 : 1))
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: %s needs a mesh of %s, this one has %d", name,
                          hybrid ? "two dimensions (replicate, shard)"
                                 : "one dimension",
                          ndim);
    return FSDP_OK;
}

static fsdp_status_t
check_dtype(const char *what, fsdp_dtype_t dtype)
{
    if (dtype == FSDP_DTYPE_NONE || fsdp_dtype_is_floating(dtype))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "FSDP1: mixed_precision.%s is %s, which is no floating "
                      "type",
                      what, fsdp_dtype_name(dtype));
}

static fsdp_status_t
check_mixed_precision(const fsdp_mixed_precision_t *mixed)
{
    if (mixed->buffer_dtype != FSDP_DTYPE_NONE)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: mixed_precision.buffer_dtype is %s, but "
                          "modules have no buffers here; leave it out",
                          fsdp_dtype_name(mixed->buffer_dtype));
    fsdp_status_t status = check_dtype("param_dtype", mixed->param_dtype);
    return status == FSDP_OK ? check_dtype("reduce_dtype", mixed->reduce_dtype)
                             : status;
}

fsdp_status_t
fsdp1_check_options(const fsdp1_options_t *options)
{
    if (options == NULL)
        return fsdp_error(FSDP_ERR_USAGE, "FSDP1: no options given");
    fsdp_status_t status = check_mesh(options);
    if (status == FSDP_OK)
        status = check_mixed_precision(&options->mixed_precision);
    double factor = options->gradient_divide_factor;
    if (status == FSDP_OK && !(factor >= 0.0 && !isinf(factor)))
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: a gradient_divide_factor of %g; it must be "
                          "positive, or 0 for the number of ranks",
                          factor);
    return status;
}

/* ---- the parameters ------------------------------------------------------ */

typedef struct found {
    fsdp_parameter_t **parameter;
    int count;
} found_t;

bool
fsdp1_is_ignored(const fsdp1_options_t *options,
                 const fsdp_parameter_t *parameter)
{
    for (int i = 0; i < options->num_ignored_states; i++)
        if (options->ignored_states[i] == parameter)
            return true;
    return false;
}

static void
add_once(found_t *found, fsdp_parameter_t *parameter)
{
    for (int i = 0; i < found->count; i++)
        if (found->parameter[i] == parameter)
            return;
    found->parameter[found->count++] = parameter;
}

/* Parents first, unlike FSDP2's groups.  PyTorch: _get_orig_params(). */
static void
collect_parameters(fsdp_module_t *module, const fsdp1_options_t *options,
                   found_t *found)
{
    for (int i = 0; i < module->num_parameters; i++)
        if (!fsdp1_is_ignored(options, module->parameter[i]))
            add_once(found, module->parameter[i]);
    for (int i = 0; i < module->num_children; i++)
        if (fsdp1_state_of(module->child[i]) == NULL)
            collect_parameters(module->child[i], options, found);
}

static fsdp_status_t
check_parameter(const fsdp_parameter_t *p)
{
    if (p->managed != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: parameter %s is in another unit or group; "
                          "put the modules that share it in one unit",
                          p->name);
    if (p->data != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: parameter %s is already whole on this rank; "
                          "wrap the model before it is used",
                          p->name);
    if (p->num_parts > 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: parameter %s is one part of %d, of tensor "
                          "parallelism or of experts, which no flat parameter "
                          "can tell; use fully_shard()",
                          p->name, p->num_parts);
    if (!fsdp_dtype_is_floating(p->dtype))
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: parameter %s is %s; integers cannot be "
                          "flattened, list it in ignored_states",
                          p->name, fsdp_dtype_name(p->dtype));
    return FSDP_OK;
}

/* PyTorch: _validate_tensors_to_flatten(). */
static fsdp_status_t
check_parameters(const found_t *found, bool use_orig_params)
{
    for (int i = 0; i < found->count; i++) {
        const fsdp_parameter_t *p = found->parameter[i];
        const fsdp_parameter_t *first = found->parameter[0];
        fsdp_status_t status = check_parameter(p);
        if (status != FSDP_OK)
            return status;
        if (p->dtype != first->dtype)
            return fsdp_error(FSDP_ERR_USAGE,
                              "FSDP1: parameters %s and %s of one unit have "
                              "types %s and %s; one flat parameter has one "
                              "type",
                              first->name, p->name,
                              fsdp_dtype_name(first->dtype),
                              fsdp_dtype_name(p->dtype));
        if (!use_orig_params && p->requires_grad != first->requires_grad)
            return fsdp_error(FSDP_ERR_USAGE,
                              "FSDP1: of %s and %s, in one unit, only one is "
                              "trainable; set use_orig_params, or wrap the "
                              "frozen ones apart",
                              first->name, p->name);
    }
    return FSDP_OK;
}

/* ---- modules ------------------------------------------------------------- */

/* PyTorch finds these at the first forward (HOMOGENEOUS_ATTR_NAMES). */
static fsdp_status_t
check_alike(const fsdp1_options_t *options, const fsdp1_state_t *below)
{
    const fsdp1_options_t *its = &below->options;
    const char *what = NULL;
    if (its->use_orig_params != options->use_orig_params)
        what = "use_orig_params";
    if (its->limit_all_gathers != options->limit_all_gathers)
        what = "limit_all_gathers";
    if (what == NULL)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "FSDP1: %s must be the same for all units, but the one "
                      "of module \"%s\" has another",
                      what, below->module->name);
}

static fsdp_status_t
check_module(fsdp_module_t *module, const fsdp1_options_t *options)
{
    if (fsdp1_state_of(module) != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "FSDP1: module \"%s\" is wrapped already",
                          module->name);
    int count = 0;
    fsdp1_state_t **below = fsdp1_states_below(module, &count);
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < count && status == FSDP_OK; i++) {
        status = check_alike(options, below[i]);
        if (status == FSDP_OK && below[i]->shared != NULL)
            status = fsdp_error(FSDP_ERR_USAGE,
                                "FSDP1: unit \"%s\" has run already; wrap "
                                "\"%s\" before",
                                below[i]->module->name, module->name);
    }
    fsdp_free(below);
    return status;
}

/* On one rank nothing can be cut.  With replicas what remains is an all-reduce
 * over them. */
static fsdp_handle_strategy_t
clamped(fsdp_handle_strategy_t strategy, const fsdp_mesh_t *mesh)
{
    return fsdp_comm_size(fsdp_mesh_shard_comm(mesh)) == 1
               ? FSDP_HANDLE_NO_SHARD
               : strategy;
}

fsdp_status_t
fsdp1_init_unit(fsdp_module_t *module, fsdp_handle_strategy_t strategy,
                const fsdp1_options_t *options)
{
    fsdp_status_t status = check_module(module, options);
    if (status != FSDP_OK)
        return status;
    size_t max = fsdp_module_parameters(module, NULL, 0);
    found_t found = {
        fsdp_alloc(FSDP_MEM_OTHER, (max + 1) * sizeof *found.parameter), 0};
    collect_parameters(module, options, &found);
    status = check_parameters(&found, options->use_orig_params);
    if (status == FSDP_OK) {
        fsdp_flat_param_handle_t *handle = NULL;
        strategy = clamped(strategy, options->mesh);
        if (found.count > 0)
            handle = fsdp_flat_param_handle_create(
                module->name, found.parameter, found.count, strategy, options);
        fsdp1_state_create(module, options, strategy, handle);
    }
    fsdp_free(found.parameter);
    return status;
}
