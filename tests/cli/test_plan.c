/* What a run counts is what `fsdp plan` counted before: bytes by category at
 * their peak and between steps, calls and bytes of collectives.  The run is
 * real, with many settings drawn by hand; the plan walks through it by rules of
 * its own. */
#include <stdio.h>

#include "cli/plan_sim.h"
#include "mck.h"

static int
world(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

/* ---- the run ------------------------------------------------------------- */

typedef struct run {
    const plan_config_t *c;
    fsdp_mesh_t *mesh;
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
} run_t;

typedef struct counts {
    int64_t live[FSDP_MEM_COUNT + 1], peak[FSDP_MEM_COUNT + 1];
    plan_calls_t calls;
} counts_t;

static int
count_blocks(const plan_config_t *c)
{
    return c->model == PLAN_GPT2    ? (int)c->gpt2.n_layer
           : c->model == PLAN_LLAMA ? (int)c->llama.num_hidden_layers
                                    : c->mlp.num_layers;
}

static fsdp_module_t *
block(const run_t *r, int i)
{
    return r->c->model == PLAN_GPT2    ? fsdp_gpt2_block(r->model, i)
           : r->c->model == PLAN_LLAMA ? fsdp_llama_block(r->model, i)
                                       : fsdp_mlp_layer(r->model, i);
}

static fsdp1_options_t
fsdp1_options(const run_t *r)
{
    static const fsdp_sharding_strategy_t strategy[] = {
        [PLAN_FULL_SHARD] = FSDP_FULL_SHARD,
        [PLAN_SHARD_GRAD_OP] = FSDP_SHARD_GRAD_OP,
        [PLAN_NO_SHARD] = FSDP_NO_SHARD,
        [PLAN_HYBRID_SHARD] = FSDP_HYBRID_SHARD,
        [PLAN_HYBRID_SHARD_ZERO2] = FSDP_HYBRID_SHARD_ZERO2,
        [PLAN_ZERO1] = FSDP_FULL_SHARD,
        [PLAN_ZERO2] = FSDP_FULL_SHARD,
    };
    fsdp1_options_t o = fsdp1_options_default();
    o.mesh = r->mesh;
    o.sharding_strategy = strategy[r->c->strategy];
    o.mixed_precision.param_dtype = r->c->param_dtype;
    o.mixed_precision.reduce_dtype = r->c->reduce_dtype;
    o.reduce_order = r->c->order;
    return o;
}

static fsdp_status_t
shard(const run_t *r, fsdp_module_t *module)
{
    const plan_config_t *c = r->c;
    if (c->strategy == PLAN_FSDP2) {
        fsdp_options_t o = fsdp_options_default();
        o.mesh = r->mesh;
        o.reshard_after_forward = c->reshard;
        o.mp_policy.param_dtype = c->param_dtype;
        o.mp_policy.reduce_dtype = c->reduce_dtype;
        if (module == r->model)
            o.mp_policy.output_dtype = c->output_dtype;
        o.reduce_order = c->order;
        return fully_shard(module, &o);
    }
    fsdp1_options_t o = fsdp1_options(r);
    if (c->strategy == PLAN_ZERO1 || c->strategy == PLAN_ZERO2)
        return fsdp_zero(
            module, c->strategy == PLAN_ZERO1 ? FSDP_ZERO1 : FSDP_ZERO2, &o);
    return fsdp_fully_sharded_data_parallel(module, &o);
}

static void
open_run(run_t *r, const plan_config_t *c)
{
    *r = (run_t){.c = c};
    r->mesh = c->replicas > 1 || c->strategy == PLAN_HYBRID_SHARD ||
                      c->strategy == PLAN_HYBRID_SHARD_ZERO2
                  ? fsdp_mesh_create_2d(c->replicas, c->shard)
                  : fsdp_mesh_create_1d();
    r->model = c->model == PLAN_GPT2    ? fsdp_gpt2_create(&c->gpt2)
               : c->model == PLAN_LLAMA ? fsdp_llama_create(&c->llama)
                                        : fsdp_mlp_create(&c->mlp);
    for (int i = 0; i < count_blocks(c); i++) {
        if (c->checkpoint)
            ck_assert(fsdp_checkpoint_wrapper(block(r, i)) == FSDP_OK);
        ck_assert_msg(shard(r, block(r, i)) == FSDP_OK, "%s",
                      fsdp_error_message());
    }
    ck_assert_msg(shard(r, r->model) == FSDP_OK, "%s", fsdp_error_message());
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    fsdp_adamw_options_t adamw = fsdp_adamw_options_default();
    sgd.momentum = c->optimizer_states > 0 ? 0.9 : 0;
    r->optimizer = c->optimizer_states == 2
                       ? fsdp_adamw_create(r->model, &adamw)
                       : fsdp_sgd_create(r->model, &sgd);
}

static void
close_run(run_t *r)
{
    fsdp_optimizer_destroy(&r->optimizer);
    fsdp_module_destroy(&r->model);
    fsdp_mesh_destroy(&r->mesh);
}

static void
settle(const run_t *r, bool last)
{
    const plan_config_t *c = r->c;
    if (c->strategy != PLAN_FSDP2) {
        fsdp1_set_requires_gradient_sync(r->model, last || c->accumulation !=
                                                               PLAN_NO_SYNC);
        return;
    }
    fsdp_module_set_requires_gradient_sync(
        r->model, last || c->accumulation != PLAN_NO_SYNC, true);
    fsdp_module_set_requires_all_reduce(
        r->model, last || c->accumulation != PLAN_DEFER_ALL_REDUCE, true);
}

static fsdp_tensor_t *
forward(const run_t *r, fsdp_tape_t *tape)
{
    const plan_config_t *c = r->c;
    size_t rows = (size_t)c->batch;
    if (c->model == PLAN_MLP) {
        size_t shape[2] = {rows, c->mlp.width[0]};
        fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, c->dtype, 2, shape);
        fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 1, &rows);
        for (size_t i = 0; i < fsdp_tensor_numel(x); i++)
            fsdp_tensor_set(x, i, (double)(i % 7) / 7);
        for (size_t i = 0; i < rows; i++)
            ((int32_t *)y->data)[i] = (int32_t)(i % 2);
        return fsdp_mlp_loss(tape, r->model, x, y);
    }
    size_t shape[2] = {rows, (size_t)c->context};
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    for (size_t i = 0; i < fsdp_tensor_numel(x); i++) {
        ((int32_t *)x->data)[i] = (int32_t)(i % 31);
        ((int32_t *)y->data)[i] = (int32_t)(i % 29);
    }
    return fsdp_module_call(r->model, tape, fsdp_values2(x, y)).tensor[0];
}

