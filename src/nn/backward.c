/* The backward walk of a tape, and the hooks that it meets. */

#include <string.h>

#include "base/grow.h"
#include "fsdp/status.h"
#include "fsdp/tape.h"
#include "nn/ops_internal.h"
#include "nn/tape_internal.h"

/* ---- gradients of values ------------------------------------------------ */

/* A new tensor always: `grad` may share its storage with another's gradient. */
static fsdp_tensor_t *
sum_of(fsdp_tensor_t *sum, fsdp_tensor_t *grad)
{
    fsdp_tensor_t *out = fsdp_tensor_create(FSDP_MEM_ACTIVATION, sum->dtype,
                                            sum->ndim, sum->shape);
    fsdp_op_sum(sum, grad, out);
    fsdp_tensor_destroy(&sum);
    fsdp_tensor_destroy(&grad);
    return out;
}

void
fsdp_node_set_grad_input(fsdp_node_t *node, int i, fsdp_tensor_t *grad)
{
    fsdp_tensor_t *input = node->inputs.tensor[i];
    FSDP_CHECK(grad->dtype == input->dtype &&
                   fsdp_tensor_numel(grad) == fsdp_tensor_numel(input),
               "%s: a gradient of another size or type than its input",
               node->op->name);
    fsdp_node_t *maker = input->grad_fn;
    if (maker == NULL) { /* a leaf that is no parameter: nobody asks */
        fsdp_tensor_destroy(&grad);
        return;
    }
    fsdp_tensor_t **slot = &maker->grad[input->output_index];
    *slot = *slot == NULL ? grad : sum_of(*slot, grad);
}

const fsdp_tensor_t *
fsdp_tape_grad(const fsdp_tape_t *tape, const fsdp_tensor_t *tensor)
{
    (void)tape;
    if (tensor->grad_fn == NULL)
        return NULL;
    return tensor->grad_fn->grad[tensor->output_index];
}

/* ---- hooks -------------------------------------------------------------- */

static void
add_hook(fsdp_tape_hook_t **list, int *count, fsdp_tape_hook_t hook)
{
    fsdp_tape_hook_t *grown =
        fsdp_alloc(FSDP_MEM_OTHER, ((size_t)*count + 1) * sizeof *grown);
    if (*count > 0)
        memcpy(grown, *list, (size_t)*count * sizeof *grown);
    fsdp_free(*list);
    *list = grown;
    grown[(*count)++] = hook;
}

void
fsdp_tape_on_grad(fsdp_tape_t *tape, fsdp_tensor_t *tensor, fsdp_tape_fn_t fn,
                  void *context)
{
    fsdp_node_t *node = tensor->grad_fn;
    if (node == NULL || fsdp_tape_is_recomputing(tape))
        return;
    add_hook(&node->hook, &node->num_hooks,
             (fsdp_tape_hook_t){fn, context, tensor->output_index});
}

void
fsdp_tape_queue_callback(fsdp_tape_t *tape, fsdp_tape_fn_t fn, void *context)
{
    while (tape->outer != NULL)
        tape = tape->outer;
    FSDP_CHECK(tape->running, "a callback can be queued in a backward only");
    add_hook(&tape->callback, &tape->num_callbacks,
             (fsdp_tape_hook_t){fn, context, 0});
}

void
fsdp_tape_on_passed(fsdp_tape_t *tape, fsdp_tape_fn_t fn, void *context)
{
    if (fsdp_tape_is_recomputing(tape))
        return;
    tape->mark = fsdp_grow(FSDP_MEM_OTHER, tape->mark, tape->num_marks,
                           &tape->mark_room, 16, sizeof *tape->mark);
    tape->mark[tape->num_marks++] =
        (fsdp_tape_mark_t){fn, context, tape->num_nodes};
}

typedef struct after_grads {
    fsdp_tape_fn_t fn;
    void *context;
} after_grads_t;

/* Passes the gradients on, so that the function sees them in both places, and
 * calls it. */
static void
after_grads_backward(fsdp_node_t *node)
{
    after_grads_t *saved = fsdp_node_saved(node);
    for (int i = 0; i < node->inputs.count; i++)
        if (node->grad[i] != NULL)
            fsdp_node_set_grad_input(node, i,
                                     fsdp_tensor_view(node->grad[i], 0,
                                                      node->grad[i]->ndim,
                                                      node->grad[i]->shape));
    saved->fn(saved->context, node->tape);
}

static const fsdp_op_t after_grads_op = {"after_grads", after_grads_backward,
                                         NULL};

bool
fsdp_node_is_hook(const fsdp_node_t *node)
{
    return node->op == &after_grads_op;
}

