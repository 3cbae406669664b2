#include "composition.h"

#include <stdio.h>
#include <string.h>

int
world_size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

float
tree_sum(float *x, size_t n)
{
    for (size_t step = 1; step < n; step *= 2)
        for (size_t i = 0; i + step < n; i += 2 * step)
            x[i] += x[i + step];
    return x[0];
}

/* The mean of one element's gradients of S R ranks, in rank order. */
static float
mean_over_ranks(averaging_t a, const float *rank)
{
    float over_replicas[MAX_BATCHES];
    for (size_t r = 0; r < a.replicas; r++) {
        float term[MAX_BATCHES];
        memcpy(term, rank + r * a.shards, a.shards * sizeof *term);
        over_replicas[r] = tree_sum(term, a.shards) / (float)a.shards;
    }
    return tree_sum(over_replicas, a.replicas) / (float)a.replicas;
}

/* ---- the baseline -------------------------------------------------------- */

baseline_t *
baseline_create(fsdp_module_t *master, fsdp_module_t *model)
{
    baseline_t *b = fsdp_calloc(FSDP_MEM_OTHER, sizeof *b);
    b->model = model;
    b->master = master;
    b->count = fsdp_module_parameters(master, b->parameter, MAX_PARAMETERS);
    size_t count = fsdp_module_parameters(model, b->computed, MAX_PARAMETERS);
    ck_assert_uint_eq(count, b->count);
    for (size_t p = 0; p < count; p++) {
        fsdp_parameter_data(b->parameter[p]);
        fsdp_parameter_data(b->computed[p]);
    }
    return b;
}

void
baseline_destroy(baseline_t **baseline)
{
    baseline_t *b = *baseline;
    if (b->model != b->master)
        fsdp_module_destroy(&b->model);
    fsdp_module_destroy(&b->master);
    fsdp_free(b);
    *baseline = NULL;
}

void
baseline_cast(baseline_t *b)
{
    for (size_t p = 0; p < b->count && b->model != b->master; p++)
        fsdp_convert(b->parameter[p]->dtype, b->parameter[p]->data,
                     b->computed[p]->dtype, b->computed[p]->data,
                     fsdp_parameter_numel(b->parameter[p]));
}

void
keep_grads(baseline_t *b, size_t batch)
{
    for (size_t p = 0; p < b->count; p++) {
        b->grad[batch][p] = b->computed[p]->grad;
        b->computed[p]->grad = NULL;
    }
}

/* One element of batch j R S + r of R S ranks. */
static float
term(const baseline_t *b, size_t p, size_t batch, size_t e)
{
    return (float)fsdp_tensor_get(b->grad[batch][p], e);
}

/* Micro-batches reduced one by one; or each rank's added up before. */
static float
sum_each(const baseline_t *b, averaging_t a, size_t micros, size_t p, size_t e)
{
    float micro[MAX_BATCHES], rank[MAX_BATCHES];
    size_t ranks = a.replicas * a.shards;
    for (size_t j = 0; j < micros; j++) {
        for (size_t r = 0; r < ranks; r++)
            rank[r] = term(b, p, j * ranks + r, e);
        micro[j] = mean_over_ranks(a, rank);
    }
    return tree_sum(micro, micros);
}

static float
sum_last(const baseline_t *b, averaging_t a, size_t micros, size_t p, size_t e)
{
    float rank[MAX_BATCHES];
    size_t ranks = a.replicas * a.shards;
    for (size_t r = 0; r < ranks; r++) {
        rank[r] = term(b, p, r, e);
        for (size_t j = 1; j < micros; j++)
            rank[r] += term(b, p, j * ranks + r, e);
    }
    return mean_over_ranks(a, rank);
}

static void
reduce_by(baseline_t *b, averaging_t a, size_t micros,
          float (*sum_of)(const baseline_t *b, averaging_t a, size_t micros,
                          size_t p, size_t e))
{
    for (size_t p = 0; p < b->count; p++) {
        const fsdp_parameter_t *whole = b->parameter[p];
        fsdp_tensor_t *sum = fsdp_tensor_create(
            FSDP_MEM_UNSHARDED_GRAD, whole->dtype, whole->ndim, whole->shape);
        for (size_t e = 0; e < fsdp_tensor_numel(sum); e++)
            fsdp_tensor_set(sum, e, sum_of(b, a, micros, p, e));
        for (size_t i = 0; i < micros * a.replicas * a.shards; i++)
            fsdp_tensor_destroy(&b->grad[i][p]);
        b->parameter[p]->grad = sum;
    }
}

void
reduce_grads(baseline_t *b, averaging_t a, size_t micros)
{
    reduce_by(b, a, micros, sum_each);
}

void
reduce_accumulated(baseline_t *b, averaging_t a, size_t micros)
{
    reduce_by(b, a, micros, sum_last);
}

/* ---- what must agree ----------------------------------------------------- */

