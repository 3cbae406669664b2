/* Regions of a tape whose insides are not kept, and how they come back.
 *
 * A region is a run of nodes and of tensors of the tape, made by one call of
 * fsdp_tape_checkpoint().  When it ends its tensors are released (all but the
 * outputs) and its nodes emptied: they stay in the graph, with their hooks, but
 * without what they saved.  The first look at an emptied node runs the forward
 * once more on a tape of its own and gives each node what the operator of the
 * same number made there.
 *
 * A region inside another comes back with empty nodes, of which the inputs
 * alone are there, until one of those is looked at. */

#include "fsdp/activation_checkpoint.h"
#include "nn/tape_internal.h"

typedef struct fsdp_region {
    fsdp_checkpoint_fn_t fn;
    void *context;
    fsdp_values_t inputs, outputs; /* borrowed from the tape         */
    size_t first_node, end_node;   /* of the tape                    */
    size_t first_tensor, end_tensor;
    size_t first_operator, num_operators;
    struct fsdp_region *parent; /* the one that it lies in, or NULL */
} region_t;

/* ---- making one ---------------------------------------------------------- */

static bool
is_among(const fsdp_tensor_t *tensor, const fsdp_values_t *values)
{
    for (int i = 0; i < values->count; i++)
        if (values->tensor[i] == tensor)
            return true;
    return false;
}

static void
release_tensors(const fsdp_tape_t *tape, const region_t *region)
{
    for (size_t i = region->first_tensor; i < region->end_tensor; i++)
        if (!is_among(tape->tensor[i], &region->outputs))
            fsdp_tensor_release(tape->tensor[i]);
}

/* A hook has no tensors to look at, and keeps what it is to call. */
static void
empty_nodes(const fsdp_tape_t *tape, const region_t *region)
{
    for (size_t i = region->first_node; i < region->end_node; i++) {
        if (fsdp_node_is_hook(tape->node[i]))
            continue;
        fsdp_node_free_saved(tape->node[i]);
        tape->node[i]->emptied = true;
    }
}

static region_t *
begin_region(fsdp_tape_t *tape, fsdp_checkpoint_fn_t fn, void *context,
             fsdp_values_t inputs)
{
    region_t *region = fsdp_calloc(FSDP_MEM_OTHER, sizeof *region);
    *region = (region_t){.fn = fn,
                         .context = context,
                         .inputs = inputs,
                         .first_node = tape->num_nodes,
                         .first_tensor = tape->num_tensors,
                         .first_operator = tape->num_operators,
                         .parent = tape->open_region};
    fsdp_tape_append((void ***)&tape->region, &tape->num_regions,
                     &tape->region_room, region);
    tape->open_region = region;
    return region;
}

static void
end_region(fsdp_tape_t *tape, region_t *region, fsdp_values_t outputs)
{
    region->outputs = outputs;
    region->end_node = tape->num_nodes;
    region->end_tensor = tape->num_tensors;
    region->num_operators = tape->num_operators - region->first_operator;
    tape->open_region = region->parent;
    empty_nodes(tape, region);
    release_tensors(tape, region);
}

fsdp_values_t
fsdp_tape_checkpoint(fsdp_tape_t *tape, fsdp_checkpoint_fn_t fn, void *context,
                     fsdp_values_t inputs)
{
    FSDP_CHECK(!tape->running, "a checkpoint begins during a backward");
    region_t *region = begin_region(tape, fn, context, inputs);
    fsdp_values_t outputs = fn(context, tape, inputs);
    end_region(tape, region, outputs);
    return outputs;
}

/* ---- computing it again -------------------------------------------------- */

/* The inputs as they are seen on a tape of their own: nothing flows on from
 * there, and nothing that hangs on them is touched. */
