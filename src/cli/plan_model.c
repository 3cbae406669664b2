/* Units and parameters, from the model itself, which has no values. */
#include <string.h>

#include "cli/plan_sim.h"

static fsdp_module_t *
create(const plan_config_t *c)
{
    switch (c->model) {
    case PLAN_GPT2:
        return fsdp_gpt2_create(&c->gpt2);
    case PLAN_LLAMA:
        return fsdp_llama_create(&c->llama);
    default:
        return fsdp_mlp_create(&c->mlp);
    }
}

static int
count_blocks(const plan_config_t *c)
{
    return c->model == PLAN_GPT2    ? (int)c->gpt2.n_layer
           : c->model == PLAN_LLAMA ? (int)c->llama.num_hidden_layers
                                    : c->mlp.num_layers;
}

static fsdp_module_t *
block(const plan_config_t *c, fsdp_module_t *model, int i)
{
    switch (c->model) {
    case PLAN_GPT2:
        return fsdp_gpt2_block(model, i);
    case PLAN_LLAMA:
        return fsdp_llama_block(model, i);
    default:
        return fsdp_mlp_layer(model, i);
    }
}

static plan_param_t
describe(const plan_config_t *c, const fsdp_parameter_t *p, int shard,
         int parts)
{
    plan_param_t param = {
        .name = p->name, .ndim = p->ndim, .parts = parts, .numel = 1};
    int cut = plan_tp_dim(c, p->name);
    memcpy(param.shape, p->shape, sizeof param.shape);
    if (cut >= 0)
        param.shape[cut] /= (size_t)c->tp;
    for (int d = 0; d < p->ndim; d++)
        param.numel *= (int64_t)param.shape[d];
    param.numel /= parts;
    for (int d = 1; d < p->ndim && c->largest; d++)
        if (param.shape[d] > param.shape[param.dim] &&
            param.shape[d] % (size_t)shard == 0)
            param.dim = d;
    int64_t rows = (int64_t)param.shape[param.dim];
    if (param.dim == 0)
        rows /= parts;
    int64_t row = rows > 0 ? param.numel / rows : 0;
    param.chunk = (rows + shard - 1) / shard * row;
    return param;
}

/* Those of the module, but for the `num_taken` ones that units below have, which
 * come in the same order. */
static void
fill_unit(plan_sim_t *sim, plan_unit_t *unit, fsdp_module_t *module,
          const fsdp_parameter_t *const *taken, int num_taken)
{
    size_t count = fsdp_module_parameters(module, NULL, 0);
    size_t bytes = (count + 1) * sizeof(fsdp_parameter_t *);
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    fsdp_module_parameters(module, list, count);
    unit->name = module->name;
    unit->order = -1;
    unit->parts = unit->parts > 0 ? unit->parts : 1;
    unit->param =
        fsdp_calloc(FSDP_MEM_OTHER, (count + 1) * sizeof *unit->param);
    int next = 0;
    for (size_t i = 0; i < count; i++) {
        if (next < num_taken && list[i] == taken[next]) {
            next++;
            continue;
        }
        plan_param_t *param = &unit->param[unit->num_params++];
        *param = describe(&sim->config, list[i],
                          sim->config.shard / unit->parts, unit->parts);
        unit->numel += (int64_t)fsdp_parameter_numel(list[i]);
        unit->chunk += param->chunk;
    }
    fsdp_free(list);
}

/* A block, and its experts if they are a unit of their own. */
static void
fill_block(plan_sim_t *sim, int i)
{
    const plan_config_t *c = &sim->config;
    fsdp_module_t *module = block(c, sim->module, i);
    fsdp_parameter_t *expert[4];
    size_t count = 0;
    if (c->expert_parts > 1) {
        fsdp_module_t *experts = fsdp_gpt2_experts(sim->module, i);
        plan_unit_t *unit = &sim->unit[1 + count_blocks(c) + i];
        unit->parts = c->expert_parts;
        fill_unit(sim, unit, experts, NULL, 0);
        count = fsdp_module_parameters(experts, expert, 4);
    }
    fill_unit(sim, &sim->unit[1 + i], module,
              (const fsdp_parameter_t *const *)expert, (int)count);
}

void
plan_model_open(plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    int blocks = count_blocks(c);
    sim->module = create(c);
    sim->num_blocks = blocks;
    sim->num_units = 1 + blocks + (c->expert_parts > 1 ? blocks : 0);
    sim->unit =
        fsdp_calloc(FSDP_MEM_OTHER, (size_t)sim->num_units * sizeof *sim->unit);
    size_t count = fsdp_module_parameters(sim->module, NULL, 0), num_taken = 0;
    fsdp_parameter_t **taken =
        fsdp_alloc(FSDP_MEM_OTHER, (count + 1) * sizeof *taken);
    for (int i = 0; i < blocks; i++) {
        fill_block(sim, i);
        num_taken += fsdp_module_parameters(
            block(c, sim->module, i), taken + num_taken, count - num_taken);
    }
    sim->unit[0].is_root = true;
    fill_unit(sim, &sim->unit[0], sim->module,
              (const fsdp_parameter_t *const *)taken, (int)num_taken);
    fsdp_free(taken);
}

void
plan_model_close(plan_sim_t *sim)
{
    for (int i = 0; i < sim->num_units; i++)
        fsdp_free(sim->unit[i].param);
    fsdp_free(sim->unit);
    fsdp_module_destroy(&sim->module);
}

int64_t
plan_model_numel(const plan_sim_t *sim)
{
    int64_t numel = 0;
    for (int i = 0; i < sim->num_units; i++)
        numel += sim->unit[i].numel;
    return numel;
}
