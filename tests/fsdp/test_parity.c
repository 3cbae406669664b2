/* Gradients, shards and parameters against an unsharded run of the same model,
 * bit for bit, and against formulas. */
#include <math.h>
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"

enum { MAX_RANKS = 8, MAX_PARAMS = 16 };

static fsdp_comm_t *
world(void)
{
    return fsdp_comm_world();
}

static void
shard_net(fsdp_module_t *net, fsdp_mesh_t *mesh, int reshard,
          fsdp_reduce_order_t order)
{
    fsdp_options_t options = fsdp_options_default();
    options.mesh = mesh;
    options.reshard_after_forward = reshard;
    options.reduce_order = order;
    for (int i = 0; i < net_num_layers(net); i++)
        ck_assert(fully_shard(net_layer(net, i), &options) == FSDP_OK);
    ck_assert(fully_shard(net, &options) == FSDP_OK);
}

static void
run_micro_batch(fsdp_module_t *net, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, micro);
    fsdp_backward(tape, net_loss(net, tape, x));
    fsdp_tape_destroy(&tape);
}

/* ---- sums in their orders, written for this test ------------------------- */

/* x[0..n) as pairs, then pairs of pairs; a last odd one goes up unpaired. */
static float
tree_sum(const float *x, int n)
{
    float level[64] = {0};
    memcpy(level, x, (size_t)n * sizeof *x);
    while (n > 1) {
        int next = 0;
        for (int i = 0; i < n; i += 2)
            level[next++] = i + 1 < n ? level[i] + level[i + 1] : level[i];
        n = next;
    }
    return level[0];
}

static float
left_sum(const float *x, int n, int first)
{
    float sum = x[first % n];
    for (int i = 1; i < n; i++)
        sum = sum + x[(first + i) % n];
    return sum;
}

static float
ordered_sum(const float *x, int n, fsdp_reduce_order_t order, int owner)
{
    switch (order) {
    case FSDP_ORDER_TREE:
        return tree_sum(x, n);
    case FSDP_ORDER_RING:
        return left_sum(x, n, owner + 1);
    default:
        return left_sum(x, n, 0);
    }
}

/* ---- expected gradients -------------------------------------------------- */

/* The gradient of every micro-batch, from a model that nobody sharded. */
typedef struct expected {
    fsdp_module_t *net;
    fsdp_tensor_t *grad[MAX_PARAMS][32]; /* [parameter][micro-batch] */
    fsdp_parameter_t *parameter[MAX_PARAMS];
    int count, micros;
} expected_t;

static void
expect_gradients(expected_t *e, const net_config_t *config, int micros)
{
    e->net = net_create(config);
    e->count = (int)fsdp_module_parameters(e->net, e->parameter, MAX_PARAMS);
    e->micros = micros;
    for (int m = 0; m < micros; m++) {
        run_micro_batch(e->net, m);
        for (int p = 0; p < e->count; p++) {
            e->grad[p][m] = e->parameter[p]->grad;
            e->parameter[p]->grad = NULL;
        }
    }
}

static void
forget(expected_t *e)
{
    for (int p = 0; p < e->count; p++)
        for (int m = 0; m < e->micros; m++)
            fsdp_tensor_destroy(&e->grad[p][m]);
    fsdp_module_destroy(&e->net);
}

/* Element i of parameter p: first the ranks, then the micro-batches. */
static float
expected_element(const expected_t *e, int p, size_t i, int size, int owner,
                 fsdp_reduce_order_t order)
{
    float over_micros[32] = {0}, over_ranks[MAX_RANKS] = {0};
    int m = e->micros / size;
    for (int j = 0; j < m; j++) {
        for (int r = 0; r < size; r++)
            over_ranks[r] = (float)fsdp_tensor_get(e->grad[p][j * size + r], i);
        over_micros[j] = ordered_sum(over_ranks, size, order, owner);
        if (size > 1)
            over_micros[j] /= (float)size;
    }
    return order == FSDP_ORDER_TREE ? tree_sum(over_micros, m)
                                    : left_sum(over_micros, m, 0);
}

static bool
gradient_is_right(const expected_t *e, int p, fsdp_parameter_t *mine,
                  fsdp_reduce_order_t order)
{
    int size = fsdp_comm_size(world()), rank = fsdp_comm_rank(world());
    fsdp_local_t local = fsdp_parameter_local(mine);
    size_t rows = mine->shape[0];
    size_t chunk = (rows + (size_t)size - 1) / (size_t)size;
    size_t begin = (size_t)rank * chunk < rows ? (size_t)rank * chunk : rows;
    size_t end = begin + chunk < rows ? begin + chunk : rows;
    size_t row = fsdp_parameter_row_numel(mine);
    if (local.grad == NULL || local.numel != (end - begin) * row ||
        (local.numel > 0 && fsdp_layout_begin(&local.layout) != begin * row))
        return false;
    for (size_t i = 0; i < (end - begin) * row; i++) {
        float want = expected_element(e, p, begin * row + i, size, rank, order);
        if (memcmp(&want, (float *)local.grad + i, sizeof want) != 0)
            return false;
    }
    for (size_t i = (end - begin) * row; i < chunk * row; i++)
        if (((float *)local.grad)[i] != 0.0f)
            return false;
    return true;
}

