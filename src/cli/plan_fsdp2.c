/* fully_shard(): when a unit is gathered and freed, and what a reduction needs
 * (fsdp-semantics, parts 2 and 3).
 *
 *      gather   [S, c] of the data type in "communication" -> copied out into
 *               the whole parameters -> freed
 *      reduce   whole gradients -> input [S, c] of the reduce type -> freed;
 *               output [c]; the others' rows [S - 1, c] while it is under way;
 *               -> a gradient shard for each parameter -> all freed, when the
 *               next unit reduces or the backward ends */
#include "cli/plan_sim.h"

static int64_t
data_size(const plan_sim_t *sim)
{
    return plan_size(sim->data_dtype);
}

static int64_t
sum_size(const plan_sim_t *sim)
{
    return plan_size(sim->sum_dtype);
}

static int64_t
own_size(const plan_sim_t *sim)
{
    return plan_size(sim->config.dtype);
}

/* ---- the shards ---------------------------------------------------------- */

/* Of the experts P ranks have each a part. */
static int
ranks_of(const plan_sim_t *sim, const plan_unit_t *unit)
{
    return sim->config.shard / unit->parts;
}

static int
groups_of(const plan_sim_t *sim)
{
    int k = sim->config.reshard;
    return k > 1 && k < sim->config.shard ? k : 0;
}

static bool
reshards(const plan_sim_t *sim, const plan_unit_t *unit)
{
    int k = sim->config.reshard;
    if (k == FSDP_RESHARD_AUTO)
        return !unit->is_root;
    return k != FSDP_RESHARD_FALSE && k != 1;
}

/* With --offload each unit's ranks first tell each other whether they could make
 * their files: a status, the length of a message, its hash. */
static void
agree_on_files(plan_sim_t *sim, const plan_unit_t *unit)
{
    int64_t verdict = 3 * sizeof(int64_t);
    if (sim->config.offload)
        plan_call(sim, FSDP_ALL_GATHER, verdict * (ranks_of(sim, unit) - 1));
}

static void
open_units(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++) {
        plan_unit_t *unit = &sim->unit[i];
        agree_on_files(sim, unit);
        unit->groups = groups_of(sim);
        unit->reshard_after_forward = reshards(sim, unit);
        for (int p = 0; p < unit->num_params; p++) {
            unit->param[p].state_numel = unit->param[p].chunk;
            plan_add_kept(sim, FSDP_MEM_PARAM_SHARD,
                          unit->param[p].chunk * own_size(sim));
        }
    }
}

/* ---- gathering ----------------------------------------------------------- */

/* From all ranks, or from K that kept a K-th each. */
static void
unshard(plan_sim_t *sim, plan_unit_t *unit)
{
    if (unit->pending || unit->state == PLAN_UNSHARDED || unit->num_params == 0)
        return;
    int ranks = unit->state == PLAN_SHARDED_POST_FORWARD ? unit->groups
                                                         : ranks_of(sim, unit);
    int64_t whole = ranks_of(sim, unit) * unit->chunk * data_size(sim);
    unit->pending = true;
    unit->pending_bytes = ranks > 1 ? whole : 0;
    if (ranks == 1)
        return;
    plan_add(sim, FSDP_MEM_COMM, whole);
    plan_call(sim, FSDP_ALL_GATHER, whole / ranks * (ranks - 1));
}

static int64_t
kept_bytes(const plan_sim_t *sim, const plan_unit_t *unit)
{
    return ranks_of(sim, unit) * unit->chunk / unit->groups * data_size(sim);
}

static void
wait_for_unshard(plan_sim_t *sim, plan_unit_t *unit)
{
    if (!unit->pending)
        return;
    plan_add(sim, FSDP_MEM_UNSHARDED_PARAM,
             ranks_of(sim, unit) * unit->chunk * data_size(sim));
    plan_drop(sim, FSDP_MEM_COMM, unit->pending_bytes);
    if (unit->state == PLAN_SHARDED_POST_FORWARD)
        plan_drop(sim, FSDP_MEM_UNSHARDED_PARAM, kept_bytes(sim, unit));
    unit->pending = false;
    unit->state = PLAN_UNSHARDED;
}

static void
to_sharded(plan_sim_t *sim, plan_unit_t *unit)
{
    if (unit->state == PLAN_UNSHARDED)
        plan_drop(sim, FSDP_MEM_UNSHARDED_PARAM,
                  ranks_of(sim, unit) * unit->chunk * data_size(sim));
    else if (unit->state == PLAN_SHARDED_POST_FORWARD)
        plan_drop(sim, FSDP_MEM_UNSHARDED_PARAM, kept_bytes(sim, unit));
    unit->state = PLAN_SHARDED;
}

