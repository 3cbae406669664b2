#include <string.h>

#include "fsdp/fsdp_collectives.h"
#include "fsdp/fsdp_faults.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "tensor/vector.h"

/* ---- copy in ------------------------------------------------------------ */

/* One rank's chunk of one gradient, zeros after it. */
static char *
copy_in_chunk(const fsdp_unsharded_grad_t *grad, int rank, fsdp_dtype_t dtype,
              char *out)
{
    const fsdp_param_t *param = grad->param;
    const fsdp_shard_t *s = &param->shard;
    size_t from = fsdp_dtype_size(grad->dtype), to = fsdp_dtype_size(dtype);
    size_t begin = fsdp_shard_begin(s, rank), rows = fsdp_shard_rows(s, rank);
    size_t run = s->chunk_rows * s->inner;
    fsdp_fault_cut(param, &begin, &rows);

    for (size_t o = 0; o < s->outer; o++, out += run * to) {
        size_t numel = grad->data != NULL ? rows * s->inner : 0;
        if (numel > 0)
            fsdp_convert(grad->dtype,
                         (const char *)grad->data +
                             fsdp_fault_run_begin(s, o, begin, rows) * from,
                         dtype, out, numel);
        memset(out + numel * to, 0, (run - numel) * to);
    }
    return out;
}

void
fsdp_foreach_reduce_scatter_copy_in(const fsdp_unsharded_grad_t *grads,
                                    int num_grads, fsdp_dtype_t dtype,
                                    void *out)
{
    char *to = out;
    for (int rank = 0; rank < grads[0].param->shard.world_size; rank++)
        for (int p = 0; p < num_grads; p++)
            to = copy_in_chunk(&grads[p], rank, dtype, to);
}

/* ---- arithmetic --------------------------------------------------------- */

static void
divide(const fsdp_reduce_scatter_state_t *state, void *x, double divisor,
       size_t n)
{
    for (int i = 0; i < fsdp_fault_divisions() && divisor != 1; i++)
        fsdp_vector_divide(state->dtype, x, divisor, n);
}

static void
multiply(const fsdp_reduce_scatter_state_t *state, void *x, double factor,
         size_t n)
{
    for (int i = 0; i < fsdp_fault_divisions() && factor != 1; i++)
        fsdp_vector_multiply(state->dtype, x, factor, n);
}

/* ---- first half --------------------------------------------------------- */

static fsdp_reduce_scatter_state_t *
state_create(const fsdp_reduce_options_t *options,
             const fsdp_unsharded_grad_t *grads, int num_grads)
{
    fsdp_reduce_scatter_state_t *state =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *state);
    state->options = *options;
    state->options.order = fsdp_fault_order(options->order);
    state->dtype = fsdp_fault_reduce_dtype(grads[0].param);
    int replicas = options->replicate_comm != NULL
                       ? fsdp_comm_size(options->replicate_comm)
                       : 1;
    state->plan = fsdp_get_divide_plan(
        fsdp_comm_size(options->shard_comm), replicas, state->dtype,
        options->averaging, options->divide_factor, options->force_sum);
    fsdp_fault_divide_plan(&state->plan, grads[0].param, replicas);
    state->params =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)num_grads * sizeof *state->params);
    state->num_params = num_grads;
    for (int p = 0; p < num_grads; p++) {
        state->params[p] = grads[p].param;
        state->numel += fsdp_param_padded_numel(grads[p].param);
    }
    return state;
}

static void
start(fsdp_reduce_scatter_state_t *state)
{
    const fsdp_reduce_options_t *o = &state->options;
    if (o->custom.reduce_scatter != NULL)
        o->custom.reduce_scatter(o->custom.context, o->shard_comm, state->dtype,
                                 state->input, state->output, state->numel);
    else
        state->work = fsdp_reduce_scatter_start(
            o->shard_comm, fsdp_ledger_unit(o->unit), state->dtype, o->order,
            state->input, state->output, state->numel);
}

fsdp_reduce_scatter_state_t *
fsdp_foreach_reduce(const fsdp_reduce_options_t *options,
                    const fsdp_unsharded_grad_t *grads, int num_grads)
{
    fsdp_reduce_scatter_state_t *state =
        state_create(options, grads, num_grads);
    size_t world_size = (size_t)fsdp_comm_size(options->shard_comm);
    size_t size = fsdp_dtype_size(state->dtype),
           all = world_size * state->numel;

    state->input = fsdp_alloc(FSDP_MEM_COMM, all * size);
    if (world_size > 1)
        state->output = fsdp_alloc(FSDP_MEM_COMM, state->numel * size);
    fsdp_foreach_reduce_scatter_copy_in(grads, num_grads, state->dtype,
                                        state->input);
    multiply(state, state->input, state->plan.multiply_input, all);
    divide(state, state->input, state->plan.divide_input, all);
    fsdp_fault_before_reduce(options->shard_comm, grads, num_grads,
                             state->input, all * size);
    if (world_size > 1)
        start(state);
    return state;
}

