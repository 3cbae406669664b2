#include "given.h"

#include <string.h>

#include "fsdp/fsdp_module.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

const given_spec_t given_specs[GIVEN_SPECS] = {
    {"table", 3, {11, 2, 3}, GIVEN_USED},   {"scale", 1, {1}, GIVEN_USED},
    {"a.weight", 2, {5, 3}, GIVEN_USED},    {"a.bias", 1, {2}, GIVEN_USED},
    {"b.weight", 2, {7, 4}, GIVEN_USED},    {"b.frozen", 1, {6}, GIVEN_FROZEN},
    {"c.weight", 2, {4099, 9}, GIVEN_USED}, {"c.unused", 1, {3}, GIVEN_UNUSED},
    {"d.weight", 2, {3, 2}, GIVEN_USED},    {"d.bias", 1, {3}, GIVEN_USED},
};

/* Which parameters a module uses, and what comes back. */
typedef struct config {
    fsdp_parameter_t *used[FSDP_MAX_VALUES];
    int num_used;
} config_t;

static given_fn_t current_grad;

static void
backward(fsdp_node_t *node)
{
    const config_t *config = *(config_t *const *)fsdp_node_saved(node);
    for (int i = 0; i < config->num_used; i++) {
        fsdp_parameter_t *p = fsdp_node_parameter(node, i);
        if (!p->requires_grad)
            continue;
        bool zero = fsdp_parameter_local(p).comm != NULL &&
                    fsdp_comm_rank(fsdp_comm_world()) > 0;
        fsdp_tensor_t *grad = fsdp_parameter_new_grad(p);
        for (size_t e = 0; e < fsdp_tensor_numel(grad); e++)
            fsdp_tensor_set(grad, e, zero ? 0 : current_grad(p->name, e));
        fsdp_parameter_add_grad(p, grad);
    }
    if (fsdp_node_needs_grad(node, 0)) {
        fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
        fsdp_tensor_zero(dx);
        fsdp_node_set_grad_input(node, 0, dx);
    }
}

static const fsdp_op_t given_op = {"given", backward, NULL};

/* A zero goes in and comes out. */
static fsdp_values_t
forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    config_t *config = self->config;
    for (int i = 0; i < self->num_children; i++)
        inputs = fsdp_module_call(self->child[i], tape, inputs);
    fsdp_tensor_t *y =
        fsdp_tape_new_tensor(tape, inputs.tensor[0]->dtype, 0, NULL);
    fsdp_tensor_zero(y);
    fsdp_node_t *node =
        fsdp_tape_record(tape, &given_op, inputs, config->used,
                         config->num_used, fsdp_values1(y), sizeof config);
    *(config_t **)fsdp_node_saved(node) = config;
    return fsdp_values1(y);
}

static fsdp_module_t *
module_of(fsdp_module_t *root, const char *parameter)
{
    char name[64] = "";
    const char *dot = strrchr(parameter, '.');
    if (dot != NULL)
        memcpy(name, parameter, (size_t)(dot - parameter));
    fsdp_module_t *module = fsdp_module_find(root, name);
    if (module != NULL)
        return module;
    config_t none = {.num_used = 0};
    return fsdp_module_add_child(
        root, fsdp_module_create(name, "Given", forward, &none, sizeof none));
}

static void
add_parameter(fsdp_module_t *root, const given_spec_t *spec, fsdp_dtype_t dtype)
{
    fsdp_module_t *module = module_of(root, spec->name);
    config_t *config = module->config;
    fsdp_parameter_t *p = fsdp_module_add_parameter(
        module, fsdp_parameter_create(spec->name, dtype, spec->ndim,
                                      spec->shape, FSDP_INIT_ZEROS, 0, 0));
    p->requires_grad = spec->use != GIVEN_FROZEN;
    if (spec->use == GIVEN_UNUSED)
        return;
    FSDP_CHECK(config->num_used < FSDP_MAX_VALUES, "too many in %s",
               module->name);
    config->used[config->num_used++] = p;
}

static void
shard(fsdp_module_t *module, fsdp_mesh_t *mesh)
{
    fsdp_options_t options = fsdp_options_default();
    options.mesh = mesh;
    fsdp_status_t status = fully_shard(module, &options);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    status = fsdp_module_set_gradient_divide_factor(module, 1);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
}

fsdp_module_t *
given_create(const given_spec_t *specs, int count, fsdp_dtype_t dtype,
             fsdp_mesh_t *mesh, given_cut_t cut, given_fn_t value)
{
    config_t none = {.num_used = 0};
    fsdp_module_t *root =
        fsdp_module_create("", "Given", forward, &none, sizeof none);
    for (int i = 0; i < count; i++)
        add_parameter(root, &specs[i], dtype);
    for (int i = 0; i < root->num_children; i++)
        if (cut == GIVEN_ALL || (cut == GIVEN_SOME && i % 2 == 0))
            shard(root->child[i], mesh);
    if (cut == GIVEN_ALL)
        shard(root, mesh);
    if (value != NULL)
        given_set(root, value);
    return root;
}

void
given_backward(fsdp_module_t *model, given_fn_t grad)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_dtype_t dtype = model->num_parameters > 0
                             ? model->parameter[0]->dtype
                             : model->child[0]->parameter[0]->dtype;
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, dtype, 0, NULL);
    fsdp_tensor_zero(x);
    current_grad = grad;
    fsdp_backward(tape, fsdp_module_call1(model, tape, x));
    fsdp_tape_destroy(&tape);
}

void
given_set(fsdp_module_t *model, given_fn_t value)
{
    fsdp_parameter_t *list[32];
    size_t count = fsdp_module_parameters(model, list, 32);
    for (size_t i = 0; i < count; i++) {
        fsdp_local_t local = fsdp_parameter_local(list[i]);
        size_t begin = fsdp_layout_begin(&local.layout);
        fsdp_tensor_t *rows =
            fsdp_tensor_borrow(list[i]->dtype, 1, &local.numel, local.data);
        for (size_t e = 0; e < local.numel; e++)
            fsdp_tensor_set(rows, e, value(list[i]->name, begin + e));
        fsdp_tensor_destroy(&rows);
    }
}
