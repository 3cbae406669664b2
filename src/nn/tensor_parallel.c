/* Modules become parallel before they have any storage: a parameter is made
 * smaller, and a module gets another forward. */

#include "fsdp/tensor_parallel.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/mlp.h"
#include "fsdp/status.h"
#include "nn/gpt2_internal.h"
#include "nn/llama_internal.h"
#include "nn/parallel_layers.h"

/* ---- how each kind of module is cut -------------------------------------- */

typedef struct kind {
    const char *name;
    fsdp_parallel_style_t style;
    int weight_dim, bias_dim; /* -1: not cut */
    bool out_in;
    fsdp_forward_fn_t forward;
    size_t (*heads)(const fsdp_module_t *attention);
    void (*keep_heads)(fsdp_module_t *attention, int part, int parts);
} kind_t;

static const kind_t kinds[] = {
    {"Linear", FSDP_COLWISE_PARALLEL, 0, 0, true, fsdp_parallel_linear_forward,
     NULL, NULL},
    {"Linear", FSDP_ROWWISE_PARALLEL, 1, -1, true, fsdp_parallel_linear_forward,
     NULL, NULL},
    {"Conv1D", FSDP_COLWISE_PARALLEL, 1, 0, false, fsdp_parallel_linear_forward,
     NULL, NULL},
    {"Conv1D", FSDP_ROWWISE_PARALLEL, 0, -1, false,
     fsdp_parallel_linear_forward, NULL, NULL},
    {"Embedding", FSDP_ROWWISE_PARALLEL, 0, -1, true,
     fsdp_parallel_embedding_forward, NULL, NULL},
    {"LMHead", FSDP_COLWISE_PARALLEL, 0, -1, true, fsdp_parallel_head_forward,
     NULL, NULL},
    {"GPT2Attention", FSDP_HEAD_PARALLEL, -1, -1, false, NULL,
     fsdp_gpt2_attention_heads, fsdp_gpt2_attention_keep_heads},
    {"LlamaAttention", FSDP_HEAD_PARALLEL, -1, -1, false, NULL,
     fsdp_llama_attention_heads, fsdp_llama_attention_keep_heads},
};
static const char *const styles[] = {"column-parallel", "row-parallel",
                                     "head-parallel"};

static const kind_t *
find_kind(const fsdp_module_t *m, fsdp_parallel_style_t style)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, m->kind) == 0 && kinds[i].style == style)
            return &kinds[i];
    return NULL;
}

/* Parameter i of a module of that kind is cut along this dim. */
static int
dim_of(const kind_t *kind, int i)
{
    return i == 0 ? kind->weight_dim : i == 1 ? kind->bias_dim : -1;
}

/* ---- what a plan asks for ------------------------------------------------ */

typedef struct plan {
    const fsdp_tensor_parallel_t *tp;
    const fsdp_parallel_plan_t *entry;
    int count;
    int part; /* this rank; 0 without ranks */
} plan_t;

static const fsdp_parallel_plan_t *
entry_for(const plan_t *plan, const fsdp_module_t *m)
{
    for (int i = 0; i < plan->count; i++)
        if (fnmatch(plan->entry[i].module, m->name, 0) == 0)
            return &plan->entry[i];
    return NULL;
}

static int
groups_of(const fsdp_parallel_plan_t *entry)
{
    return entry->groups > 0 ? entry->groups : 1;
}

/* ---- checks: nothing is changed ------------------------------------------ */

static fsdp_status_t
check_tp(const fsdp_tensor_parallel_t *tp)
{
    if (tp->degree < 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "tensor parallelism over %d ranks; give 1 or more",
                          tp->degree);
    if (tp->comm != NULL && fsdp_comm_size(tp->comm) != tp->degree)
        return fsdp_error(FSDP_ERR_USAGE,
                          "tensor parallelism over %d ranks, but the "
                          "communicator has %d",
                          tp->degree, fsdp_comm_size(tp->comm));
    return FSDP_OK;
}

static fsdp_status_t
check_length(const plan_t *plan, const char *what, const char *name, size_t n,
             int groups)
{
    size_t ranks = (size_t)plan->tp->degree, pieces = ranks * (size_t)groups;
    if (n % pieces == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "tensor parallelism over %zu ranks does not divide %s of "
                      "%s, %zu; a multiple of %zu is needed",
                      ranks, what, name, n, pieces);
}