/* A K-th of each parameter is copied before that parameter goes. */
static void
to_sharded_post_forward(plan_sim_t *sim, plan_unit_t *unit)
{
    int64_t size = data_size(sim);
    for (int p = 0; p < unit->num_params; p++) {
        int64_t whole = ranks_of(sim, unit) * unit->param[p].chunk * size;
        plan_add(sim, FSDP_MEM_UNSHARDED_PARAM, whole / unit->groups);
        plan_drop(sim, FSDP_MEM_UNSHARDED_PARAM, whole);
    }
    unit->state = PLAN_SHARDED_POST_FORWARD;
}

static void
reshard(plan_sim_t *sim, plan_unit_t *unit)
{
    if (unit->training != FSDP_STATE_FORWARD)
        to_sharded(sim, unit);
    else if (unit->reshard_after_forward && unit->groups > 0)
        to_sharded_post_forward(sim, unit);
    else if (unit->reshard_after_forward)
        to_sharded(sim, unit);
}

/* ---- forward ------------------------------------------------------------- */

/* By default the backward looks one unit ahead; a list of the next or last `n`
 * may take its place, or help the forward. */
static void
prefetch_list(plan_sim_t *sim, const plan_unit_t *unit, long n, int step)
{
    long i = unit->is_root && step < 0 ? sim->num_blocks + 1 : unit - sim->unit;
    for (long k = 1; k <= n && i <= sim->num_blocks + 1; k++)
        if (i + k * step >= 1 && i + k * step <= sim->num_blocks)
            unshard(sim, &sim->unit[i + k * step]);
}

static plan_tensor_t *
pre_forward(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *input)
{
    input = plan_cast(sim, input, sim->config.param_dtype);
    unit->training = FSDP_STATE_FORWARD;
    unshard(sim, unit);
    wait_for_unshard(sim, unit);
    prefetch_list(sim, unit, sim->config.forward_prefetch, 1);
    return unit->num_params > 0 ? plan_after_grads(sim, input, unit) : input;
}

static plan_tensor_t *
post_forward(plan_sim_t *sim, plan_unit_t *unit, plan_tensor_t *output)
{
    if (unit->num_params > 0) {
        reshard(sim, unit);
        if (sim->tape->recording) {
            unit->order = sim->num_order;
            sim->order[sim->num_order++] = unit;
        }
    }
    unit->training = FSDP_STATE_IDLE;
    if (output->needs_grad)
        plan_on_grad(output, unit);
    return unit->is_root ? plan_cast(sim, output, sim->config.output_dtype)
                         : output;
}

/* ---- reducing ------------------------------------------------------------ */

/* The room for the others' rows goes when the last of them has come, which the
 * rank notices when it next waits for anything: after a moment, or as late as
 * when the reduction ends. */
static void
drop_scratch(plan_sim_t *sim)
{
    plan_drop(sim, FSDP_MEM_COMM, sim->reduce_scratch);
    sim->reduce_scratch = 0;
}

static void
all_reduce(plan_sim_t *sim, const plan_unit_t *unit)
{
    const plan_config_t *c = &sim->config;
    int replica = c->rank / c->shard;
    if (c->replicas == 1)
        return;
    plan_touch(sim, FSDP_MEM_COMM,
               plan_all_reduce_scratch(unit->chunk, sum_size(sim), c->replicas,
                                       replica));
    plan_call(sim, FSDP_ALL_REDUCE,
              plan_all_reduce_bytes(unit->chunk, sum_size(sim), c->replicas,
                                    replica));
}

/* What earlier backwards have left for the replicas joins in; false: it waits on. */
static bool
add_partial(plan_sim_t *sim, plan_unit_t *unit)
{
    int64_t bytes = unit->chunk * sum_size(sim);
    if (sim->all_reduces && unit->partial.count == 0)
        return true;
    plan_add(sim, FSDP_MEM_UNSHARDED_GRAD, bytes);
    plan_sum_add(sim, &unit->partial, FSDP_MEM_UNSHARDED_GRAD, bytes);
    if (!sim->all_reduces)
        return false;
    plan_sum_clear(sim, &unit->partial, FSDP_MEM_UNSHARDED_GRAD, bytes);
    return true;
}

static void
view_out(plan_sim_t *sim, plan_unit_t *unit)
{
    for (int p = 0; p < unit->num_params; p++) {
        plan_param_t *param = &unit->param[p];
        int64_t bytes = param->chunk * own_size(sim);
        plan_add_kept(sim, FSDP_MEM_GRAD_SHARD, bytes);
        plan_sum_add(sim, &param->reduced, FSDP_MEM_GRAD_SHARD, bytes);
    }
}

static void
finish_reduce(plan_sim_t *sim)
{
    plan_unit_t *unit = sim->reducing;
    if (unit == NULL)
        return;
    drop_scratch(sim);
    bool complete = true;
    if (sim->config.replicas > 1) {
        complete = add_partial(sim, unit);
        if (complete)
            all_reduce(sim, unit);
    }
    if (complete)
        view_out(sim, unit);
    plan_drop(sim, FSDP_MEM_COMM, sim->reduce_input + sim->reduce_output);
    sim->reducing = NULL;
}

