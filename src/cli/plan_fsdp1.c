/* FSDP1's flat parameters, and the stages of ZeRO that are made of them
 * (fsdp-semantics, part 1b; zero.h).
 *
 *      flat parameter  n elements, made a multiple of S; a rank's chunk is n / S
 *      gather          straight into the whole, [n] of the data type
 *      reduce          the parameters' gradients -> one of [n] -> cast; output
 *                      [n / S] -> a gradient of the chunk -> freed
 *
 *  NO_SHARD keeps everything and all-reduces; ZeRO-1 and 2 keep the parameters
 *  and gather what the ranks have updated, ZeRO-1 the gradients too. */
#include "cli/plan_sim.h"

/* On one rank there is nothing to cut. */
static plan_strategy_t
strategy_of(const plan_sim_t *sim)
{
    return sim->config.shard == 1 ? PLAN_NO_SHARD : sim->config.strategy;
}

static bool
keeps_whole(const plan_sim_t *sim)
{
    return strategy_of(sim) == PLAN_ZERO1 || strategy_of(sim) == PLAN_ZERO2;
}

static bool
is_whole(const plan_sim_t *sim)
{
    return strategy_of(sim) == PLAN_NO_SHARD;
}

/* Parameters are gathered for each use. */
static bool
is_cut(const plan_sim_t *sim)
{
    return !is_whole(sim) && !keeps_whole(sim);
}

static bool
reshards_after_forward(const plan_sim_t *sim)
{
    return strategy_of(sim) == PLAN_FULL_SHARD ||
           strategy_of(sim) == PLAN_HYBRID_SHARD;
}

static int64_t
chunk_of(const plan_sim_t *sim, const plan_unit_t *unit)
{
    return is_whole(sim) ? unit->flat : unit->flat / sim->config.shard;
}

static int64_t
data_bytes(const plan_sim_t *sim, int64_t numel)
{
    return numel * plan_size(sim->data_dtype);
}

static int64_t
sum_bytes(const plan_sim_t *sim, int64_t numel)
{
    return numel * plan_size(sim->sum_dtype);
}

static int64_t
own_bytes(const plan_sim_t *sim, int64_t numel)
{
    return numel * plan_size(sim->config.dtype);
}

/* Ranks that sum gradients first, and this one's number among them. */
static int
sum_ranks(const plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    return is_whole(sim) && c->replicas > 1 ? c->replicas : c->shard;
}

static int
sum_rank(const plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    return is_whole(sim) && c->replicas > 1 ? c->rank / c->shard
                                            : c->rank % c->shard;
}

static void
call_gather(plan_sim_t *sim, const plan_unit_t *unit)
{
    plan_call(sim, FSDP_ALL_GATHER,
              data_bytes(sim, chunk_of(sim, unit) * (sim->config.shard - 1)));
}

/* ---- laying out ---------------------------------------------------------- */

/* How much of each parameter lies in this rank's chunk: its optimizer's state. */
static void
cut_states(const plan_sim_t *sim, plan_unit_t *unit)
{
    int64_t chunk = chunk_of(sim, unit), offset = 0;
    int rank = is_whole(sim) ? 0 : sim->config.rank % sim->config.shard;
    for (int p = 0; p < unit->num_params; p++) {
        plan_param_t *param = &unit->param[p];
        int64_t begin = rank * chunk, end = begin + chunk;
        int64_t first = offset > begin ? offset : begin;
        int64_t last =
            offset + param->numel < end ? offset + param->numel : end;
        param->state_numel = last > first ? last - first : 0;
        offset += param->numel;
    }
}

static void
open_units(plan_sim_t *sim)
{
    int64_t ranks = is_whole(sim) ? 1 : sim->config.shard;
    bool rounded = sim->data_dtype != sim->config.dtype;
    for (int i = 0; i < sim->num_units; i++) {
        plan_unit_t *unit = &sim->unit[i];
        unit->flat = (unit->numel + ranks - 1) / ranks * ranks;
        cut_states(sim, unit);
        if (unit->num_params == 0)
            continue;
        if (keeps_whole(sim))
            plan_add(sim, FSDP_MEM_PARAM_SHARD, data_bytes(sim, unit->flat));
        if (!keeps_whole(sim) || rounded)
            plan_add(sim, FSDP_MEM_PARAM_SHARD,
                     own_bytes(sim, chunk_of(sim, unit)));
        if (keeps_whole(sim))
            call_gather(sim, unit);
    }
}

