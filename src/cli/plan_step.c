/* A step and an evaluation. */
#include "cli/plan_sim.h"

/* PyTorch's clamps: a policy that changes nothing is none. */
static void
choose_dtypes(plan_sim_t *sim)
{
    plan_config_t *c = &sim->config;
    if (c->strategy == PLAN_FSDP2 && c->reduce_dtype == c->param_dtype)
        c->reduce_dtype = FSDP_DTYPE_NONE;
    sim->data_dtype =
        c->param_dtype != FSDP_DTYPE_NONE ? c->param_dtype : c->dtype;
    sim->sum_dtype =
        c->reduce_dtype != FSDP_DTYPE_NONE ? c->reduce_dtype : sim->data_dtype;
}

/* Beside tensors: the data, the ledgers of the communicators (the mesh's, one
 * for reports, one for groups of K, those of the experts' mesh), the rotary
 * table, and what is written down of each parameter.  What a tape writes down of
 * each operator comes in micro_batch().  The sizes of records are rough. */
static void
add_bookkeeping(plan_sim_t *sim)
{
    enum { LEDGER_BYTES = 1024 * sizeof(fsdp_ledger_entry_t) };
    enum { PARAMETER_BYTES = 1300 };
    const plan_config_t *c = &sim->config;
    int comms = 2 + (c->replicas > 1) +
                (c->reshard > 1 && c->reshard < c->shard) +
                (c->expert_parts > 1 ? 2 + (c->replicas > 1) : 0) + (c->tp > 1);
    int64_t bytes = c->data_bytes + comms * (int64_t)LEDGER_BYTES;
    for (int i = 0; i < sim->num_units; i++)
        bytes += sim->unit[i].num_params * PARAMETER_BYTES;
    if (c->model == PLAN_LLAMA)
        bytes += c->context * (int64_t)c->llama.head_dim *
                 (c->dtype == FSDP_FP64 ? 8 : 4);
    plan_add(sim, FSDP_MEM_OTHER, bytes);
}

plan_sim_t *
plan_sim_open(const plan_config_t *config)
{
    plan_sim_t *sim = fsdp_calloc(FSDP_MEM_OTHER, sizeof *sim);
    sim->config = *config;
    sim->engine = config->strategy == PLAN_FSDP2 ? &plan_fsdp2_engine
                                                 : &plan_fsdp1_engine;
    choose_dtypes(sim);
    plan_model_open(sim);
    sim->order = fsdp_calloc(FSDP_MEM_OTHER,
                             (size_t)sim->num_units * sizeof *sim->order);
    add_bookkeeping(sim);
    sim->engine->open(sim);
    return sim;
}

void
plan_sim_close(plan_sim_t **sim)
{
    plan_model_close(*sim);
    fsdp_free((*sim)->order);
    fsdp_free(*sim);
    *sim = NULL;
}

/* Every operator is a record of about half a kilobyte, its tensor included. */
static int64_t
tape_bytes(const plan_tape_t *tape)
{
    return 512 * (int64_t)tape->node.count;
}

static void
micro_batch(plan_sim_t *sim, int j)
{
    const plan_config_t *c = &sim->config;
    bool last = j == c->micros - 1;
    sim->reduces = last || c->accumulation != PLAN_NO_SYNC;
    sim->all_reduces = last || c->accumulation != PLAN_DEFER_ALL_REDUCE;
    plan_tape_t *tape = plan_tape_new(sim, true);
    plan_tensor_t *loss = plan_forward(sim, c->batch);
    int64_t records = tape_bytes(tape);
    plan_add(sim, FSDP_MEM_OTHER, records);
    plan_backward(sim, loss);
    plan_tape_free(sim);
    plan_drop(sim, FSDP_MEM_OTHER, records);
}

/* States are made at the first step, beside each parameter. */
static void
update(plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    for (int i = 0; i < sim->num_units; i++)
        for (int p = 0; p < sim->unit[i].num_params; p++) {
            plan_param_t *param = &sim->unit[i].param[p];
            if (!param->has_states)
                plan_add_kept(sim, FSDP_MEM_OPTIMIZER,
                              c->optimizer_states * param->state_numel *
                                  plan_size(c->dtype));
            param->has_states = true;
        }
}

void
plan_step(plan_sim_t *sim)
{
    for (int j = 0; j < sim->config.micros; j++)
        micro_batch(sim, j);
    update(sim);
    sim->engine->after_update(sim);
    sim->engine->zero_grad(sim);
}

/* Micro-batch `index` of the held-out rows; one beyond them all is a repetition
 * of the first, so that all ranks call the same collectives. */
static int64_t
held_out_rows(const plan_config_t *c, long index)
{
    if (c->model != PLAN_MLP)
        return c->batch;
    if (index >= c->eval_batches)
        index = 0;
    int64_t left = c->eval_rows - index * c->batch;
    return left < c->batch ? left : c->batch;
}

void
plan_evaluate(plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    int ranks = c->shard * c->replicas;
    for (long first = 0; first < c->eval_batches; first += ranks) {
        plan_tape_new(sim, false);
        plan_forward(sim, held_out_rows(c, first + c->rank));
        plan_tape_free(sim);
    }
}
