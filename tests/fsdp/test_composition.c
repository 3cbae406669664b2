/* Ranks: 1 2 4 6 8 */
/* Tensor parallelism and experts under fully_shard(): every rank's shards,
 * gradients and updates against one process that runs all batches, bit by bit. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "composition.h"
#include "twin/numbers.h"

enum { STEPS = 3, MICROS = 2 };

static bool
norms_agree(fsdp_module_t *mine, fsdp_module_t *whole)
{
    double a = -1, b = -2;
    /* The baseline's parameters are everywhere, so nothing is added up. */
    bool good = fsdp_grad_norm(mine, 2, &a) == FSDP_OK &&
                fsdp_grad_norm(whole, 2, &b) == FSDP_OK;
    return good && a == b && a > 0;
}

/* ---- files --------------------------------------------------------------- */

static bool
same_files(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int c = f != NULL && g != NULL ? 0 : -2, d = c;
    while (c == d && c != EOF && c != -2) {
        c = fgetc(f);
        d = fgetc(g);
    }
    if (f != NULL)
        fclose(f);
    if (g != NULL)
        fclose(g);
    return c == EOF && d == EOF;
}

/* The file of the model in parts is that of the whole one. */
static void
check_save(fsdp_module_t *mine, fsdp_module_t *whole, char path[2][64])
{
    fsdp_comm_t *world = fsdp_comm_world();
    int64_t process = getpid();
    fsdp_broadcast(world, "process", FSDP_INT64, &process, 1, 0);
    for (int i = 0; i < 2; i++)
        snprintf(path[i], 64, "/tmp/composition-%lld-%d.safetensors",
                 (long long)process, i);
    ck_assert(fsdp_model_save(mine, world, path[0], NULL, 0) == FSDP_OK);
    ck_assert(fsdp_model_save(whole, world, path[1], NULL, 0) == FSDP_OK);
    mck_assert(fsdp_comm_rank(world) != 0 || same_files(path[0], path[1]));
}

static void
remove_files(char path[2][64])
{
    fsdp_barrier(fsdp_comm_world(), "remove");
    for (int i = 0; i < 2 && fsdp_comm_rank(fsdp_comm_world()) == 0; i++)
        remove(path[i]);
}

/* ---- tensor parallelism -------------------------------------------------- */

#define NO_POLICY                                                              \
    {                                                                          \
        FSDP_DTYPE_NONE, FSDP_DTYPE_NONE, FSDP_DTYPE_NONE, true                \
    }

/* One step on MICROS batches a data rank; the same losses on all tp ranks. */
static void
tp_step(const tp_case_t *c, fsdp_module_t *mine, baseline_t *b, uint32_t step)
{
    double loss[MICROS];
    for (size_t j = 0; j < MICROS; j++)
        loss[j] = case_run(c->model, mine, c->tp, step * 32 + tp_batch(c, j));
    mck_assert(tp_baseline_run(c, b, step * 32, MICROS, loss));
    averaging_t a = {(size_t)c->replicas, (size_t)c->shards};
    reduce_grads(b, a, MICROS);
    mck_assert(local_agrees(mine, b, true));
    mck_assert(norms_agree(mine, b->model));
}

static void
check_tp(const tp_case_t *c)
{
    fsdp_mesh_t *data, *mesh = tp_mesh(c, &data);
    fsdp_module_t *mine = tp_sharded(c, mesh, data);
    baseline_t *b = tp_baseline(c);
    mck_assert(local_agrees(mine, b, false));
    mck_assert(counted_once(mine, b));
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.lr = 0.125;
    sgd.momentum = 0.5;
    fsdp_optimizer_t *optimizer[2] = {fsdp_sgd_create(mine, &sgd),
                                      fsdp_sgd_create(b->model, &sgd)};
    for (uint32_t step = 0; step < STEPS; step++) {
        tp_step(c, mine, b, step);
        for (int i = 0; i < 2; i++) {
            fsdp_optimizer_step(optimizer[i]);
            fsdp_optimizer_zero_grad(optimizer[i]);
        }
        mck_assert(local_agrees(mine, b, false));
    }
    char path[2][64];
    check_save(mine, b->model, path);

    /* Into a model that has trained no step. */
    fsdp_module_t *again = tp_sharded(c, mesh, data);
    ck_assert(fsdp_model_load(again, fsdp_comm_world(), path[1]) == FSDP_OK);
    mck_assert(local_agrees(again, b, false));
    remove_files(path);
    fsdp_module_destroy(&again);
    for (int i = 0; i < 2; i++)
        fsdp_optimizer_destroy(&optimizer[i]);
    fsdp_module_destroy(&mine);
    baseline_destroy(&b);
    fsdp_mesh_destroy(&data);
    fsdp_mesh_destroy(&mesh);
}