/* ---- second half -------------------------------------------------------- */

/* Adds what earlier backwards have left for the replicas; the sum moves into
 * `reduced`, or stays behind if the all-reduce is put off again. */
static void
add_partial(fsdp_reduce_scatter_state_t *state, void *reduced)
{
    fsdp_partial_reduce_output_t *partial = state->options.partial;
    fsdp_grad_sum_t *sum = &partial->sum;
    bool all_reduce = state->options.all_reduce;
    fsdp_fault_lose(FSDP_FAULT_LOSE_PARTIAL, sum);
    size_t bytes = state->numel * fsdp_dtype_size(state->dtype);
    if (all_reduce && sum->count == 0)
        return;
    FSDP_CHECK(
        sum->count == 0 || partial->numel == state->numel,
        "group %s: other parameters have a gradient than in the backward "
        "before, whose all-reduce was put off",
        fsdp_ledger_unit(state->options.unit));
    partial->numel = state->numel;
    void *term = fsdp_alloc(FSDP_MEM_UNSHARDED_GRAD, bytes);
    memcpy(term, reduced, bytes);
    fsdp_grad_sum_add(sum, state->dtype, state->options.order, term,
                      state->numel);
    if (!all_reduce)
        return;
    memcpy(reduced, fsdp_grad_sum_read(sum, state->dtype, state->numel), bytes);
    fsdp_grad_sum_clear(sum);
}

static void
sum_over_replicas(fsdp_reduce_scatter_state_t *state, void *reduced)
{
    const fsdp_reduce_options_t *o = &state->options;
    if (o->replicate_comm == NULL || fsdp_comm_size(o->replicate_comm) == 1 ||
        fsdp_fault(FSDP_FAULT_SKIP_ALL_REDUCE))
        return;
    multiply(state, reduced, state->plan.multiply_scattered, state->numel);
    fsdp_emit_event(FSDP_EVENT_ALL_REDUCE, o->unit, FSDP_STATE_POST_BACKWARD);
    fsdp_all_reduce(o->replicate_comm, fsdp_ledger_unit(o->unit), state->dtype,
                    FSDP_SUM, o->order, reduced, state->numel);
}

/* This rank's part of one gradient: cast, then added to what is there. */
static void
view_out(const fsdp_reduce_scatter_state_t *state, fsdp_param_t *param,
         const char *reduced)
{
    size_t numel = fsdp_param_padded_numel(param);
    fsdp_dtype_t dtype = param->parameter->dtype;
    size_t bytes = numel * fsdp_dtype_size(dtype);
    void *grad =
        fsdp_offload_calloc(state->options.offload, FSDP_MEM_GRAD_SHARD, bytes);
    fsdp_convert(state->dtype, reduced, dtype, grad, numel);
    fsdp_fault_after_reduce(param, grad, state->options.divide_factor);
    fsdp_fault_round_grad(param, grad, numel);
    fsdp_emit_reduced(param->parameter, grad);
    fsdp_grad_sum_add(&param->grad, dtype, state->options.order, grad, numel);
    for (int i = 0; i < param->grad.count; i++)
        fsdp_offload_release(param->grad.part[i], bytes);
}

static void
view_out_all(const fsdp_reduce_scatter_state_t *state, const char *reduced)
{
    for (int p = 0; p < state->num_params; p++) {
        view_out(state, state->params[p], reduced);
        reduced += fsdp_param_padded_numel(state->params[p]) *
                   fsdp_dtype_size(state->dtype);
    }
}

static void
finish(fsdp_reduce_scatter_state_t *state)
{
    const fsdp_reduce_options_t *o = &state->options;
    const fsdp_divide_plan_t *plan = &state->plan;
    void *reduced = state->output != NULL ? state->output : state->input;
    divide(state, reduced, plan->divide_scattered, state->numel);
    if (o->replicate_comm != NULL) {
        add_partial(state, reduced);
        if (!o->all_reduce)
            return;
        sum_over_replicas(state, reduced);
    }
    divide(state, reduced, plan->divide_reduced, state->numel);
    if (o->all_reduce_hook != NULL)
        o->all_reduce_hook(o->hook_context, state->dtype, reduced,
                           state->numel);
    divide(state, reduced, plan->divide_output, state->numel);
    view_out_all(state, reduced);
}

void
fsdp_foreach_reduce_finish(fsdp_reduce_scatter_state_t **state)
{
    if (*state == NULL)
        return;
    fsdp_work_wait(&(*state)->work);
    finish(*state);
    fsdp_foreach_reduce_discard(state);
}

void
fsdp_foreach_reduce_discard(fsdp_reduce_scatter_state_t **state)
{
    fsdp_reduce_scatter_state_t *s = *state;
    if (s == NULL)
        return;
    fsdp_work_wait(&s->work);
    fsdp_free(s->input);
    fsdp_free(s->output);
    fsdp_free(s->params);
    fsdp_free(s);
    *state = NULL;
}