/* ---- gathering ----------------------------------------------------------- */

/* NO_SHARD with a policy rounds a copy. */
static void
unshard(plan_sim_t *sim, plan_unit_t *unit)
{
    bool rounded = sim->data_dtype != sim->config.dtype;
    if (unit->state == PLAN_UNSHARDED || !(is_cut(sim) || rounded) ||
        keeps_whole(sim))
        return;
    plan_add(sim, FSDP_MEM_UNSHARDED_PARAM, data_bytes(sim, unit->flat));
    unit->state = PLAN_UNSHARDED;
    if (is_cut(sim))
        call_gather(sim, unit);
}

static void
reshard(plan_sim_t *sim, plan_unit_t *unit, bool free_it)
{
    unit->prefetched = false;
    if (unit->state != PLAN_UNSHARDED || !(free_it || is_whole(sim)))
        return;
    plan_drop(sim, FSDP_MEM_UNSHARDED_PARAM, data_bytes(sim, unit->flat));
    unit->state = PLAN_SHARDED;
}

/* ---- forward ------------------------------------------------------------- */

/* The root casts the inputs; gradients are reduced when the backward is back
 * here. */
static plan_tensor_t *
pre_forward(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *input)
{
    if (unit->is_root)
        input = plan_cast(sim, input, sim->config.param_dtype);
    if (unit->num_params == 0)
        return input;
    if (sim->tape->recording)
        plan_on_passed(sim, unit);
    unshard(sim, unit);
    return input;
}

static plan_tensor_t *
post_forward(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *output)
{
    if (unit->num_params > 0) {
        if (sim->tape->recording) {
            unit->order = sim->num_order;
            sim->order[sim->num_order++] = unit;
        }
        reshard(sim, unit, !unit->is_root && reshards_after_forward(sim));
    }
    unit->ran_pre_backward = false;
    unit->needs_pre_backward = output->needs_grad;
    if (output->needs_grad)
        plan_on_grad(output, unit);
    return output;
}

/* ---- reducing ------------------------------------------------------------ */

static void
drop_scratch(plan_sim_t *sim)
{
    plan_drop(sim, FSDP_MEM_COMM, sim->reduce_scratch);
    sim->reduce_scratch = 0;
}

static void
all_reduce_replicas(plan_sim_t *sim, const plan_unit_t *unit)
{
    const plan_config_t *c = &sim->config;
    int64_t chunk = chunk_of(sim, unit), size = plan_size(sim->sum_dtype);
    int replica = c->rank / c->shard;
    if (is_whole(sim) || c->replicas == 1)
        return;
    plan_touch(sim, FSDP_MEM_COMM,
               plan_all_reduce_scratch(chunk, size, c->replicas, replica));
    plan_call(sim, FSDP_ALL_REDUCE,
              plan_all_reduce_bytes(chunk, size, c->replicas, replica));
}

static int64_t
kept_grad(const plan_sim_t *sim, const plan_unit_t *unit)
{
    return own_bytes(sim, strategy_of(sim) == PLAN_ZERO1 ? unit->flat
                                                         : chunk_of(sim, unit));
}

static void
finish_reduce(plan_sim_t *sim)
{
    plan_unit_t *unit = sim->reducing;
    if (unit == NULL)
        return;
    drop_scratch(sim);
    all_reduce_replicas(sim, unit);
    plan_add(sim, FSDP_MEM_GRAD_SHARD, kept_grad(sim, unit));
    plan_sum_add(sim, &unit->flat_reduced, FSDP_MEM_GRAD_SHARD,
                 kept_grad(sim, unit));
    plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD, sim->reduce_input);
    plan_drop(sim, FSDP_MEM_COMM, sim->reduce_output);
    sim->reducing = NULL;
}

static void
start_all_reduce(plan_sim_t *sim, const plan_unit_t *unit)
{
    int ranks = sum_ranks(sim), rank = sum_rank(sim);
    int64_t size = plan_size(sim->sum_dtype);
    if (ranks == 1)
        return;
    if (sim->config.order != FSDP_ORDER_MPI)
        sim->reduce_scratch =
            plan_all_reduce_scratch(unit->flat, size, ranks, rank);
    plan_call(sim, FSDP_ALL_REDUCE,
              plan_all_reduce_bytes(unit->flat, size, ranks, rank));
}