static fsdp_values_t
detached(fsdp_tape_t *tape, const fsdp_values_t *inputs)
{
    fsdp_values_t out = {.count = inputs->count};
    for (int i = 0; i < inputs->count; i++) {
        const fsdp_tensor_t *in = inputs->tensor[i];
        out.tensor[i] =
            fsdp_tape_adopt(tape, fsdp_tensor_view(in, 0, in->ndim, in->shape));
        out.tensor[i]->requires_grad = in->requires_grad;
    }
    return out;
}

static fsdp_tape_t *
run_again(fsdp_tape_t *outer, const region_t *region)
{
    fsdp_tape_t *tape = fsdp_tape_create(&outer->options);
    tape->outer = outer;
    region->fn(region->context, tape, detached(tape, &region->inputs));
    FSDP_CHECK(tape->num_operators == region->num_operators,
               "a checkpoint recorded %zu operators, and %zu when it was "
               "computed again: its forward must do the same both times",
               region->num_operators, tape->num_operators);
    return tape;
}

static void
share_values(const fsdp_values_t *to, const fsdp_values_t *from)
{
    for (int i = 0; i < to->count; i++)
        if (to->tensor[i]->data == NULL && from->tensor[i]->data != NULL)
            fsdp_tensor_share(to->tensor[i], from->tensor[i]);
}

static void
refill_node(fsdp_node_t *node, fsdp_node_t *made)
{
    FSDP_CHECK(node->op == made->op,
               "a checkpoint recorded %s, and %s when it was computed again: "
               "its forward must do the same both times",
               node->op->name, made->op->name);
    share_values(&node->inputs, &made->inputs);
    share_values(&node->outputs, &made->outputs);
    node->saved = made->saved;
    made->saved = NULL;
    node->emptied = false;
}

/* What the backward will come to; the nodes of inner regions wait for their
 * own turn. */
static void
refill_nodes(fsdp_tape_t *tape, const region_t *region, fsdp_tape_t *again)
{
    for (size_t i = region->first_node; i < region->end_node; i++) {
        fsdp_node_t *node = tape->node[i];
        if (node != NULL && node->emptied && node->reachable &&
            node->region == region)
            refill_node(node,
                        again->node[node->number - region->first_operator]);
    }
}

/* The regions that begin in this one, in the same order both times. */
static void
refill_inputs(fsdp_tape_t *tape, const region_t *region, fsdp_tape_t *again)
{
    size_t next = 0;
    for (size_t i = 0; i < tape->num_regions; i++) {
        if (tape->region[i]->parent != region)
            continue;
        while (again->region[next]->parent != NULL)
            next++;
        share_values(&tape->region[i]->inputs, &again->region[next++]->inputs);
    }
}

static void compute_again(fsdp_tape_t *tape, const region_t *region);

/* They may lie in a region themselves. */
static void
find_inputs(fsdp_tape_t *tape, const region_t *region)
{
    for (int i = 0; i < region->inputs.count; i++) {
        const fsdp_tensor_t *input = region->inputs.tensor[i];
        if (input->data == NULL && region->parent != NULL)
            compute_again(tape, region->parent);
        FSDP_CHECK(input->data != NULL,
                   "backward through a checkpoint a second time: its inputs "
                   "were freed by the first");
    }
}

static void
compute_again(fsdp_tape_t *tape, const region_t *region)
{
    find_inputs(tape, region);
    fsdp_tape_t *again = run_again(tape, region);
    refill_nodes(tape, region, again);
    refill_inputs(tape, region, again);
    fsdp_tape_destroy(&again);
}

void
fsdp_region_refill(fsdp_node_t *node)
{
    compute_again(node->tape, node->region);
    FSDP_CHECK(!node->emptied,
               "%s of a checkpoint looked at its inputs "
               "outside of a backward",
               node->op->name);
}

void
fsdp_region_passed(fsdp_tape_t *tape, size_t i)
{
    while (tape->regions_ahead > 0 &&
           tape->region[tape->regions_ahead - 1]->first_node >= i)
        release_tensors(tape, tape->region[--tape->regions_ahead]);
}