static fsdp_status_t
check_cuts(const plan_t *plan, const fsdp_parallel_plan_t *entry,
           const kind_t *kind, const fsdp_module_t *m)
{
    fsdp_status_t status = FSDP_OK;
    if (kind->heads != NULL)
        return check_length(plan, "the heads", m->name, kind->heads(m), 1);
    for (int i = 0; i < m->num_parameters && status == FSDP_OK; i++) {
        const fsdp_parameter_t *p = m->parameter[i];
        int dim = dim_of(kind, i);
        char what[32];
        snprintf(what, sizeof what, "dim %d", dim);
        if (dim >= 0)
            status = check_length(plan, what, p->name, p->shape[dim],
                                  groups_of(entry));
    }
    return status;
}

/* Is it new enough for its shape to be changed? */
static fsdp_status_t
check_new(const fsdp_parameter_t *p)
{
    if (p->num_parts != 1)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s is one part of a larger one already; "
                          "parallelize a module once",
                          p->name);
    if (p->data != NULL || p->managed != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "parameter %s has storage already; parallelize a "
                          "model before fully_shard() and before it is used",
                          p->name);
    return FSDP_OK;
}

static fsdp_status_t
check_module(const plan_t *plan, fsdp_module_t *m)
{
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < m->num_parameters && status == FSDP_OK; i++)
        if (plan->tp->comm != NULL)
            status = check_new(m->parameter[i]);
    const fsdp_parallel_plan_t *entry = entry_for(plan, m);
    if (status != FSDP_OK || entry == NULL)
        return status;
    const kind_t *kind = find_kind(m, entry->style);
    if (kind == NULL || (m->config != NULL) == (kind->heads == NULL))
        return fsdp_error(FSDP_ERR_USAGE, "module %s, a %s, cannot be made %s",
                          m->name, m->kind, styles[entry->style]);
    return check_cuts(plan, entry, kind, m);
}

static fsdp_status_t
check_entries(const plan_t *plan, fsdp_module_t *const *modules, size_t count)
{
    for (int e = 0; e < plan->count; e++) {
        size_t i = 0;
        while (i < count &&
               fnmatch(plan->entry[e].module, modules[i]->name, 0) != 0)
            i++;
        if (i == count)
            return fsdp_error(FSDP_ERR_USAGE,
                              "no module is called %s, as the plan of tensor "
                              "parallelism says",
                              plan->entry[e].module);
    }
    return FSDP_OK;
}

/* ---- the change ---------------------------------------------------------- */

/* One of the parts that a parameter is cut into; a tied one may be done. */
static void
cut_parameter(const plan_t *plan, fsdp_parameter_t *p, int dim, int groups)
{
    if (p->num_parts != 1)
        return;
    p->num_parts = plan->tp->degree;
    p->part = plan->part;
    p->part_dim = dim;
    p->part_groups = groups;
    p->shape[dim] /= (size_t)plan->tp->degree;
}

static void
change_module(const plan_t *plan, fsdp_module_t *m)
{
    const fsdp_parallel_plan_t *entry = entry_for(plan, m);
    if (entry == NULL)
        return;
    const kind_t *kind = find_kind(m, entry->style);
    bool ranks = plan->tp->comm != NULL;
    if (kind->heads != NULL && ranks)
        kind->keep_heads(m, plan->part, plan->tp->degree);
    if (kind->heads != NULL)
        return;
    fsdp_parallel_layer_t *layer = fsdp_alloc(FSDP_MEM_OTHER, sizeof *layer);
    *layer =
        (fsdp_parallel_layer_t){.tp = *plan->tp,
                                .groups = groups_of(entry),
                                .inputs = entry->style == FSDP_ROWWISE_PARALLEL,
                                .out_in = kind->out_in};
    m->config = layer;
    m->forward = kind->forward;
    for (int i = 0; i < m->num_parameters && ranks; i++)
        if (dim_of(kind, i) >= 0)
            cut_parameter(plan, m->parameter[i], dim_of(kind, i),
                          layer->groups);
}

/* What is left is the same on all ranks, and the first of them counts it. */
static void
keep_whole(const plan_t *plan, fsdp_module_t *m)
{
    for (int i = 0; i < m->num_parameters && plan->tp->comm != NULL; i++) {
        if (m->parameter[i]->num_parts != 1)
            continue;
        m->parameter[i]->num_parts = plan->tp->degree;
        m->parameter[i]->part = plan->part;
    }
}

