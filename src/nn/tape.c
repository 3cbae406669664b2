#include "fsdp/tape.h"

#include "base/grow.h"
#include "fsdp/status.h"
#include "nn/tape_internal.h"

fsdp_values_t
fsdp_values1(fsdp_tensor_t *a)
{
    return (fsdp_values_t){.count = 1, .tensor = {a}};
}

fsdp_values_t
fsdp_values2(fsdp_tensor_t *a, fsdp_tensor_t *b)
{
    return (fsdp_values_t){.count = 2, .tensor = {a, b}};
}

fsdp_tape_options_t
fsdp_tape_options_default(void)
{
    return (fsdp_tape_options_t){.grad_enabled = true, .training = true};
}

fsdp_tape_t *
fsdp_tape_create(const fsdp_tape_options_t *options)
{
    fsdp_tape_t *tape = fsdp_calloc(FSDP_MEM_OTHER, sizeof *tape);
    tape->options = options != NULL ? *options : fsdp_tape_options_default();
    return tape;
}

void
fsdp_node_free_saved(fsdp_node_t *node)
{
    if (node->saved != NULL && node->op->free_saved != NULL)
        node->op->free_saved(node->saved);
    fsdp_free(node->saved);
    node->saved = NULL;
}

void
fsdp_node_destroy(fsdp_node_t *node)
{
    fsdp_node_free_saved(node);
    for (int i = 0; i < node->outputs.count; i++)
        fsdp_tensor_destroy(&node->grad[i]);
    fsdp_free(node->hook);
    fsdp_free(node);
}

void
fsdp_tape_destroy(fsdp_tape_t **tape)
{
    fsdp_tape_t *t = *tape;
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->num_nodes; i++)
        if (t->node[i] != NULL)
            fsdp_node_destroy(t->node[i]);
    for (size_t i = 0; i < t->num_tensors; i++)
        fsdp_tensor_destroy(&t->tensor[i]);
    for (size_t i = 0; i < t->num_regions; i++)
        fsdp_free(t->region[i]);
    fsdp_free(t->region);
    fsdp_free(t->node);
    fsdp_free(t->tensor);
    fsdp_free(t->callback);
    fsdp_free(t->mark);
    fsdp_free(t);
    *tape = NULL;
}

const fsdp_tape_options_t *
fsdp_tape_get_options(const fsdp_tape_t *tape)
{
    return &tape->options;
}

bool
fsdp_tape_is_recomputing(const fsdp_tape_t *tape)
{
    return tape->outer != NULL;
}

void
fsdp_tape_append(void ***list, size_t *count, size_t *room, void *item)
{
    *list = fsdp_grow(FSDP_MEM_OTHER, *list, *count, room, 64, sizeof **list);
    (*list)[(*count)++] = item;
}

fsdp_tensor_t *
fsdp_tape_adopt(fsdp_tape_t *tape, fsdp_tensor_t *tensor)
{
    fsdp_tape_append((void ***)&tape->tensor, &tape->num_tensors,
                     &tape->tensor_room, tensor);
    return tensor;
}

fsdp_tensor_t *
fsdp_tape_new_tensor(fsdp_tape_t *tape, fsdp_dtype_t dtype, int ndim,
                     const size_t *shape)
{
    return fsdp_tape_adopt(
        tape, fsdp_tensor_create(FSDP_MEM_ACTIVATION, dtype, ndim, shape));
}

static bool
needs_record(const fsdp_tape_t *tape, fsdp_values_t inputs,
             fsdp_parameter_t *const *parameters, int num_parameters)
{
    bool needed = false;
    for (int i = 0; i < inputs.count; i++)
        needed |= inputs.tensor[i]->requires_grad;
    for (int i = 0; i < num_parameters; i++)
        needed |= parameters[i] != NULL && parameters[i]->requires_grad;
    return needed && tape->options.grad_enabled;
}

fsdp_node_t *
fsdp_tape_record(fsdp_tape_t *tape, const fsdp_op_t *op, fsdp_values_t inputs,
                 fsdp_parameter_t *const *parameters, int num_parameters,
                 fsdp_values_t outputs, size_t saved_bytes)
{
    FSDP_CHECK(!tape->running, "operator %s called during a backward",
               op->name);
    FSDP_CHECK(num_parameters <= FSDP_MAX_VALUES, "%s: %d parameters", op->name,
               num_parameters);
    if (!needs_record(tape, inputs, parameters, num_parameters))
        return NULL;

    fsdp_node_t *node = fsdp_calloc(FSDP_MEM_OTHER, sizeof *node);
    node->op = op;
    node->tape = tape;
    node->inputs = inputs;
    node->outputs = outputs;
    node->num_parameters = num_parameters;
    for (int i = 0; i < num_parameters; i++)
        node->parameter[i] = parameters[i];
    if (saved_bytes > 0)
        node->saved = fsdp_calloc(FSDP_MEM_OTHER, saved_bytes);
    for (int i = 0; i < inputs.count; i++) {
        const fsdp_tensor_t *in = inputs.tensor[i];
        if (in->grad_fn != NULL)
            in->grad_fn->output_used[in->output_index] = true;
    }
    for (int i = 0; i < outputs.count; i++) {
        outputs.tensor[i]->requires_grad = true;
        outputs.tensor[i]->grad_fn = node;
        outputs.tensor[i]->output_index = i;
    }
    node->region = tape->open_region;
    node->number = tape->num_operators;
    if (!fsdp_node_is_hook(node))
        tape->num_operators++;
    fsdp_tape_append((void ***)&tape->node, &tape->num_nodes, &tape->node_room,
                     node);
    return node;
}

/* An operator's backward looks at what it needs through these three, so what a
 * checkpoint did not keep comes back when it is first looked at. */

void *
fsdp_node_saved(fsdp_node_t *node)
{
    if (node->emptied)
        fsdp_region_refill(node);
    return node->saved;
}

fsdp_tape_t *
fsdp_node_tape(fsdp_node_t *node)
{
    return node->tape;
}

fsdp_tensor_t *
fsdp_node_input(fsdp_node_t *node, int i)
{
    if (node->emptied)
        fsdp_region_refill(node);
    return node->inputs.tensor[i];
}

fsdp_tensor_t *
fsdp_node_output(fsdp_node_t *node, int i)
{
    if (node->emptied)
        fsdp_region_refill(node);
    return node->outputs.tensor[i];
}

fsdp_parameter_t *
fsdp_node_parameter(fsdp_node_t *node, int i)
{
    return node->parameter[i];
}

bool
fsdp_node_needs_grad(fsdp_node_t *node, int i)
{
    return node->inputs.tensor[i]->requires_grad;
}

const fsdp_tensor_t *
fsdp_node_grad_output(fsdp_node_t *node, int i)
{
    return node->grad[i];
}

fsdp_tensor_t *
fsdp_node_view_grad_output(fsdp_node_t *node, int i)
{
    const fsdp_tensor_t *input = node->inputs.tensor[i];
    return fsdp_tensor_view(node->grad[0], 0, input->ndim, input->shape);
}

fsdp_tensor_t *
fsdp_node_new_grad_input(fsdp_node_t *node, int i)
{
    const fsdp_tensor_t *input = node->inputs.tensor[i];
    return fsdp_tensor_create(FSDP_MEM_ACTIVATION, input->dtype, input->ndim,
                              input->shape);
}
