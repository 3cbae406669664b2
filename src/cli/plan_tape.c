/* The order in which activations and gradients come and go: every tensor of a
 * tape stays until the backward has passed the operator that made it (or until
 * the tape goes, without a backward); a checkpoint's inside goes at once and
 * comes back for its backward. */
#include <string.h>

#include "cli/plan_sim.h"

void
plan_list_add(plan_list_t *list, void *item)
{
    if (list->count == list->room) {
        int room = list->room > 0 ? 2 * list->room : 64;
        void **grown = fsdp_alloc(FSDP_MEM_OTHER, (size_t)room * sizeof *grown);
        if (list->count > 0)
            memcpy(grown, list->item, (size_t)list->count * sizeof *grown);
        fsdp_free(list->item);
        list->item = grown;
        list->room = room;
    }
    list->item[list->count++] = item;
}

static plan_node_t *
node_at(const plan_tape_t *tape, int i)
{
    return tape->node.item[i];
}

/* ---- life ---------------------------------------------------------------- */

plan_tape_t *
plan_tape_new(plan_sim_t *sim, bool recording)
{
    plan_tape_t *tape = fsdp_calloc(FSDP_MEM_OTHER, sizeof *tape);
    tape->recording = tape->training = recording;
    tape->open_region = -1;
    sim->tape = tape;
    return tape;
}

static void
free_saved(plan_sim_t *sim, plan_node_t *node)
{
    plan_drop(sim, FSDP_MEM_ACTIVATION, node->saved);
    node->saved = 0;
}

static void
release(plan_sim_t *sim, plan_tensor_t *tensor)
{
    plan_block_free(sim, tensor->block);
    tensor->block = NULL;
}

static void
free_list(plan_list_t *list)
{
    for (int i = 0; i < list->count; i++)
        fsdp_free(list->item[i]);
    fsdp_free(list->item);
}

void
plan_tape_free(plan_sim_t *sim)
{
    plan_tape_t *tape = sim->tape;
    for (int i = 0; i < tape->tensor.count; i++)
        release(sim, tape->tensor.item[i]);
    free_list(&tape->node);
    free_list(&tape->tensor);
    free_list(&tape->region);
    free_list(&tape->mark);
    fsdp_free(tape);
    sim->tape = NULL;
}

/* ---- recording ----------------------------------------------------------- */

static plan_tensor_t *
new_tensor(plan_sim_t *sim, fsdp_dtype_t dtype, int64_t numel)
{
    plan_tensor_t *tensor = fsdp_calloc(FSDP_MEM_OTHER, sizeof *tensor);
    *tensor = (plan_tensor_t){.numel = numel, .dtype = dtype};
    plan_list_add(&sim->tape->tensor, tensor);
    return tensor;
}

plan_tensor_t *
plan_tensor_new(plan_sim_t *sim, fsdp_dtype_t dtype, int64_t numel)
{
    plan_tensor_t *tensor = new_tensor(sim, dtype, numel);
    tensor->block =
        plan_block_new(sim, FSDP_MEM_ACTIVATION, numel * plan_size(dtype));
    return tensor;
}

/* The graph has it from now on, if there is to be a backward. */
static void
keep_node(plan_sim_t *sim, plan_node_t *node)
{
    plan_tape_t *tape = sim->tape;
    for (int i = 0; i < node->num_inputs; i++)
        if (node->input[i]->maker != NULL)
            node->input[i]->maker->used = true;
    for (int i = 0; i < 2; i++)
        if (node->param[i] != NULL)
            node->param[i]->awaited++;
    node->output->needs_grad = true;
    node->output->maker = node;
    node->region = tape->open_region;
    plan_list_add(&tape->node, node);
}

static bool
needs_node(const plan_sim_t *sim, const plan_node_t *node)
{
    bool needed = node->param[0] != NULL;
    for (int i = 0; i < node->num_inputs; i++)
        needed |= node->input[i]->needs_grad;
    return needed && sim->tape->recording;
}

plan_tensor_t *
plan_record(plan_sim_t *sim, plan_op_t op, plan_tensor_t *a, plan_tensor_t *b,
            plan_tensor_t *c, plan_param_t *weight, plan_param_t *bias,
            int64_t rows, int64_t numel, fsdp_dtype_t dtype)
{
    plan_node_t *node = fsdp_calloc(FSDP_MEM_OTHER, sizeof *node);
    *node = (plan_node_t){.op = op,
                          .input = {a, b, c},
                          .num_inputs = 1 + (b != NULL) + (c != NULL),
                          .param = {weight, bias},
                          .rows = rows,
                          .region = -1};
    plan_tensor_t *y = node->output = new_tensor(sim, dtype, numel);
    plan_op_forward(sim, node);
    if (needs_node(sim, node)) {
        keep_node(sim, node);
    } else {
        free_saved(sim, node);
        fsdp_free(node);
    }
    return y;
}

plan_tensor_t *
plan_cast(plan_sim_t *sim, plan_tensor_t *x, fsdp_dtype_t dtype)
{
    if (dtype == FSDP_DTYPE_NONE || dtype == x->dtype ||
        !fsdp_dtype_is_floating(x->dtype))
        return x;
    return plan_record(sim, PLAN_CAST, x, NULL, NULL, NULL, NULL, x->numel,
                       x->numel, dtype);
}

/* ---- hooks --------------------------------------------------------------- */

