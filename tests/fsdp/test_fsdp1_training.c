/* FSDP1 and the stages of ZeRO against unsharded training, bit for bit: losses,
 * reduced gradients, updated parameters, over several steps. */
/* Ranks: 1 2 3 4 5 */
#include <math.h>
#include <string.h>

#include "fsdp1_twin.h"
#include "mck.h"

enum { STEPS = 3 };
static const float lr = 0.5f;

typedef struct training {
    twin_config_t twin;
    fsdp1_options_t options; /* without the mesh */
    int stage;               /* of ZeRO; -1: FSDP1's strategy */
    bool checkpoint;         /* activation checkpointing of each layer */
    int steps;
} training_t;

static int
world_size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

static int
world_rank(void)
{
    return fsdp_comm_rank(fsdp_comm_world());
}

#define STEM_HEAD(uses_, ...)                                                  \
    {                                                                          \
        .stem = true, .head = true, .uses = uses_, .order = __VA_ARGS__,       \
        .dropped = -1                                                          \
    }

static const net_config_t nets[] = {
    STEM_HEAD(3, {0, 1, 2}),
    STEM_HEAD(3, {0, 1, 0}),
    {.uses = 3, .order = {0, 1, 2}, .dropped = -1},
    STEM_HEAD(2, {0, 2}),
    {.head = true, .uses = 3, .order = {0, 1, 2}, .dropped = 1},
};

static training_t
training(int net)
{
    return (training_t){
        .twin = {.net = nets[net],
                 .replicas = 1,
                 .shards = world_size(),
                 .micros = 1,
                 .order = FSDP_ORDER_TREE},
        .options = fsdp1_options_default(),
        .stage = -1,
        .steps = STEPS,
    };
}

static bool
is_whole(const training_t *t)
{
    fsdp_sharding_strategy_t s = t->options.sharding_strategy;
    return t->stage == FSDP_DDP || (t->stage < 0 && s == FSDP_NO_SHARD) ||
           t->twin.shards == 1;
}

static fsdp_mesh_t *
mesh_of(const training_t *t)
{
    return fsdp_sharding_strategy_is_hybrid(t->options.sharding_strategy)
               ? fsdp_mesh_create_2d(t->twin.replicas, t->twin.shards)
               : fsdp_mesh_create_1d();
}

static fsdp_module_t *
wrapped_net(training_t *t, fsdp_mesh_t *mesh)
{
    fsdp_module_t *net = net_create(&t->twin.net);
    t->options.mesh = mesh;
    t->options.reduce_order = t->twin.order;
    t->options.gradient_divide_factor = t->twin.factor;
    t->options.mixed_precision.param_dtype = t->twin.param_dtype;
    t->options.mixed_precision.reduce_dtype = t->twin.reduce_dtype;
    t->twin.all_reduce = is_whole(t);
    for (int i = 0; i <= net_num_layers(net); i++) {
        bool root = i == net_num_layers(net);
        fsdp_module_t *unit = root ? net : net_layer(net, i);
        fsdp_status_t status =
            t->stage < 0
                ? fsdp_fully_sharded_data_parallel(unit, &t->options)
                : fsdp_zero(unit, (fsdp_zero_stage_t)t->stage, &t->options);
        ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
        if (t->checkpoint && !root)
            ck_assert(fsdp_checkpoint_wrapper(unit) == FSDP_OK);
    }
    return net;
}

/* ---- comparing ----------------------------------------------------------- */

/* This rank's elements against the twin's. */
static bool
grads_are_right(const twin_t *twin, int p, fsdp_parameter_t *mine)
{
    fsdp_local_t local = fsdp_parameter_local(mine);
    if (twin->grad[p][0] == NULL)
        return local.grad == NULL;
    if (local.grad == NULL)
        return false;
    size_t begin = fsdp_layout_begin(&local.layout);
    for (size_t i = 0; i < local.numel; i++) {
        float want = twin_grad(twin, p, begin + i, local.layout.rank);
        if (memcmp(&want, (float *)local.grad + i, sizeof want) != 0)
            return false;
    }
    return true;
}

static bool
values_are_right(const twin_t *twin, int p, fsdp_parameter_t *mine)
{
    fsdp_local_t local = fsdp_parameter_local(mine);
    return memcmp(local.data,
                  twin->master[p] + fsdp_layout_begin(&local.layout),
                  local.numel * sizeof(float)) == 0;
}

