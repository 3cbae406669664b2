/* What a replay meets inside a micro-batch, and how it is disturbed. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/random.h"
#include "verify/trace/replayer.h"
#include "verify/value.h"

/* ---- perturbations ---------------------------------------------------------- */

void
replay_perturb(const replayer_t *r, const replay_place_t *place,
               fsdp_dtype_t type, fsdp_dtype_t dtype, void *data, size_t n)
{
    double size = r->options->perturbation * value_roundoff(type);
    uint64_t name = fsdp_hash_name(place->name) +
                    (uint64_t)place->call * 0x9e3779b97f4a7c15u +
                    ((uint64_t)r->verifier.step << 32) +
                    (uint64_t)(place->micro + 1);
    for (size_t i = 0; size > 0 && i < n; i++) {
        uint32_t word =
            fsdp_random_word(r->options->seed, FSDP_RANDOM_TEST,
                             (uint32_t)place->phase, name, (uint64_t)i);
        double u = 2 * fsdp_random_uniform(word) - 1;
        value_put(dtype, data, i, value_get(dtype, data, i) * (1 + u * size));
    }
}

/* An operator that hands its input on, disturbed, and the gradient likewise. */
typedef struct disturbed {
    const replayer_t *replayer;
    replay_place_t forward, backward; /* phase FSDP_TRACE_PHASES: exact */
} disturbed_t;

static void
disturb(const replayer_t *r, const replay_place_t *place, fsdp_tensor_t *t)
{
    if (place->phase != FSDP_TRACE_PHASES)
        replay_perturb(r, place, r->low, t->dtype, t->data,
                       fsdp_tensor_numel(t));
}

static void
disturbed_backward(fsdp_node_t *node)
{
    const disturbed_t *d = fsdp_node_saved(node);
    if (!fsdp_node_needs_grad(node, 0))
        return;
    const fsdp_tensor_t *from = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *grad = fsdp_node_new_grad_input(node, 0);
    memcpy(grad->data, from->data, fsdp_tensor_bytes(from));
    disturb(d->replayer, &d->backward, grad);
    fsdp_node_set_grad_input(node, 0, grad);
}

static fsdp_tensor_t *
pass_disturbed(const replayer_t *r, fsdp_tape_t *tape, fsdp_tensor_t *x,
               replay_place_t forward, replay_place_t backward)
{
    static const fsdp_op_t op = {"disturbed", disturbed_backward, NULL};
    if (r->options->perturbation == 0 || fsdp_tape_is_recomputing(tape))
        return x;
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, x->dtype, x->ndim, x->shape);
    memcpy(y->data, x->data, fsdp_tensor_bytes(x));
    disturb(r, &forward, y);
    fsdp_node_t *node = fsdp_tape_record(tape, &op, fsdp_values1(x), NULL, 0,
                                         fsdp_values1(y), sizeof(disturbed_t));
    if (node != NULL)
        *(disturbed_t *)fsdp_node_saved(node) =
            (disturbed_t){r, forward, backward};
    return y;
}

/* ---- telling ------------------------------------------------------------------ */

void
replay_show(const replayer_t *r, const replay_place_t *place,
            fsdp_dtype_t dtype, int ndim, const size_t *shape, const void *data)
{
    if (r->options->show == NULL)
        return;
    char *name = place->call > 1
                     ? fsdp_format("%s#%d", place->name, place->call - 1)
                     : NULL;
    fsdp_replay_value_t value = {.step = r->verifier.step,
                                 .phase = place->phase,
                                 .micro = place->micro,
                                 .name = name != NULL ? name : place->name,
                                 .dtype = dtype,
                                 .ndim = ndim,
                                 .numel = 1,
                                 .data = data};
    for (int d = 0; d < ndim; d++) {
        value.shape[d] = shape[d];
        value.numel *= shape[d];
    }
    r->options->show(r->options->context, &value);
    fsdp_free(name);
}

