#include "fsdp/module.h"

#include <string.h>

#include "fsdp/status.h"

fsdp_module_t *
fsdp_module_create(const char *name, const char *kind,
                   fsdp_forward_fn_t forward, const void *config,
                   size_t config_bytes)
{
    fsdp_module_t *module = fsdp_calloc(FSDP_MEM_OTHER, sizeof *module);
    module->name = fsdp_strdup(name);
    module->kind = kind;
    module->forward = forward;
    if (config_bytes > 0) {
        module->config = fsdp_alloc(FSDP_MEM_OTHER, config_bytes);
        memcpy(module->config, config, config_bytes);
    }
    return module;
}

void
fsdp_module_destroy(fsdp_module_t **module)
{
    fsdp_module_t *m = *module;
    if (m == NULL)
        return;
    /* Hooks first: those of fully_shard() still look at the parameters. */
    for (int i = m->num_hooks - 1; i >= 0; i--)
        if (m->hooks[i].free_context != NULL)
            m->hooks[i].free_context(m->hooks[i].context);
    for (int i = 0; i < m->num_children; i++)
        fsdp_module_destroy(&m->child[i]);
    for (int i = 0; i < m->num_parameters; i++)
        if (!m->parameter_shared[i])
            fsdp_parameter_destroy(&m->parameter[i]);
    fsdp_free(m->child);
    fsdp_free(m->parameter);
    fsdp_free(m->parameter_shared);
    fsdp_free(m->hooks);
    fsdp_free(m->config);
    fsdp_free(m->name);
    fsdp_free(m);
    *module = NULL;
}

/* A list of `count` items of `size` bytes, longer by one. */
static void *
longer(void *list, int count, size_t size)
{
    void *out = fsdp_alloc(FSDP_MEM_OTHER, ((size_t)count + 1) * size);
    if (count > 0)
        memcpy(out, list, (size_t)count * size);
    fsdp_free(list);
    return out;
}

fsdp_module_t *
fsdp_module_add_child(fsdp_module_t *parent, fsdp_module_t *child)
{
    parent->child =
        longer(parent->child, parent->num_children, sizeof *parent->child);
    parent->child[parent->num_children++] = child;
    return child;
}

static void
register_parameter(fsdp_module_t *module, fsdp_parameter_t *parameter,
                   bool shared)
{
    int n = module->num_parameters;
    module->parameter = longer(module->parameter, n, sizeof *module->parameter);
    module->parameter_shared =
        longer(module->parameter_shared, n, sizeof *module->parameter_shared);
    module->parameter[n] = parameter;
    module->parameter_shared[n] = shared;
    module->num_parameters++;
}

fsdp_parameter_t *
fsdp_module_add_parameter(fsdp_module_t *module, fsdp_parameter_t *parameter)
{
    register_parameter(module, parameter, false);
    return parameter;
}

void
fsdp_module_tie_parameter(fsdp_module_t *module, fsdp_parameter_t *parameter)
{
    register_parameter(module, parameter, true);
}

void
fsdp_module_add_hooks(fsdp_module_t *module, const fsdp_module_hooks_t *hooks)
{
    module->hooks =
        longer(module->hooks, module->num_hooks, sizeof *module->hooks);
    module->hooks[module->num_hooks++] = *hooks;
}

void
fsdp_module_remove_hooks(fsdp_module_t *module, const void *context)
{
    int kept = 0;
    for (int i = 0; i < module->num_hooks; i++)
        if (module->hooks[i].context != context)
            module->hooks[kept++] = module->hooks[i];
    module->num_hooks = kept;
}

static fsdp_values_t
before_forward(fsdp_module_t *module, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int i = 0; i < module->num_hooks; i++) {
        fsdp_module_hooks_t *h = &module->hooks[i];
        if (h->pre_forward != NULL)
            inputs = h->pre_forward(h->context, module, tape, inputs);
        if (h->post_backward != NULL)
            inputs = fsdp_tape_after_grads(tape, inputs, h->post_backward,
                                           h->context);
    }
    return inputs;
}