bool
local_agrees(fsdp_module_t *mine, const baseline_t *b, bool grads)
{
    fsdp_parameter_t *list[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(mine, list, MAX_PARAMETERS);
    bool good = count == b->count;
    for (size_t p = 0; p < count && good; p++) {
        const fsdp_parameter_t *want = b->parameter[p];
        fsdp_local_t local = fsdp_parameter_local(list[p]);
        const float *have = grads ? local.grad : local.data;
        const float *whole = grads ? want->grad->data : want->data;
        fsdp_run_t run = {0};
        good = have != NULL;
        while (good && fsdp_layout_next_run(&local.layout, &run))
            good = memcmp(have + run.local, whole + run.whole,
                          run.count * sizeof *have) == 0;
        if (!good)
            fprintf(stderr, "%s of %s differs at element %zu\n",
                    grads ? "gradient" : "data", list[p]->name, run.whole);
    }
    return good;
}

bool
counted_once(fsdp_module_t *mine, const baseline_t *b)
{
    fsdp_parameter_t *list[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(mine, list, MAX_PARAMETERS);
    int64_t n[MAX_PARAMETERS] = {0};
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(list[p]);
        n[p] = local.layout.primary ? (int64_t)local.numel : 0;
    }
    fsdp_all_reduce(fsdp_comm_world(), "count", FSDP_INT64, FSDP_SUM,
                    FSDP_ORDER_TREE, n, count);
    bool good = count == b->count;
    for (size_t p = 0; p < count; p++)
        good = good && n[p] == (int64_t)fsdp_parameter_numel(b->parameter[p]);
    return good;
}

/* ---- tensor parallelism -------------------------------------------------- */

static void
shard_all(case_model_t model, fsdp_module_t *m, const fsdp_options_t *options)
{
    for (int i = 0; i < (model == CASE_MLP ? 5 : 2); i++) {
        fsdp_module_t *unit = model == CASE_MLP     ? fsdp_mlp_layer(m, i)
                              : model == CASE_LLAMA ? fsdp_llama_block(m, i)
                                                    : fsdp_gpt2_block(m, i);
        ck_assert_msg(fully_shard(unit, options) == FSDP_OK, "%s",
                      fsdp_error_message());
    }
    ck_assert(fully_shard(m, options) == FSDP_OK);
}

fsdp_mesh_t *
tp_mesh(const tp_case_t *c, fsdp_mesh_t **data)
{
    fsdp_mesh_t *mesh;
    if (c->replicas > 1) {
        mesh = fsdp_mesh_create(3, (int[]){c->replicas, c->shards, c->tp},
                                (const char *const[]){"replicate", "dp", "tp"});
        *data =
            fsdp_mesh_slice(mesh, 2, (const char *const[]){"replicate", "dp"});
    } else {
        mesh = fsdp_mesh_create(2, (int[]){c->shards, c->tp},
                                (const char *const[]){"dp", "tp"});
        *data = fsdp_mesh_slice(mesh, 1, (const char *const[]){"dp"});
    }
    return mesh;
}

fsdp_module_t *
tp_sharded(const tp_case_t *c, fsdp_mesh_t *mesh, fsdp_mesh_t *data)
{
    fsdp_tensor_parallel_t tp = {
        c->tp, fsdp_mesh_comm(mesh, c->replicas > 1 ? 2 : 1), FSDP_ORDER_TREE};
    fsdp_module_t *m = case_create(c->model, c->tp, FSDP_FP32);
    fsdp_options_t options = fsdp_options_default();
    options.mesh = data;
    options.reshard_after_forward = c->reshard;
    options.mp_policy.param_dtype = c->policy.param_dtype;
    options.mp_policy.reduce_dtype = c->policy.reduce_dtype;
    ck_assert(case_parallelize(c->model, m, &tp) == FSDP_OK);
    shard_all(c->model, m, &options);
    return m;
}

static fsdp_module_t *
told_the_degree(const tp_case_t *c, fsdp_dtype_t dtype)
{
    fsdp_tensor_parallel_t one = {c->tp, NULL, FSDP_ORDER_TREE};
    fsdp_module_t *m = case_create(c->model, c->tp, dtype);
    ck_assert(case_parallelize(c->model, m, &one) == FSDP_OK);
    return m;
}

baseline_t *
tp_baseline(const tp_case_t *c)
{
    fsdp_module_t *master = told_the_degree(c, FSDP_FP32);
    return baseline_create(master,
                           c->policy.param_dtype == FSDP_DTYPE_NONE
                               ? master
                               : told_the_degree(c, c->policy.param_dtype));
}

/* Data-parallel rank, and how many. */
static size_t
data_ranks(const tp_case_t *c)
{
    return (size_t)(c->replicas * c->shards);
}

uint32_t
tp_batch(const tp_case_t *c, size_t micro)
{
    int me = fsdp_comm_rank(fsdp_comm_world()) / c->tp;
    return (uint32_t)(micro * data_ranks(c)) + (uint32_t)me;
}

bool
tp_baseline_run(const tp_case_t *c, baseline_t *b, uint32_t salt, size_t micros,
                const double *loss)
{
    bool good = true;
    baseline_cast(b);
    for (uint32_t i = 0; i < micros * data_ranks(c); i++) {
        double want = case_run(c->model, b->model, c->tp, salt + i);
        size_t micro = i / data_ranks(c);
        keep_grads(b, i);
        if (i == tp_batch(c, micro))
            good = good && loss[micro] == want;
    }
    return good;
}