static fsdp_status_t
apply(const plan_t *plan, fsdp_module_t *const *modules, size_t count)
{
    fsdp_status_t status = check_entries(plan, modules, count);
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        status = check_module(plan, modules[i]);
    if (status != FSDP_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        change_module(plan, modules[i]);
    for (size_t i = 0; i < count; i++)
        keep_whole(plan, modules[i]);
    return FSDP_OK;
}

fsdp_status_t
fsdp_parallelize_module(fsdp_module_t *module, const fsdp_tensor_parallel_t *tp,
                        const fsdp_parallel_plan_t *plan, int n)
{
    fsdp_status_t status = check_tp(tp);
    if (status != FSDP_OK || tp->degree == 1)
        return status;
    plan_t p = {.tp = tp, .entry = plan, .count = n};
    p.part = tp->comm != NULL ? fsdp_comm_rank(tp->comm) : 0;
    size_t count = fsdp_module_modules(module, NULL, 0);
    fsdp_module_t **modules =
        fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *modules);
    fsdp_module_modules(module, modules, count);
    status = apply(&p, modules, count);
    fsdp_free(modules);
    return status;
}

/* ---- the models of the library ------------------------------------------- */

fsdp_status_t
fsdp_tensor_parallel_mlp(fsdp_module_t *mlp, const fsdp_tensor_parallel_t *tp)
{
    fsdp_parallel_plan_t plan[FSDP_MLP_MAX_LAYERS];
    int n = fsdp_mlp_num_layers(mlp) / 2 * 2;
    for (int i = 0; i < n; i++)
        plan[i] =
            (fsdp_parallel_plan_t){.module = fsdp_mlp_layer(mlp, i)->name,
                                   .style = i % 2 == 0 ? FSDP_COLWISE_PARALLEL
                                                       : FSDP_ROWWISE_PARALLEL};
    return fsdp_parallelize_module(mlp, tp, plan, n);
}

enum { C_ATTN_GROUPS = 3 }; /* q, k and v */

fsdp_status_t
fsdp_tensor_parallel_gpt2(fsdp_module_t *gpt2, const fsdp_tensor_parallel_t *tp)
{
    static const fsdp_parallel_plan_t plan[] = {
        {"transformer.wte", FSDP_ROWWISE_PARALLEL, 0},
        {"transformer.h.*.attn", FSDP_HEAD_PARALLEL, 0},
        {"transformer.h.*.attn.c_attn", FSDP_COLWISE_PARALLEL, C_ATTN_GROUPS},
        {"transformer.h.*.attn.c_proj", FSDP_ROWWISE_PARALLEL, 0},
        {"transformer.h.*.mlp.c_fc", FSDP_COLWISE_PARALLEL, 0},
        {"transformer.h.*.mlp.c_proj", FSDP_ROWWISE_PARALLEL, 0},
        {"lm_head", FSDP_COLWISE_PARALLEL, 0},
    };
    return fsdp_parallelize_module(gpt2, tp, plan,
                                   sizeof plan / sizeof plan[0]);
}

fsdp_status_t
fsdp_tensor_parallel_llama(fsdp_module_t *llama,
                           const fsdp_tensor_parallel_t *tp)
{
    static const fsdp_parallel_plan_t plan[] = {
        {"model.embed_tokens", FSDP_ROWWISE_PARALLEL, 0},
        {"model.layers.*.self_attn", FSDP_HEAD_PARALLEL, 0},
        {"model.layers.*.self_attn.[qkv]_proj", FSDP_COLWISE_PARALLEL, 0},
        {"model.layers.*.self_attn.o_proj", FSDP_ROWWISE_PARALLEL, 0},
        {"model.layers.*.mlp.gate_proj", FSDP_COLWISE_PARALLEL, 0},
        {"model.layers.*.mlp.up_proj", FSDP_COLWISE_PARALLEL, 0},
        {"model.layers.*.mlp.down_proj", FSDP_ROWWISE_PARALLEL, 0},
        {"lm_head", FSDP_COLWISE_PARALLEL, 0},
    };
    return fsdp_parallelize_module(llama, tp, plan,
                                   sizeof plan / sizeof plan[0]);
}