static void
run_step(const run_t *r)
{
    for (int j = 0; j < r->c->micros; j++) {
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        settle(r, j == r->c->micros - 1);
        fsdp_backward(tape, forward(r, tape));
        fsdp_tape_destroy(&tape);
    }
    fsdp_optimizer_step(r->optimizer);
    if (r->c->strategy != PLAN_FSDP2)
        fsdp_zero_gather_parameters(r->model);
    fsdp_optimizer_zero_grad(r->optimizer);
}

static void
run_evaluation(const run_t *r)
{
    int rounds = (int)((r->c->eval_batches + world() - 1) / world());
    for (int i = 0; i < rounds; i++) {
        fsdp_tape_options_t o = fsdp_tape_options_default();
        o.grad_enabled = o.training = false;
        fsdp_tape_t *tape = fsdp_tape_create(&o);
        forward(r, tape);
        fsdp_tape_destroy(&tape);
    }
}

/* ---- counts -------------------------------------------------------------- */

static counts_t
counted(const run_t *r)
{
    counts_t n;
    for (int c = 0; c < FSDP_MEM_COUNT; c++) {
        n.live[c] = (int64_t)fsdp_memory_live_bytes((fsdp_memory_category_t)c);
        n.peak[c] = (int64_t)fsdp_memory_peak_bytes((fsdp_memory_category_t)c);
    }
    n.live[FSDP_MEM_COUNT] = (int64_t)fsdp_memory_live_bytes_all();
    n.peak[FSDP_MEM_COUNT] = (int64_t)fsdp_memory_peak_bytes_all();
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        fsdp_comm_counter_t c =
            fsdp_mesh_counter(r->mesh, (fsdp_collective_t)k);
        n.calls.calls[k] = (int64_t)c.calls;
        n.calls.bytes[k] = (int64_t)c.bytes_sent;
    }
    return n;
}