static void
show_activation(const replayed_call_t *call, fsdp_trace_phase_t phase,
                const fsdp_tensor_t *tensor)
{
    const replayer_t *r = call->unit->replayer;
    replay_place_t place = {phase, r->micro, call->unit->unit->name,
                            call->number};
    replay_show(r, &place, tensor->dtype, tensor->ndim, tensor->shape,
                tensor->data);
}

static void
on_input_grad(void *context, fsdp_tape_t *tape)
{
    const replayed_call_t *call = context;
    const fsdp_tensor_t *grad =
        call->input != NULL ? fsdp_tape_grad(tape, call->input) : NULL;
    if (grad != NULL)
        show_activation(call, FSDP_TRACE_INPUT_GRAD, grad);
}

static void
on_output_grad(void *context, fsdp_tape_t *tape)
{
    const replayed_call_t *call = context;
    const fsdp_tensor_t *grad = fsdp_tape_grad(tape, call->output);
    if (grad != NULL)
        show_activation(call, FSDP_TRACE_OUTPUT_GRAD, grad);
}

/* ---- hooks --------------------------------------------------------------------- */

static int
first_floating(fsdp_values_t values)
{
    int i = 0;
    while (i < values.count && !fsdp_dtype_is_floating(values.tensor[i]->dtype))
        i++;
    return i;
}

/* The gradient that leaves the unit is disturbed before it is seen, as if the unit
 * had made it so: the operator stands within. */
static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    replayed_unit_t *unit = context;
    replayer_t *r = unit->replayer;
    (void)module;
    replayed_call_t *call = fsdp_alloc(FSDP_MEM_BASELINE, sizeof *call);
    *call = (replayed_call_t){
        .unit = unit, .number = ++unit->calls, .next = r->calls};
    r->calls = call;
    inputs = fsdp_tape_after_grads(tape, inputs, on_input_grad, call);
    int i = first_floating(inputs);
    if (i == inputs.count)
        return inputs;
    call->input = inputs.tensor[i];
    show_activation(call, FSDP_TRACE_UNIT_INPUT, call->input);
    replay_place_t exact = {.phase = FSDP_TRACE_PHASES};
    replay_place_t place = {FSDP_TRACE_INPUT_GRAD, r->micro, unit->unit->name,
                            call->number};
    inputs.tensor[i] = pass_disturbed(r, tape, call->input, exact, place);
    return inputs;
}

static replayed_call_t *
running_call(const replayed_unit_t *unit)
{
    replayed_call_t *call = unit->replayer->calls;
    while (call != NULL && (call->unit != unit || call->output != NULL))
        call = call->next;
    return call;
}

static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    replayed_unit_t *unit = context;
    replayer_t *r = unit->replayer;
    replayed_call_t *call = running_call(unit);
    int i = first_floating(outputs);
    (void)module;
    if (call == NULL || i == outputs.count || outputs.tensor[i]->ndim == 0)
        return outputs;
    replay_place_t exact = {.phase = FSDP_TRACE_PHASES};
    replay_place_t place = {FSDP_TRACE_UNIT_OUTPUT, r->micro, unit->unit->name,
                            call->number};
    fsdp_tensor_t *y = pass_disturbed(r, tape, outputs.tensor[i], place, exact);
    outputs.tensor[i] = call->output = y;
    show_activation(call, FSDP_TRACE_UNIT_OUTPUT, y);
    if (y->requires_grad)
        fsdp_tape_on_grad(tape, y, on_output_grad, call);
    return outputs;
}

void
replay_watch(replayer_t *r)
{
    for (int u = 0; u < r->verifier.num_units; u++) {
        r->unit[u] = (replayed_unit_t){r, &r->verifier.unit[u], 0};
        fsdp_module_hooks_t hooks = {.context = &r->unit[u],
                                     .pre_forward = pre_forward,
                                     .post_forward = post_forward};
        fsdp_module_add_hooks(r->verifier.unit[u].base, &hooks);
    }
}

void
replay_forget_calls(replayer_t *r)
{
    while (r->calls != NULL) {
        replayed_call_t *call = r->calls;
        r->calls = call->next;
        fsdp_free(call);
    }
    for (int u = 0; r->unit != NULL && u < r->verifier.num_units; u++)
        r->unit[u].calls = 0;
}