static const net_config_t stem_head = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};
static const net_config_t used_twice = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 0}, .dropped = -1};

static void
check_gradients(const net_config_t *config, int per_rank, int reshard,
                fsdp_reduce_order_t order)
{
    int size = fsdp_comm_size(world()), rank = fsdp_comm_rank(world());
    expected_t *e = fsdp_calloc(FSDP_MEM_OTHER, sizeof *e);
    expect_gradients(e, config, per_rank * size);

    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = net_create(config);
    shard_net(net, mesh, reshard, order);
    for (int j = 0; j < per_rank; j++)
        run_micro_batch(net, j * size + rank);
    fsdp_parameter_t *mine[MAX_PARAMS];
    fsdp_module_parameters(net, mine, MAX_PARAMS);
    for (int p = 0; p < e->count; p++)
        mck_assert(gradient_is_right(e, p, mine[p], order));

    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
    forget(e);
    fsdp_free(e);
}

START_TEST(gradients_as_unsharded)
{
    static const int micros[] = {1, 2, 3, 4, 5};
    static const fsdp_reduce_order_t orders[] = {
        FSDP_ORDER_TREE, FSDP_ORDER_RANK, FSDP_ORDER_RING};
    for (int o = 0; o < 3; o++)
        check_gradients(_i % 2 ? &stem_head : &used_twice, micros[_i / 2],
                        _i % 3 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_FALSE,
                        orders[o]);
}
END_TEST

/* ---- shards --------------------------------------------------------------- */

