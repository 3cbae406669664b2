#include "fsdp/moe.h"

#include "fsdp/layers.h"
#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "fsdp/status.h"

enum { MOE_GATE, MOE_EXPERTS };
enum { EXPERTS_W1, EXPERTS_W2, EXPERTS_W3 };

/* ---- configuration ------------------------------------------------------- */

fsdp_moe_config_t
fsdp_moe_config_default(void)
{
    return (fsdp_moe_config_t){.num_experts = 8,
                               .top_k = 2,
                               .kind = FSDP_EXPERT_SWIGLU,
                               .norm_topk_prob = true,
                               .std = 0.02,
                               .down_std = 0.02,
                               .dtype = FSDP_FP32};
}

char *
fsdp_moe_config_fault(const fsdp_moe_config_t *c)
{
    size_t ranks = c->comm != NULL ? (size_t)fsdp_comm_size(c->comm) : 1;
    if (c->channels == 0 || c->hidden == 0)
        return fsdp_format("experts of %zu channels and %zu hidden ones",
                           c->channels, c->hidden);
    if (c->top_k < 1 || c->top_k > c->num_experts)
        return fsdp_format("a token cannot go to %zu of %zu experts", c->top_k,
                           c->num_experts);
    if (c->num_experts % ranks != 0)
        return fsdp_format("%zu expert ranks do not divide %zu experts; choose "
                           "a multiple",
                           ranks, c->num_experts);
    return NULL;
}

/* ---- experts ------------------------------------------------------------- */

/* rows[R,C], counts[P,E'] -> [R,C] */
static fsdp_values_t
experts_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const fsdp_moe_config_t *c = self->config;
    fsdp_parameter_t **p = self->parameter;
    fsdp_tensor_t *x = inputs.tensor[0], *counts = inputs.tensor[1];
    fsdp_reduce_order_t order = c->reduce_order;
    fsdp_tensor_t *h =
        fsdp_grouped_linear(tape, x, p[EXPERTS_W1], counts, order);
    if (c->kind == FSDP_EXPERT_GELU) {
        h = fsdp_gelu_tanh(tape, h);
    } else {
        h = fsdp_silu(tape, h);
        x = fsdp_grouped_linear(tape, x, p[EXPERTS_W3], counts, order);
        h = fsdp_multiply(tape, h, x);
    }
    return fsdp_values1(
        fsdp_grouped_linear(tape, h, p[EXPERTS_W2], counts, order));
}

static void
add_weight(fsdp_module_t *experts, const char *what, size_t out, size_t in,
           double std)
{
    const fsdp_moe_config_t *c = experts->config;
    int ranks = c->comm != NULL ? fsdp_comm_size(c->comm) : 1;
    size_t shape[3] = {c->num_experts / (size_t)ranks, out, in};
    char *name = fsdp_format("%s.%s", experts->name, what);
    fsdp_parameter_t *p = fsdp_module_add_parameter(
        experts, fsdp_parameter_create(name, c->dtype, 3, shape,
                                       FSDP_INIT_NORMAL, std, c->seed));
    fsdp_free(name);
    if (ranks == 1)
        return;
    p->part_dim = 0;
    p->num_parts = ranks;
    p->part = fsdp_comm_rank(c->comm);
}

static fsdp_module_t *
experts_create(const char *moe, const fsdp_moe_config_t *c)
{
    char *name = fsdp_format("%s.experts", moe);
    fsdp_module_t *m =
        fsdp_module_create(name, "Experts", experts_forward, c, sizeof *c);
    fsdp_free(name);
    add_weight(m, "w1", c->hidden, c->channels, c->std);
    add_weight(m, "w2", c->channels, c->hidden, c->down_std);
    if (c->kind == FSDP_EXPERT_SWIGLU)
        add_weight(m, "w3", c->hidden, c->channels, c->std);
    return m;
}

/* ---- the layer ----------------------------------------------------------- */

/* The experts' answers to rows[N K,C], wherever the experts are. */
static fsdp_tensor_t *
ask_experts(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_tensor_t *rows,
            fsdp_tensor_t *counts)
{
    const fsdp_moe_config_t *c = self->config;
    fsdp_module_t *experts = self->child[MOE_EXPERTS];
    if (c->comm == NULL || fsdp_comm_size(c->comm) == 1)
        return fsdp_module_call(experts, tape, fsdp_values2(rows, counts))
            .tensor[0];
    const char *unit = experts->name;
    fsdp_tensor_t *mine = fsdp_exchange_counts(tape, counts, c->comm, unit);
    rows = fsdp_exchange_rows(tape, rows, counts, mine, false, c->comm, unit);
    rows = fsdp_module_call(experts, tape, fsdp_values2(rows, mine)).tensor[0];
    return fsdp_exchange_rows(tape, rows, counts, mine, true, c->comm, unit);
}

static fsdp_values_t
moe_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const fsdp_moe_config_t *c = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    size_t shape[2] = {fsdp_tensor_numel(x) / c->channels, c->channels};
    fsdp_tensor_t *tokens = fsdp_reshape(tape, x, 2, shape);
    fsdp_tensor_t *logits =
        fsdp_module_call1(self->child[MOE_GATE], tape, tokens);
    fsdp_routing_t r = fsdp_route(tape, logits, c->top_k, c->norm_topk_prob,
                                  c->router_aux_loss_coef);
    fsdp_tensor_t *rows = fsdp_dispatch(tape, tokens, &r);
    rows = ask_experts(self, tape, rows, r.counts);
    fsdp_tensor_t *y = fsdp_combine(tape, rows, &r);
    y = fsdp_reshape(tape, y, x->ndim, x->shape);
    return r.aux != NULL ? fsdp_values2(y, r.aux) : fsdp_values1(y);
}

static fsdp_module_t *
gate_create(const char *moe, const fsdp_moe_config_t *c)
{
    char *name = fsdp_format("%s.gate", moe);
    fsdp_module_t *m = fsdp_linear_create(name, c->channels, c->num_experts,
                                          false, c->dtype, c->seed);
    fsdp_free(name);
    m->parameter[0]->init = FSDP_INIT_NORMAL;
    m->parameter[0]->init_scale = c->std;
    return m;
}

fsdp_module_t *
fsdp_moe_create(const char *name, const fsdp_moe_config_t *config)
{
    char *fault = fsdp_moe_config_fault(config);
    FSDP_CHECK(fault == NULL, "%s: %s", name, fault);
    fsdp_module_t *m =
        fsdp_module_create(name, "MoE", moe_forward, config, sizeof *config);
    fsdp_module_add_child(m, gate_create(name, config));
    fsdp_module_add_child(m, experts_create(name, config));
    return m;
}

fsdp_module_t *
fsdp_moe_experts(fsdp_module_t *moe)
{
    return moe->child[MOE_EXPERTS];
}