/* All ways to cut the world in dp x tp, and replicas too where there are eight
 * ranks or four. */
START_TEST(tensor_parallel)
{
    int w = world_size(), cases = 0;
    for (int tp = 1; tp <= w && tp <= 4; tp++) {
        if (w % tp != 0)
            continue;
        int reshard = cases++ % 2 ? FSDP_RESHARD_FALSE : FSDP_RESHARD_AUTO;
        check_tp(
            &(tp_case_t){(case_model_t)_i, 1, w / tp, tp, reshard, NO_POLICY});
    }
    if (w % 4 == 0)
        check_tp(&(tp_case_t){(case_model_t)_i, 2, w / 4, 2, FSDP_RESHARD_AUTO,
                              NO_POLICY});
}
END_TEST

/* reshard_after_forward = K has no place for a part, as in PyTorch. */
START_TEST(groups_of_k_are_refused)
{
    if (world_size() != 8)
        return;
    tp_case_t c = {CASE_MLP, 1, 4, 2, FSDP_RESHARD_AUTO, NO_POLICY};
    fsdp_mesh_t *data, *mesh = tp_mesh(&c, &data);
    fsdp_tensor_parallel_t tp = {2, fsdp_mesh_comm(mesh, 1), FSDP_ORDER_TREE};
    fsdp_module_t *m = case_create(CASE_MLP, 2, FSDP_FP32);
    ck_assert(case_parallelize(CASE_MLP, m, &tp) == FSDP_OK);
    fsdp_options_t options = fsdp_options_default();
    options.mesh = data;
    options.reshard_after_forward = 2;
    ck_assert_int_eq(fully_shard(m, &options), FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "layers.0.weight") != NULL);
    fsdp_module_destroy(&m);
    fsdp_mesh_destroy(&data);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- experts ------------------------------------------------------------- */

enum { TOKENS = 6, CHANNELS = 5 };

/* A linear layer, a mixture of experts, and the sum of squares of what comes
 * out, plus the auxiliary loss. */
static fsdp_values_t
net_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[0], tape, inputs.tensor[0]);
    fsdp_values_t y = fsdp_module_call(self->child[1], tape, fsdp_values1(x));
    fsdp_tensor_t *zeros =
        fsdp_tape_new_tensor(tape, x->dtype, x->ndim, x->shape);
    fsdp_tensor_zero(zeros);
    fsdp_tensor_t *loss = fsdp_mse_loss(tape, y.tensor[0], zeros);
    return fsdp_values1(fsdp_add(tape, loss, y.tensor[1]));
}

static fsdp_module_t *
moe_net(fsdp_comm_t *experts)
{
    fsdp_moe_config_t c = fsdp_moe_config_default();
    c.channels = CHANNELS;
    c.hidden = 7;
    c.num_experts = 8;
    if (world_size() == 6)
        c.num_experts = 6;
    c.router_aux_loss_coef = 0.25;
    c.std = c.down_std = 0.7;
    c.seed = 8;
    c.comm = experts;
    fsdp_module_t *m = fsdp_module_create("", "Net", net_forward, NULL, 0);
    fsdp_module_add_child(
        m, fsdp_linear_create("stem", CHANNELS, CHANNELS, true, FSDP_FP32, 2));
    fsdp_module_add_child(m, fsdp_moe_create("moe", &c));
    return m;
}

static double
moe_run(fsdp_module_t *m, uint32_t salt)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){TOKENS, CHANNELS});
    for (size_t i = 0; i < TOKENS * CHANNELS; i++)
        fsdp_tensor_set(x, i, twin_random(salt, i));
    fsdp_tensor_t *loss = fsdp_module_call1(m, tape, x);
    double value = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    return value;
}

static fsdp_mesh_t *expert_mesh;

/* Experts on the ranks that have the same ones, by the module or by the
 * placement of each parameter; the rest on all. */
static fsdp_shard_placement_t
place(void *context, const fsdp_parameter_t *parameter)
{
    (void)context;
    return (fsdp_shard_placement_t){
        0, strstr(parameter->name, "experts") != NULL ? expert_mesh : NULL};
}