static void
check_all(const twin_t *twin, fsdp_module_t *net, bool grads)
{
    fsdp_parameter_t *mine[TWIN_PARAMS];
    fsdp_module_parameters(net, mine, TWIN_PARAMS);
    size_t have = 0, want = 0;
    for (int p = 0; p < twin->count; p++) {
        mck_assert(grads ? grads_are_right(twin, p, mine[p])
                         : values_are_right(twin, p, mine[p]));
        have += fsdp_parameter_local(mine[p]).numel;
        want += fsdp_parameter_numel(mine[p]);
    }
    double sum = (double)have; /* nothing is left out or kept twice */
    fsdp_all_reduce(fsdp_comm_world(), "test", FSDP_FP64, FSDP_SUM,
                    FSDP_ORDER_TREE, &sum, 1);
    size_t times = (size_t)world_size() /
                   (twin->config.all_reduce ? 1 : (size_t)twin->config.shards);
    mck_assert(sum == (double)(want * times));
}

/* ---- training ------------------------------------------------------------ */

static void
run_micro_batch(const training_t *t, const twin_t *twin, fsdp_module_t *net,
                int step, int j)
{
    int g = twin_micro_batch(&t->twin, world_rank(), j);
    bool last = j == t->twin.micros - 1;
    ck_assert(fsdp1_set_requires_gradient_sync(net, !t->twin.no_sync || last) ==
              FSDP_OK);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, 7 * step + g);
    fsdp_tensor_t *loss = net_loss(net, tape, x);
    mck_assert(fsdp_tensor_get(loss, 0) == twin->loss[g]);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
}