plan_tensor_t *
plan_after_grads(plan_sim_t *sim, plan_tensor_t *x, plan_unit_t *unit)
{
    if (!x->needs_grad || !sim->tape->recording)
        return x;
    plan_node_t *node = fsdp_calloc(FSDP_MEM_OTHER, sizeof *node);
    *node = (plan_node_t){.op = PLAN_AFTER_GRADS,
                          .input = {x},
                          .num_inputs = 1,
                          .hook = {unit},
                          .region = -1};
    node->output = new_tensor(sim, x->dtype, x->numel);
    node->output->block = plan_block_share(x->block);
    keep_node(sim, node);
    return node->output;
}

void
plan_on_grad(plan_tensor_t *x, plan_unit_t *unit)
{
    plan_node_t *node = x->maker;
    if (node == NULL || node->num_hooks == PLAN_MAX_HOOKS)
        return;
    /* an AFTER_GRADS node keeps its own unit in the first place */
    node->hook[node->num_hooks++ + (node->op == PLAN_AFTER_GRADS)] = unit;
}

void
plan_on_passed(plan_sim_t *sim, plan_unit_t *unit)
{
    plan_mark_t *mark = fsdp_alloc(FSDP_MEM_OTHER, sizeof *mark);
    *mark = (plan_mark_t){unit, sim->tape->node.count};
    plan_list_add(&sim->tape->mark, mark);
}

/* ---- checkpoints --------------------------------------------------------- */

void
plan_region_begin(plan_sim_t *sim)
{
    plan_tape_t *tape = sim->tape;
    plan_region_t *region = fsdp_calloc(FSDP_MEM_OTHER, sizeof *region);
    region->begin = region->end = tape->node.count;
    region->first_tensor = tape->tensor.count;
    tape->open_region = tape->region.count;
    plan_list_add(&tape->region, region);
}

/* All that the inside made goes, but for the output.  Without a backward too:
 * what a checkpoint does not keep it does not keep. */
void
plan_region_end(plan_sim_t *sim, const plan_tensor_t *output)
{
    plan_tape_t *tape = sim->tape;
    plan_region_t *region = tape->region.item[tape->open_region];
    region->end = tape->node.count;
    tape->open_region = -1;
    for (int i = region->begin; i < region->end; i++) {
        plan_node_t *node = node_at(tape, i);
        free_saved(sim, node);
        node->emptied = true;
    }
    for (int i = region->first_tensor; i < tape->tensor.count; i++)
        if (tape->tensor.item[i] != output)
            release(sim, tape->tensor.item[i]);
}

/* The forward once more: its output, which is there already, is made again and
 * thrown away. */
static void
compute_again(plan_sim_t *sim, int which)
{
    const plan_region_t *region = sim->tape->region.item[which];
    for (int i = region->begin; i < region->end; i++) {
        plan_node_t *node = node_at(sim->tape, i);
        plan_block_t *kept = node->output->block;
        plan_op_forward(sim, node);
        node->emptied = false;
        if (kept == NULL)
            continue;
        FSDP_CHECK(i == region->end - 1, "plan: a checkpoint kept more than "
                                         "its output");
        plan_block_free(sim, node->output->block);
        node->output->block = kept;
    }
}

/* ---- the backward -------------------------------------------------------- */

void
plan_set_grad(plan_sim_t *sim, plan_node_t *node, int i, plan_block_t *grad)
{
    const plan_tensor_t *input = node->input[i];
    plan_node_t *maker = input->maker;
    if (maker == NULL || !input->needs_grad) {
        plan_block_free(sim, grad);
        return;
    }
    if (maker->grad == NULL) {
        maker->grad = grad;
        return;
    }
    /* Another use's has come: a third block for the sum, and widened copies. */
    int64_t bytes = input->numel * plan_size(input->dtype);
    plan_block_t *sum = plan_block_new(sim, FSDP_MEM_ACTIVATION, bytes);
    if (plan_compute_dtype(input->dtype) != input->dtype)
        plan_touch(sim, FSDP_MEM_ACTIVATION, 3 * 4 * input->numel);
    plan_block_free(sim, maker->grad);
    plan_block_free(sim, grad);
    maker->grad = sum;
}

static void
visit(plan_sim_t *sim, plan_node_t *node)
{
    bool after = node->op == PLAN_AFTER_GRADS;
    for (int i = 0; i < node->num_hooks; i++)
        sim->engine->pre_backward(sim, node->hook[i + after]);
    if (node->emptied)
        compute_again(sim, node->region);
    plan_op_backward(sim, node);
    if (after)
        sim->engine->post_backward(sim, node->hook[0]);
}

static void
retire(plan_sim_t *sim, plan_node_t *node)
{
    node->output->maker = NULL;
    if (node->used)
        release(sim, node->output);
    free_saved(sim, node);
    plan_block_free(sim, node->grad);
    node->grad = NULL;
}

void
plan_backward(plan_sim_t *sim, plan_tensor_t *loss)
{
    plan_tape_t *tape = sim->tape;
    int mark = tape->mark.count;
    loss->maker->grad =
        plan_block_new(sim, FSDP_MEM_ACTIVATION, plan_size(loss->dtype));
    for (int i = tape->node.count; i-- > 0;) {
        visit(sim, node_at(tape, i));
        retire(sim, node_at(tape, i));
        for (; mark > 0; mark--) {
            const plan_mark_t *m = tape->mark.item[mark - 1];
            if (m->position != i)
                break;
            sim->engine->post_backward(sim, m->unit);
        }
    }
    sim->engine->end_backward(sim);
}