static const char *setting; /* what the messages say */

static bool
same(const char *what, const char *which, int64_t found, int64_t low,
     int64_t high)
{
    bool good = found >= low && found <= high;
    if (!good)
        fprintf(stderr, "%s, rank %d: %s of %s is %lld, planned %lld to %lld\n",
                setting, fsdp_comm_rank(fsdp_comm_world()), what, which,
                (long long)found, (long long)low, (long long)high);
    return good;
}

/* How long the room of a reduction stays depends on the messages: not shorter
 * than in `early`, not longer than in `late`.  Of what the sum holds beside
 * tensors, no less than `other` was there all the time and no more than its
 * peak. */
static bool
as_planned(const char *what, const counts_t *n, int64_t other,
           const plan_sim_t *early, const plan_sim_t *late)
{
    bool good = true;
    for (int c = 0; c < FSDP_MEM_BASELINE; c++) {
        const char *name = fsdp_memory_category_name((fsdp_memory_category_t)c);
        good &= same(what, name, n->peak[c], early->memory.peak[c],
                     late->memory.peak[c]);
        good &= same(what, name, n->live[c], late->memory.live[c],
                     late->memory.live[c]);
    }
    good &= same(what, "the sum", n->peak[FSDP_MEM_COUNT],
                 early->memory.peak[PLAN_TENSORS] + other,
                 late->memory.peak[PLAN_TENSORS] + n->peak[FSDP_MEM_OTHER]);
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++) {
        const char *name = fsdp_collective_name((fsdp_collective_t)k);
        good &= same("calls", name, n->calls.calls[k], late->calls.calls[k],
                     late->calls.calls[k]);
        good &= same("bytes", name, n->calls.bytes[k], late->calls.bytes[k],
                     late->calls.bytes[k]);
    }
    return good;
}

static bool
compare(const plan_config_t *config)
{
    run_t run;
    open_run(&run, config);
    plan_sim_t *early = plan_sim_open(config), *late = plan_sim_open(config);
    early->scratch_goes_early = true;
    bool good = true;
    for (int step = 1; step <= 3; step++) {
        plan_reset_peaks(early);
        plan_reset_peaks(late);
        fsdp_memory_reset_peaks();
        int64_t other = (int64_t)fsdp_memory_live_bytes(FSDP_MEM_OTHER);
        if (step <= 2) {
            run_step(&run);
            plan_step(early);
            plan_step(late);
        } else {
            run_evaluation(&run);
            plan_evaluate(early);
            plan_evaluate(late);
        }
        counts_t n = counted(&run);
        good &= as_planned(step <= 2 ? "a step" : "an evaluation", &n, other,
                           early, late);
    }
    plan_sim_close(&early);
    plan_sim_close(&late);
    close_run(&run);
    return good;
}

/* ---- settings ------------------------------------------------------------ */

static plan_config_t
base_config(plan_model_kind_t model)
{
    plan_config_t c = {.model = model,
                       .dtype = FSDP_FP32,
                       .batch = 3,
                       .context = 40,
                       .micros = 1,
                       .threads = fsdp_get_num_threads(),
                       .eval_batches = 2 * world(),
                       .eval_rows = 6 * world(),
                       .shard = world(),
                       .replicas = 1,
                       .rank = fsdp_comm_rank(fsdp_comm_world()),
                       .reshard = FSDP_RESHARD_AUTO,
                       .forward_prefetch = -1,
                       .backward_prefetch = -1,
                       .optimizer_states = 2};
    c.gpt2 = fsdp_gpt2_config_default();
    c.gpt2.n_layer = 3;
    c.gpt2.n_embd = 44;
    c.gpt2.vocab_size = 301;
    c.gpt2.n_positions = 47;
    c.llama = fsdp_llama_config_default();
    c.llama.num_hidden_layers = 3;
    c.llama.hidden_size = 48;
    c.llama.num_key_value_heads = 2;
    c.llama.vocab_size = 301;
    c.llama = fsdp_llama_config_complete(&c.llama);
    c.mlp = (fsdp_mlp_config_t){.num_layers = 4, .width = {37, 63, 70, 29, 10}};
    return c;
}