static void
train(training_t *t)
{
    fsdp_mesh_t *mesh = mesh_of(t);
    fsdp_module_t *net = wrapped_net(t, mesh);
    twin_t *twin = twin_create(&t->twin);
    fsdp_sgd_options_t o = fsdp_sgd_options_default();
    o.lr = lr;
    fsdp_optimizer_t *sgd = fsdp_sgd_create(net, &o);
    check_all(twin, net, false);
    for (int step = 0; step < t->steps; step++) {
        twin_run(twin, step);
        for (int j = 0; j < t->twin.micros; j++)
            run_micro_batch(t, twin, net, step, j);
        check_all(twin, net, true);
        if (t->twin.order == FSDP_ORDER_RING)
            break;
        twin_update(twin, lr);
        fsdp_optimizer_step(sgd);
        fsdp_zero_gather_parameters(net);
        check_all(twin, net, false);
        fsdp_optimizer_zero_grad(sgd);
    }
    fsdp_optimizer_destroy(&sgd);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

/* ---- what is trained ----------------------------------------------------- */

START_TEST(strategies_as_unsharded)
{
    static const fsdp_reduce_order_t orders[] = {
        FSDP_ORDER_TREE, FSDP_ORDER_RANK, FSDP_ORDER_RING};
    for (int s = FSDP_FULL_SHARD; s <= FSDP_NO_SHARD; s++) {
        for (int o = 0; o < 3; o++) {
            training_t t = training((_i + s) % 5);
            t.options.sharding_strategy = (fsdp_sharding_strategy_t)s;
            t.twin.order = orders[o];
            t.twin.micros = 1 + (_i + o) % 3;
            t.twin.no_sync = (_i + s) % 2 == 0;
            t.options.use_orig_params = (_i + o) % 2 == 0;
            t.options.forward_prefetch = _i % 2 == 1;
            t.options.backward_prefetch = (fsdp_backward_prefetch_t)(_i % 3);
            t.options.limit_all_gathers = _i < 3;
            if (s == FSDP_NO_SHARD && orders[o] == FSDP_ORDER_RING)
                continue; /* an all-reduce has no one destination */
            train(&t);
        }
    }
}
END_TEST

START_TEST(zero_stages_as_unsharded)
{
    for (int stage = FSDP_DDP; stage <= FSDP_ZERO3; stage++) {
        training_t t = training((_i + stage) % 5);
        t.stage = stage;
        t.twin.micros = 1 + _i;
        t.twin.no_sync = (_i + stage) % 2 == 0;
        t.options.use_orig_params = _i % 2 == 0;
        if (_i == 2) {
            t.twin.param_dtype = FSDP_BF16;
            t.twin.reduce_dtype = FSDP_FP32;
        }
        train(&t);
    }
}
END_TEST

/* All shapes of the world.  One shard rank and several replicas: PyTorch's clamp
 * to NO_SHARD forgets the replicas there (verl#7493, pytorch#154888), which then
 * train apart; here they must not. */
START_TEST(hybrid_as_unsharded)
{
    int world = world_size();
    for (int replicas = 1; replicas <= world; replicas++) {
        if (world % replicas != 0)
            continue;
        training_t t = training(_i);
        t.twin.replicas = replicas;
        t.twin.shards = world / replicas;
        t.options.sharding_strategy =
            _i % 2 == 0 ? FSDP_HYBRID_SHARD : FSDP_HYBRID_SHARD_ZERO2;
        t.twin.micros = 1 + _i;
        t.twin.no_sync = _i == 2;
        t.options.use_orig_params = _i == 1;
        train(&t);
    }
}
END_TEST

/* bfloat16 parameters with each reduce type: products and sums of values that
 * are rounded where PyTorch rounds, and nowhere else. */
START_TEST(mixed_precision_as_unsharded)
{
    static const fsdp_dtype_t reduce[] = {FSDP_DTYPE_NONE, FSDP_FP32,
                                          FSDP_BF16};
    for (int s = FSDP_FULL_SHARD; s <= FSDP_NO_SHARD; s++) {
        training_t t = training(_i);
        t.options.sharding_strategy = (fsdp_sharding_strategy_t)s;
        t.twin.param_dtype = FSDP_BF16;
        t.twin.reduce_dtype = reduce[(_i + s) % 3];
        t.twin.micros = 3;
        t.twin.no_sync = s % 2 == _i % 2;
        t.options.use_orig_params = s == 0;
        train(&t);
    }
    training_t t = training(_i); /* float32, reduced in bfloat16 */
    t.twin.reduce_dtype = FSDP_BF16;
    train(&t);
}
END_TEST

START_TEST(divide_factor_as_unsharded)
{
    static const double factors[] = {1, 2, 3, 6, 2.5, 0.5};
    for (int f = 0; f < 6; f++) {
        training_t t = training(0);
        t.twin.factor = factors[f];
        t.steps = 1;
        train(&t);
    }
}
END_TEST

START_TEST(checkpointing_changes_no_bit)
{
    for (int s = FSDP_FULL_SHARD; s <= FSDP_NO_SHARD; s++) {
        training_t t = training(_i);
        t.options.sharding_strategy = (fsdp_sharding_strategy_t)s;
        t.checkpoint = true;
        t.twin.param_dtype = _i == 1 ? FSDP_BF16 : FSDP_DTYPE_NONE;
        t.options.mixed_precision.cast_forward_inputs = true;
        t.twin.micros = 2;
        train(&t);
    }
}
END_TEST

/* The norm of cut gradients is that of the whole ones. */
START_TEST(norm_as_unsharded)
{
    training_t t = training(0);
    t.options.sharding_strategy = (fsdp_sharding_strategy_t)_i;
    fsdp_mesh_t *mesh = mesh_of(&t);
    fsdp_module_t *net = wrapped_net(&t, mesh);
    twin_t *twin = twin_create(&t.twin);
    twin_run(twin, 0);
    run_micro_batch(&t, twin, net, 0, 0);
    long double sum = 0;
    float largest = 0;
    for (int p = 0; p < twin->count; p++)
        for (size_t i = 0; i < fsdp_parameter_numel(twin->parameter[p]); i++) {
            float g = twin_grad(twin, p, i, 0);
            sum += (long double)g * g;
            largest = fabsf(g) > largest ? fabsf(g) : largest;
        }
    double norm, most;
    ck_assert(fsdp_clip_grad_norm_type(net, 1e30, INFINITY, &most) == FSDP_OK);
    ck_assert(fsdp_clip_grad_norm(net, 1e30, &norm) == FSDP_OK);
    /* about 200 terms, each exact in 64 bits: the sum is off by 2^-56 of it */
    long double root = sqrtl(sum);
    mck_assert(norm == (double)(float)(double)root);
    mck_assert(most == (double)largest);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_training");
    TCase *tcase = tcase_create("unsharded");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, strategies_as_unsharded, 0, 5);
    tcase_add_loop_test(tcase, zero_stages_as_unsharded, 0, 3);
    tcase_add_loop_test(tcase, hybrid_as_unsharded, 0, 3);
    tcase_add_loop_test(tcase, mixed_precision_as_unsharded, 0, 3);
    tcase_add_test(tcase, divide_factor_as_unsharded);
    tcase_add_loop_test(tcase, checkpointing_changes_no_bit, 0, 2);
    tcase_add_loop_test(tcase, norm_as_unsharded, 0, 3);
    return mck_run(argc, argv, suite);
}