static void
free_whole_grads(plan_sim_t *sim, plan_unit_t *unit)
{
    for (int p = 0; p < unit->num_params; p++) {
        plan_param_t *param = &unit->param[p];
        if (param->grad)
            plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD,
                      param->numel * data_size(sim));
        param->grad = false;
        plan_sum_clear(sim, &param->accumulated, FSDP_MEM_UNSHARDED_GRAD,
                       param->numel * sum_size(sim));
    }
}

static void
start_reduce(plan_sim_t *sim, plan_unit_t *unit)
{
    int ranks = ranks_of(sim, unit);
    int64_t row = unit->chunk * sum_size(sim);
    finish_reduce(sim);
    sim->reducing = unit;
    sim->reduce_input = ranks * row;
    sim->reduce_output = ranks > 1 ? row : 0;
    plan_add(sim, FSDP_MEM_COMM, sim->reduce_input + sim->reduce_output);
    if (ranks > 1) {
        sim->reduce_scratch =
            sim->config.order == FSDP_ORDER_MPI ? 0 : (ranks - 1) * row;
        plan_add(sim, FSDP_MEM_COMM, sim->reduce_scratch);
        plan_call(sim, FSDP_REDUCE_SCATTER, (ranks - 1) * row);
        if (sim->scratch_goes_early)
            drop_scratch(sim);
    }
    free_whole_grads(sim, unit);
}

/* ---- backward ------------------------------------------------------------ */

/* The unit that ran before this one is needed next. */
static void
prefetch(plan_sim_t *sim, plan_unit_t *unit)
{
    int current = unit->order;
    unit->order = -1;
    if (current > 0)
        unshard(sim, sim->order[current - 1]);
}

static void
pre_backward(plan_sim_t *sim, plan_unit_t *unit)
{
    bool last = unit == &sim->unit[1]; /* nothing before it: no list */
    bool block = unit - sim->unit <= sim->num_blocks;
    long n = last || !block ? 0 : sim->config.backward_prefetch;
    if (unit->num_params > 0 && unit->training != FSDP_STATE_PRE_BACKWARD) {
        unit->training = FSDP_STATE_PRE_BACKWARD;
        unshard(sim, unit);
        wait_for_unshard(sim, unit);
        if (n <= 0)
            prefetch(sim, unit);
    }
    prefetch_list(sim, unit, n, -1);
}

/* The gradient of this backward, in the reduce type, joins those before. */
static void
accumulate(plan_sim_t *sim, plan_param_t *param)
{
    int64_t bytes = param->numel * sum_size(sim);
    if (!param->grad)
        return;
    plan_add(sim, FSDP_MEM_UNSHARDED_GRAD, bytes);
    plan_drop(sim, FSDP_MEM_UNSHARDED_GRAD, param->numel * data_size(sim));
    param->grad = false;
    plan_sum_add(sim, &param->accumulated, FSDP_MEM_UNSHARDED_GRAD, bytes);
}

static void
post_backward(plan_sim_t *sim, plan_unit_t *unit)
{
    unit->training = FSDP_STATE_POST_BACKWARD;
    for (int p = 0; p < unit->num_params; p++)
        if (!sim->reduces || unit->param[p].accumulated.count > 0)
            accumulate(sim, &unit->param[p]);
    reshard(sim, unit);
    if (!sim->reduces)
        return;
    for (int p = 0; p < unit->num_params; p++)
        plan_sum_read(sim, &unit->param[p].accumulated, FSDP_MEM_UNSHARDED_GRAD,
                      unit->param[p].numel * sum_size(sim));
    start_reduce(sim, unit);
}

/* A unit whose inputs need no gradient has had no post-backward yet. */
static void
end_backward(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++) {
        plan_unit_t *unit = &sim->unit[i];
        if (unit->num_params > 0 && unit->training != FSDP_STATE_POST_BACKWARD)
            post_backward(sim, unit);
        unit->training = FSDP_STATE_IDLE;
        unit->order = -1;
        if (unit->pending) { /* prefetched, but not used */
            plan_drop(sim, FSDP_MEM_COMM, unit->pending_bytes);
            unit->pending = false;
        }
    }
    finish_reduce(sim);
    sim->num_order = 0;
}

/* ---- the update ---------------------------------------------------------- */

static void
after_update(plan_sim_t *sim)
{
    (void)sim; /* shards are all that there is */
}

static void
zero_grad(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++)
        for (int p = 0; p < sim->unit[i].num_params; p++) {
            plan_param_t *param = &sim->unit[i].param[p];
            plan_sum_clear(sim, &param->reduced, FSDP_MEM_GRAD_SHARD,
                           param->chunk * own_size(sim));
        }
}

const plan_engine_t plan_fsdp2_engine = {
    open_units,    pre_forward,  post_forward, pre_backward,
    post_backward, end_backward, after_update, zero_grad,
};