static void
shard_experts(fsdp_module_t *m, fsdp_mesh_t *all)
{
    fsdp_options_t options = fsdp_options_default();
    fsdp_module_t *experts = fsdp_moe_experts(m->child[1]);
    options.mesh = all;
    options.shard_placement_fn = place;
    ck_assert(fully_shard(experts, &options) == FSDP_OK);
    ck_assert(fsdp_module_set_gradient_divide_factor(
                  experts, (double)world_size()) == FSDP_OK);
    ck_assert(fully_shard(m, &options) == FSDP_OK);
}

/* The baseline's gradients of all ranks: of the experts' parameters P
 * neighbours' are added first. */
static void
reduce_with_experts(baseline_t *b, size_t p_ranks)
{
    size_t w = (size_t)world_size();
    for (size_t p = 0; p < b->count; p++) {
        bool expert = strstr(b->parameter[p]->name, "experts") != NULL;
        size_t first = expert ? p_ranks : 1;
        fsdp_tensor_t *sum =
            fsdp_tensor_clone(FSDP_MEM_UNSHARDED_GRAD, b->grad[0][p]);
        for (size_t e = 0; e < fsdp_tensor_numel(sum); e++) {
            float group[MAX_BATCHES], term[MAX_BATCHES];
            for (size_t i = 0; i < w / first; i++) {
                for (size_t r = 0; r < first; r++)
                    term[r] = ((float *)b->grad[i * first + r][p]->data)[e];
                group[i] = tree_sum(term, first);
            }
            ((float *)sum->data)[e] = tree_sum(group, w / first) / (float)w;
        }
        for (size_t r = 0; r < w; r++)
            fsdp_tensor_destroy(&b->grad[r][p]);
        b->parameter[p]->grad = sum;
    }
}

static void
moe_steps(fsdp_module_t *mine, baseline_t *b, int p_ranks)
{
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.lr = 0.25;
    fsdp_optimizer_t *optimizer[2] = {fsdp_sgd_create(mine, &sgd),
                                      fsdp_sgd_create(b->model, &sgd)};
    int w = world_size(), rank = fsdp_comm_rank(fsdp_comm_world());
    for (uint32_t step = 0; step < STEPS; step++) {
        double loss = moe_run(mine, step * 32 + (uint32_t)rank), want = 0;
        for (int r = 0; r < w; r++) {
            double one = moe_run(b->model, step * 32 + (uint32_t)r);
            want = r == rank ? one : want;
            keep_grads(b, (size_t)r);
        }
        reduce_with_experts(b, (size_t)p_ranks);
        mck_assert(loss == want);
        mck_assert(local_agrees(mine, b, true));
        mck_assert(norms_agree(mine, b->model));
        for (int i = 0; i < 2; i++) {
            fsdp_optimizer_step(optimizer[i]);
            fsdp_optimizer_zero_grad(optimizer[i]);
        }
        mck_assert(local_agrees(mine, b, false));
    }
    for (int i = 0; i < 2; i++)
        fsdp_optimizer_destroy(&optimizer[i]);
}

static void
check_moe(int p_ranks)
{
    int w = world_size();
    fsdp_mesh_t *mesh = fsdp_mesh_create(2, (int[]){w / p_ranks, p_ranks},
                                         (const char *const[]){"dp", "ep"});
    fsdp_mesh_t *all = fsdp_mesh_create_1d();
    expert_mesh = fsdp_mesh_slice(mesh, 1, (const char *const[]){"dp"});
    fsdp_module_t *mine = moe_net(fsdp_mesh_comm(mesh, 1));
    shard_experts(mine, all);
    fsdp_module_t *one = moe_net(NULL);
    baseline_t *b = baseline_create(one, one);
    mck_assert(local_agrees(mine, b, false));
    mck_assert(counted_once(mine, b));
    moe_steps(mine, b, p_ranks);
    char path[2][64];
    check_save(mine, b->model, path);
    remove_files(path);
    fsdp_module_destroy(&mine);
    baseline_destroy(&b);
    fsdp_mesh_destroy(&expert_mesh);
    fsdp_mesh_destroy(&all);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(experts)
{
    for (int p = 1; p <= world_size(); p++)
        if (world_size() % p == 0)
            check_moe(p);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("composition");
    TCase *tcase = tcase_create("composition");
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, tensor_parallel, 0, CASE_MODELS);
    tcase_add_test(tcase, groups_of_k_are_refused);
    tcase_add_test(tcase, experts);
    return mck_run(argc, argv, suite);
}