START_TEST(shards_are_rows_of_the_whole)
{
    fsdp_module_t *whole = net_create(&stem_head);
    fsdp_module_t *net = net_create(&stem_head);
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_parameter_t *want[MAX_PARAMS], *mine[MAX_PARAMS];
    shard_net(net, mesh, FSDP_RESHARD_AUTO, FSDP_ORDER_TREE);
    size_t count = fsdp_module_parameters(whole, want, MAX_PARAMS);
    fsdp_module_parameters(net, mine, MAX_PARAMS);
    for (size_t p = 0; p < count; p++) {
        const float *all = fsdp_parameter_data(want[p]);
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        size_t begin = fsdp_layout_begin(&local.layout);
        mck_assert(memcmp(local.data, all + begin, local.numel * sizeof *all) ==
                   0);

        size_t numel = fsdp_parameter_numel(want[p]);
        float *out = fsdp_alloc(FSDP_MEM_OTHER, numel * sizeof *out);
        fsdp_parameter_gather(mine[p], NULL, world(), 0, out);
        mck_assert(fsdp_comm_rank(world()) != 0 ||
                   memcmp(out, all, numel * sizeof *out) == 0);
        fsdp_free(out);
    }
    fsdp_module_destroy(&net);
    fsdp_module_destroy(&whole);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- costs ----------------------------------------------------------------- */

/* The bytes of one gather of a group: W - 1 padded shards. */
static size_t
padded_shard_bytes(fsdp_module_t *module)
{
    int size = fsdp_comm_size(world());
    size_t bytes = 0;
    for (int i = 0; i < module->num_parameters; i++) {
        const fsdp_parameter_t *p = module->parameter[i];
        size_t chunk = (p->shape[0] + (size_t)size - 1) / (size_t)size;
        bytes += chunk * fsdp_parameter_row_numel(p) * sizeof(float);
    }
    return bytes;
}

/* fsdp-semantics.md section 6: all-gathers L + 1 forward, and backward L + 1
 * (TRUE), L (AUTO), 0 (FALSE); reduce-scatters L + 1. */
static void
check_counts(int reshard)
{
    int size = fsdp_comm_size(world());
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = net_create(&stem_head);
    shard_net(net, mesh, reshard, FSDP_ORDER_TREE);
    fsdp_comm_t *comm = fsdp_mesh_shard_comm(mesh);
    size_t layers = 0, root = 0;
    for (int i = 0; i < 3; i++)
        layers += padded_shard_bytes(net->child[i]);
    for (int i = 3; i < 5; i++)
        root += padded_shard_bytes(net->child[i]);

    fsdp_comm_reset_counters(comm);
    run_micro_batch(net, fsdp_comm_rank(world()));
    fsdp_comm_counter_t ag = fsdp_comm_counter(comm, FSDP_ALL_GATHER);
    fsdp_comm_counter_t rs = fsdp_comm_counter(comm, FSDP_REDUCE_SCATTER);
    bool layers_twice = reshard != FSDP_RESHARD_FALSE;
    bool root_twice = reshard == FSDP_RESHARD_TRUE;
    size_t calls = 4 + (layers_twice ? 3u : 0u) + (root_twice ? 1u : 0u);
    size_t bytes =
        layers * (layers_twice ? 2 : 1) + root * (root_twice ? 2 : 1);
    size_t others = (size_t)size - 1;
    mck_assert(ag.calls == (size > 1 ? calls : 0));
    mck_assert(rs.calls == (size > 1 ? 4 : 0));
    mck_assert(ag.bytes_sent == others * bytes);
    mck_assert(rs.bytes_sent == others * (layers + root));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(collectives_and_bytes)
{
    check_counts(FSDP_RESHARD_AUTO);
    check_counts(FSDP_RESHARD_TRUE);
    check_counts(FSDP_RESHARD_FALSE);
}
END_TEST

/* Only one layer is copied out at a time (a prefetched one lies in the
 * communication buffer until the one before it was freed), so gathered
 * parameters take at their peak
 *     root + the largest layer      (AUTO)
 *     root + all layers             (FALSE)
 * each padded to W chunks. */
START_TEST(peak_of_gathered_parameters)
{
    int reshard = _i == 0 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_FALSE;
    size_t size = (size_t)fsdp_comm_size(world());
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = net_create(&stem_head);
    shard_net(net, mesh, reshard, FSDP_ORDER_TREE);
    size_t root =
        padded_shard_bytes(net->child[3]) + padded_shard_bytes(net->child[4]);
    size_t largest = 0, all = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes = padded_shard_bytes(net->child[i]);
        largest = bytes > largest ? bytes : largest;
        all += bytes;
    }
    fsdp_memory_reset_peaks();
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
    run_micro_batch(net, 0);
    size_t layers = reshard == FSDP_RESHARD_FALSE ? all : largest;
    mck_assert(fsdp_memory_peak_bytes(FSDP_MEM_UNSHARDED_PARAM) ==
               size * (root + layers));
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_GRAD) == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_COMM) == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD) == root + all);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD) == root + all);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(steady_state_asks_the_system_for_nothing)
{
#ifdef __SANITIZE_ADDRESS__
    return; /* no pool there, so that use after free is seen */
#endif
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = net_create(&stem_head);
    fsdp_parameter_t *all[MAX_PARAMS];
    shard_net(net, mesh, FSDP_RESHARD_AUTO, FSDP_ORDER_TREE);
    size_t count = fsdp_module_parameters(net, all, MAX_PARAMS);
    long before = 0;
    for (int step = 0; step < 6; step++) {
        if (step == 2)
            before = fsdp_memory_system_requests();
        run_micro_batch(net, step);
        for (size_t p = 0; p < count; p++)
            fsdp_parameter_local_zero_grad(all[p]);
    }
    mck_assert(fsdp_memory_system_requests() == before);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- misuse --------------------------------------------------------------- */

START_TEST(misuse_is_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = net_create(&stem_head);
    fsdp_options_t options = fsdp_options_default();
    ck_assert(fully_shard(net, &options) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "mesh") != NULL);
    options.mesh = mesh;
    options.reshard_after_forward = 7; /* no divisor of 1 to 5 */
    ck_assert(fully_shard(net, &options) == FSDP_ERR_USAGE);
    options.reshard_after_forward = FSDP_RESHARD_AUTO;

    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    fsdp_optimizer_t *early = fsdp_sgd_create(net, &sgd);
    ck_assert(fully_shard(net, &options) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "optimizer") != NULL);
    fsdp_optimizer_destroy(&early);
    ck_assert(fsdp_module_set_gradient_divide_factor(net, 2) == FSDP_ERR_USAGE);
    ck_assert(fully_shard(net, &options) == FSDP_OK);
    ck_assert(fully_shard(net, &options) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "already") != NULL);
    ck_assert(fsdp_module_set_gradient_divide_factor(net, 0) == FSDP_ERR_USAGE);
    ck_assert(fsdp_module_set_gradient_divide_factor(net, NAN) ==
              FSDP_ERR_USAGE);
    fsdp_module_destroy(&net);

    net = net_create(&stem_head);
    fsdp_parameter_data(net_layer(net, 0)->parameter[1]);
    ck_assert(fully_shard(net, &options) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "layers.0.bias") != NULL);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("parity");
    TCase *tcase = tcase_create("unsharded");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, gradients_as_unsharded, 0, 10);
    tcase_add_test(tcase, shards_are_rows_of_the_whole);
    tcase_add_test(tcase, collectives_and_bytes);
    tcase_add_loop_test(tcase, peak_of_gathered_parameters, 0, 2);
    tcase_add_test(tcase, steady_state_asks_the_system_for_nothing);
    tcase_add_test(tcase, misuse_is_refused);
    return mck_run(argc, argv, suite);
}