static fsdp_values_t
after_forward(fsdp_module_t *module, fsdp_tape_t *tape, fsdp_values_t outputs)
{
    for (int i = 0; i < module->num_hooks; i++) {
        fsdp_module_hooks_t *h = &module->hooks[i];
        if (h->post_forward != NULL)
            outputs = h->post_forward(h->context, module, tape, outputs);
        if (h->pre_backward == NULL)
            continue;
        for (int o = 0; o < outputs.count; o++)
            if (outputs.tensor[o]->requires_grad)
                fsdp_tape_on_grad(tape, outputs.tensor[o], h->pre_backward,
                                  h->context);
    }
    return outputs;
}

fsdp_values_t
fsdp_module_call_method(fsdp_module_t *module, fsdp_forward_fn_t method,
                        fsdp_tape_t *tape, fsdp_values_t inputs)
{
    inputs = before_forward(module, tape, inputs);
    fsdp_values_t outputs = method(module, tape, inputs);
    return after_forward(module, tape, outputs);
}

fsdp_values_t
fsdp_module_call(fsdp_module_t *module, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_module_call_method(module, module->forward, tape, inputs);
}

fsdp_tensor_t *
fsdp_module_call1(fsdp_module_t *module, fsdp_tape_t *tape,
                  fsdp_tensor_t *input)
{
    fsdp_values_t out = fsdp_module_call(module, tape, fsdp_values1(input));
    FSDP_CHECK(out.count == 1, "module %s has %d outputs, one is expected",
               module->name, out.count);
    return out.tensor[0];
}

static size_t
collect_parameters(fsdp_module_t *module, fsdp_parameter_t **out, size_t max,
                   size_t found)
{
    for (int i = 0; i < module->num_parameters; i++) {
        size_t known = 0;
        while (known < found && out[known] != module->parameter[i])
            known++;
        if (known < found)
            continue;
        FSDP_CHECK(found < max, "more than %zu parameters", max);
        out[found++] = module->parameter[i];
    }
    for (int i = 0; i < module->num_children; i++)
        found = collect_parameters(module->child[i], out, max, found);
    return found;
}

/* Registered parameters below, with repetitions: an upper bound. */
static size_t
count_registered(const fsdp_module_t *module)
{
    size_t count = (size_t)module->num_parameters;
    for (int i = 0; i < module->num_children; i++)
        count += count_registered(module->child[i]);
    return count;
}

size_t
fsdp_module_parameters(fsdp_module_t *module, fsdp_parameter_t **out,
                       size_t max)
{
    size_t all = count_registered(module);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, all * sizeof *list);
    size_t found = collect_parameters(module, list, all, 0);
    if (max > 0)
        memcpy(out, list, (found < max ? found : max) * sizeof *list);
    fsdp_free(list);
    return found;
}

size_t
fsdp_module_modules(fsdp_module_t *module, fsdp_module_t **out, size_t max)
{
    size_t found = 1;
    if (max > 0)
        out[0] = module;
    for (int i = 0; i < module->num_children; i++) {
        bool room = found < max;
        found +=
            fsdp_module_modules(module->child[i], room ? out + found : NULL,
                                room ? max - found : 0);
    }
    return found;
}

fsdp_module_t *
fsdp_module_find(fsdp_module_t *module, const char *name)
{
    if (strcmp(module->name, name) == 0)
        return module;
    for (int i = 0; i < module->num_children; i++) {
        fsdp_module_t *found = fsdp_module_find(module->child[i], name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

fsdp_parameter_t *
fsdp_module_find_parameter(fsdp_module_t *module, const char *name)
{
    for (int i = 0; i < module->num_parameters; i++)
        if (strcmp(module->parameter[i]->name, name) == 0)
            return module->parameter[i];
    for (int i = 0; i < module->num_children; i++) {
        fsdp_parameter_t *found =
            fsdp_module_find_parameter(module->child[i], name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

void
fsdp_module_set_requires_grad(fsdp_module_t *module, bool requires_grad)
{
    for (int i = 0; i < module->num_parameters; i++)
        module->parameter[i]->requires_grad = requires_grad;
    for (int i = 0; i < module->num_children; i++)
        fsdp_module_set_requires_grad(module->child[i], requires_grad);
}

size_t
fsdp_module_num_elements(fsdp_module_t *module)
{
    size_t count = fsdp_module_parameters(module, NULL, 0);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *list);
    size_t numel = 0;
    fsdp_module_parameters(module, list, count);
    for (size_t i = 0; i < count; i++)
        numel += fsdp_parameter_numel(list[i]);
    fsdp_free(list);
    return numel;
}