fsdp_values_t
fsdp_tape_after_grads(fsdp_tape_t *tape, fsdp_values_t values,
                      fsdp_tape_fn_t fn, void *context)
{
    fsdp_values_t in = {0}, out = {0}, result = values;
    if (fsdp_tape_is_recomputing(tape))
        return values;
    for (int i = 0; i < values.count; i++) {
        fsdp_tensor_t *t = values.tensor[i];
        if (!t->requires_grad || !tape->options.grad_enabled)
            continue;
        in.tensor[in.count++] = t;
        result.tensor[i] =
            fsdp_tape_adopt(tape, fsdp_tensor_view(t, 0, t->ndim, t->shape));
        out.tensor[out.count++] = result.tensor[i];
    }
    fsdp_node_t *node = fsdp_tape_record(tape, &after_grads_op, in, NULL, 0,
                                         out, sizeof(after_grads_t));
    if (node != NULL)
        *(after_grads_t *)node->saved = (after_grads_t){fn, context};
    return result;
}

/* ---- the walk ----------------------------------------------------------- */

static void
await_uses(fsdp_node_t *node)
{
    for (int k = 0; k < node->num_parameters; k++)
        if (node->parameter[k] != NULL && node->parameter[k]->requires_grad)
            node->parameter[k]->awaited_uses++;
}

/* Marks what the loss depends on, and counts the uses of each parameter whose
 * gradients are to be summed before they are handed over. */
static void
mark_reachable(fsdp_tape_t *tape, fsdp_node_t *last)
{
    for (size_t i = 0; i < tape->num_nodes; i++)
        if (tape->node[i] != NULL)
            tape->node[i]->reachable = tape->node[i] == last;
    for (size_t i = tape->num_nodes; i-- > 0;) {
        fsdp_node_t *node = tape->node[i];
        if (node == NULL || !node->reachable)
            continue;
        for (int k = 0; k < node->inputs.count; k++) {
            fsdp_tensor_t *input = node->inputs.tensor[k];
            FSDP_CHECK(input->data != NULL || node->emptied ||
                           fsdp_node_is_hook(node),
                       "backward through %s a second time: its inputs were "
                       "freed by the first",
                       node->op->name);
            if (input->grad_fn != NULL)
                input->grad_fn->reachable = true;
        }
        await_uses(node);
    }
}

static void
run_hooks(fsdp_node_t *node)
{
    for (int i = 0; i < node->num_hooks; i++)
        if (node->grad[node->hook[i].output] != NULL)
            node->hook[i].fn(node->hook[i].context, node->tape);
}

/* All users of the outputs came later on the tape and are done; an output that
 * no operator used belongs to the caller's eyes (the loss) and stays. */
static void
retire(fsdp_tape_t *tape, size_t i)
{
    fsdp_node_t *node = tape->node[i];
    tape->node[i] = NULL;
    for (int k = 0; k < node->outputs.count; k++) {
        node->outputs.tensor[k]->grad_fn = NULL;
        if (node->output_used[k])
            fsdp_tensor_release(node->outputs.tensor[k]);
    }
    fsdp_node_destroy(node);
}

static bool
has_grad(const fsdp_node_t *node)
{
    for (int k = 0; k < node->outputs.count; k++)
        if (node->grad[k] != NULL)
            return true;
    return false;
}

static void
seed_loss(fsdp_tensor_t *loss)
{
    fsdp_tensor_t *one = fsdp_tensor_create(FSDP_MEM_ACTIVATION, loss->dtype,
                                            loss->ndim, loss->shape);
    fsdp_tensor_set(one, 0, 1.0);
    loss->grad_fn->grad[loss->output_index] = one;
}

/* Those with nothing after them are not passed. */
static size_t
first_mark(const fsdp_tape_t *tape)
{
    size_t mark = tape->num_marks;
    while (mark > 0 && tape->mark[mark - 1].position >= tape->num_nodes)
        mark--;
    return mark;
}

/* Node `i` is done; the marks before `mark` are still to come. */
static size_t
pass_marks(fsdp_tape_t *tape, size_t mark, size_t i)
{
    while (mark > 0 && tape->mark[mark - 1].position == i) {
        mark--;
        tape->mark[mark].fn(tape->mark[mark].context, tape);
    }
    return mark;
}

static void
walk(fsdp_tape_t *tape)
{
    size_t mark = first_mark(tape);
    for (size_t i = tape->num_nodes; i-- > 0;) {
        fsdp_node_t *node = tape->node[i];
        if (node != NULL && node->reachable) {
            run_hooks(node);
            if (has_grad(node))
                node->op->backward(node);
            retire(tape, i);
        }
        fsdp_region_passed(tape, i);
        mark = pass_marks(tape, mark, i);
    }
}

void
fsdp_backward(fsdp_tape_t *tape, fsdp_tensor_t *loss)
{
    FSDP_CHECK(fsdp_tensor_numel(loss) == 1,
               "backward from a tensor of %zu elements; a scalar is needed",
               fsdp_tensor_numel(loss));
    FSDP_CHECK(loss->grad_fn != NULL,
               "the loss depends on no parameter that needs a gradient, or "
               "its backward was done already");
    mark_reachable(tape, loss->grad_fn);
    seed_loss(loss);
    tape->running = true;
    tape->regions_ahead = tape->num_regions;
    walk(tape);
    for (int i = 0; i < tape->num_callbacks; i++)
        tape->callback[i].fn(tape->callback[i].context, tape);
    tape->num_callbacks = 0;
    tape->running = false;
}