/* mixed: 0 none; 1 bf16; 2 bf16, reduced in fp32; 3 fp16, output in fp32 */
typedef struct variant {
    const char *name;
    plan_model_kind_t model;
    plan_strategy_t strategy;
    int reshard, mixed, micros;
    plan_accumulation_t accumulation;
    int replicas;
    fsdp_reduce_order_t order;
    bool checkpoint;
    int states;
    double dropout;
    bool fp64, untied;
    size_t experts, top_k;
} variant_t;

enum {
    AUTO = FSDP_RESHARD_AUTO,
    TRUE_ = FSDP_RESHARD_TRUE,
    FALSE_ = FSDP_RESHARD_FALSE,
    K2 = 2
};

static const variant_t variants[] = {
    {.name = "gpt2", .reshard = AUTO, .states = 2},
    {.name = "gpt2 true sgd", .reshard = TRUE_, .untied = true},
    {.name = "gpt2 false", .reshard = FALSE_, .states = 1, .fp64 = true},
    {.name = "gpt2 K", .reshard = K2, .states = 2, .micros = 2},
    {.name = "gpt2 checkpoints", .reshard = AUTO, .checkpoint = true},
    {.name = "gpt2 accumulated", .reshard = AUTO, .micros = 7, .states = 2},
    {.name = "gpt2 rank",
     .reshard = AUTO,
     .micros = 3,
     .order = FSDP_ORDER_RANK},
    {.name = "gpt2 no-sync",
     .reshard = AUTO,
     .micros = 5,
     .accumulation = PLAN_NO_SYNC},
    {.name = "gpt2 bf16", .reshard = AUTO, .mixed = 1, .states = 2},
    {.name = "gpt2 bf16/fp32 no-sync",
     .reshard = TRUE_,
     .mixed = 2,
     .micros = 4,
     .accumulation = PLAN_NO_SYNC,
     .checkpoint = true},
    {.name = "gpt2 fp16", .reshard = FALSE_, .mixed = 3, .untied = true},
    {.name = "gpt2 replicas", .reshard = AUTO, .replicas = 2, .micros = 2},
    {.name = "gpt2 replicas deferred",
     .reshard = AUTO,
     .replicas = 2,
     .micros = 3,
     .accumulation = PLAN_DEFER_ALL_REDUCE,
     .mixed = 2},
    {.name = "gpt2 experts",
     .reshard = AUTO,
     .states = 2,
     .experts = 5,
     .top_k = 2},
    {.name = "gpt2 experts bf16",
     .reshard = TRUE_,
     .mixed = 2,
     .micros = 2,
     .experts = 3,
     .top_k = 3},
    {.name = "gpt2 experts FULL_SHARD fp64",
     .strategy = PLAN_FULL_SHARD,
     .fp64 = true,
     .experts = 4,
     .top_k = 1},
    {.name = "llama", .model = PLAN_LLAMA, .reshard = AUTO, .states = 2},
    {.name = "llama bf16",
     .model = PLAN_LLAMA,
     .reshard = K2,
     .mixed = 2,
     .checkpoint = true,
     .untied = true},
    {.name = "llama fp64",
     .model = PLAN_LLAMA,
     .reshard = FALSE_,
     .fp64 = true,
     .untied = true},
    {.name = "mlp", .model = PLAN_MLP, .reshard = AUTO, .states = 1},
    {.name = "mlp bf16", .model = PLAN_MLP, .reshard = AUTO, .mixed = 1},
    {.name = "mlp fp16 checkpoints",
     .model = PLAN_MLP,
     .reshard = TRUE_,
     .mixed = 3,
     .checkpoint = true,
     .micros = 2},
    {.name = "mlp false no-sync",
     .model = PLAN_MLP,
     .reshard = FALSE_,
     .micros = 2,
     .accumulation = PLAN_NO_SYNC},
    {.name = "gpt2 FULL_SHARD", .strategy = PLAN_FULL_SHARD, .states = 2},
    {.name = "gpt2 FULL_SHARD bf16",
     .strategy = PLAN_FULL_SHARD,
     .mixed = 2,
     .micros = 3},
    {.name = "gpt2 FULL_SHARD no_sync",
     .strategy = PLAN_FULL_SHARD,
     .mixed = 1,
     .micros = 3,
     .accumulation = PLAN_NO_SYNC,
     .checkpoint = true},
    {.name = "gpt2 SHARD_GRAD_OP",
     .strategy = PLAN_SHARD_GRAD_OP,
     .micros = 2,
     .accumulation = PLAN_NO_SYNC,
     .states = 2},
    {.name = "llama NO_SHARD",
     .model = PLAN_LLAMA,
     .strategy = PLAN_NO_SHARD,
     .states = 2},
    {.name = "mlp NO_SHARD bf16",
     .model = PLAN_MLP,
     .strategy = PLAN_NO_SHARD,
     .mixed = 2,
     .micros = 2},
    {.name = "gpt2 HYBRID_SHARD",
     .strategy = PLAN_HYBRID_SHARD,
     .replicas = 2,
     .states = 2},
    {.name = "llama HYBRID_SHARD_ZERO2",
     .model = PLAN_LLAMA,
     .strategy = PLAN_HYBRID_SHARD_ZERO2,
     .replicas = 2,
     .mixed = 2},
    {.name = "gpt2 zero1", .strategy = PLAN_ZERO1, .states = 2, .micros = 2},
    {.name = "gpt2 zero2 bf16",
     .strategy = PLAN_ZERO2,
     .mixed = 2,
     .states = 2},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void
take_precision(plan_config_t *c, const variant_t *v)
{
    static const fsdp_dtype_t param[] = {FSDP_DTYPE_NONE, FSDP_BF16, FSDP_BF16,
                                         FSDP_FP16};
    c->dtype = v->fp64 ? FSDP_FP64 : FSDP_FP32;
    c->gpt2.dtype = c->llama.dtype = c->mlp.dtype = c->dtype;
    c->param_dtype = param[v->mixed];
    c->reduce_dtype = v->mixed == 2 ? FSDP_FP32 : FSDP_DTYPE_NONE;
    if (v->mixed == 3)
        c->output_dtype = FSDP_FP32;
}

static plan_config_t
config_of(const variant_t *v)
{
    plan_config_t c = base_config(v->model);
    bool pairs = world() % 2 == 0;
    c.strategy = v->strategy;
    c.reshard = v->reshard == K2 && !pairs ? FSDP_RESHARD_TRUE : v->reshard;
    c.micros = v->micros > 0 ? v->micros : 1;
    c.accumulation = v->accumulation;
    c.order = v->order;
    c.checkpoint = v->checkpoint;
    c.optimizer_states = v->states;
    c.gpt2.tie_word_embeddings = c.llama.tie_word_embeddings = !v->untied;
    c.gpt2.n_experts = v->experts;
    if (v->experts > 0) /* the peak is in the experts, not in the head */
        c.gpt2.vocab_size = 32;
    c.gpt2.n_experts_per_tok = v->top_k;
    take_precision(&c, v);
    if (v->replicas > 1 && pairs) {
        c.replicas = 2;
        c.shard = world() / 2;
    }
    if (!pairs && c.accumulation == PLAN_DEFER_ALL_REDUCE)
        c.accumulation = PLAN_SYNC;
    return c;
}

START_TEST(run_is_as_planned)
{
    plan_config_t config = config_of(&variants[_i]);
    setting = variants[_i].name;
    mck_assert(compare(&config));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("runs");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, run_is_as_planned, 0, VARIANTS);
    return mck_run(argc, argv, suite);
}