static void
start_reduce_scatter(plan_sim_t *sim, const plan_unit_t *unit)
{
    int64_t row = sum_bytes(sim, chunk_of(sim, unit));
    int others = sim->config.shard - 1;
    sim->reduce_output = row;
    if (sim->config.order != FSDP_ORDER_MPI)
        sim->reduce_scratch = others * row;
    plan_add(sim, FSDP_MEM_COMM, sim->reduce_output);
    plan_call(sim, FSDP_REDUCE_SCATTER, others * row);
}

/* The flat gradient, [n] of the data type, is there. */
static void
start_reduce(plan_sim_t *sim, plan_unit_t *unit)
{
    finish_reduce(sim);
    sim->reducing = unit;
    sim->reduce_input = sum_bytes(sim, unit->flat);
    sim->reduce_output = 0;
    if (sim->sum_dtype != sim->data_dtype) {
        plan_add(sim, FSDP_MEM_UNSHARDED_GRAD, sim->reduce_input);
        plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD, data_bytes(sim, unit->flat));
    }
    if (is_whole(sim))
        start_all_reduce(sim, unit);
    else
        start_reduce_scatter(sim, unit);
    plan_add(sim, FSDP_MEM_COMM, sim->reduce_scratch);
    if (sim->scratch_goes_early)
        drop_scratch(sim);
}

/* ---- backward ------------------------------------------------------------ */

static void
prefetch(plan_sim_t *sim, plan_unit_t *unit)
{
    plan_unit_t *target = unit->order > 0 ? sim->order[unit->order - 1] : NULL;
    if (target == NULL || !target->needs_pre_backward || target->prefetched)
        return;
    unshard(sim, target);
    target->prefetched = true;
}

static void
pre_backward(plan_sim_t *sim, plan_unit_t *unit)
{
    if (unit->num_params == 0 || unit->ran_pre_backward)
        return;
    if (unit->needs_pre_backward && !unit->prefetched)
        unshard(sim, unit);
    unit->needs_pre_backward = false;
    if (sim->config.backward_policy == FSDP_BACKWARD_PRE)
        prefetch(sim, unit);
    unit->ran_pre_backward = true;
}

static bool
should_free(const plan_sim_t *sim)
{
    return !is_whole(sim) && (sim->reduces || reshards_after_forward(sim));
}

/* One after another moves into the flat gradient. */
static void
take_grads(plan_sim_t *sim, plan_unit_t *unit)
{
    plan_add(sim, FSDP_MEM_UNSHARDED_GRAD, data_bytes(sim, unit->flat));
    for (int p = 0; p < unit->num_params; p++) {
        plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD,
                  data_bytes(sim, unit->param[p].numel));
        unit->param[p].grad = false;
    }
}

static void
post_backward(plan_sim_t *sim, plan_unit_t *unit)
{
    int64_t bytes = data_bytes(sim, unit->flat);
    take_grads(sim, unit);
    reshard(sim, unit, should_free(sim));
    if (sim->config.backward_policy == FSDP_BACKWARD_POST)
        prefetch(sim, unit);
    plan_sum_add(sim, &unit->flat_grad, FSDP_MEM_UNSHARDED_GRAD, bytes);
    if (!sim->reduces)
        return;
    plan_sum_read(sim, &unit->flat_grad, FSDP_MEM_UNSHARDED_GRAD, bytes);
    unit->flat_grad.count = 0; /* it is the reduction's now */
    start_reduce(sim, unit);
}

static void
end_backward(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++) {
        plan_unit_t *unit = &sim->unit[i];
        if (!is_whole(sim))
            reshard(sim, unit, should_free(sim));
        unit->ran_pre_backward = unit->needs_pre_backward = false;
        unit->prefetched = false;
        unit->order = -1;
    }
    finish_reduce(sim);
    sim->num_order = 0;
}

/* ---- the update ---------------------------------------------------------- */

/* Parameters that are kept whole get the other ranks' updates. */
static void
after_update(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units && keeps_whole(sim); i++)
        if (sim->unit[i].num_params > 0)
            call_gather(sim, &sim->unit[i]);
}

static void
zero_grad(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++)
        plan_sum_clear(sim, &sim->unit[i].flat_reduced, FSDP_MEM_GRAD_SHARD,
                       kept_grad(sim, &sim->unit[i]));
}

const plan_engine_t plan_fsdp1_engine = {
    open_units,    pre_forward,  post_forward, pre_backward,
    post_backward, end_backward, after_update, zero_grad,
};
