/* What travels: gathers and reductions of odd sizes in their types, how often,
 * in which order, and divided by what.  PyTorch: test_fully_shard_comm.py. */
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

enum { GROUPS = 4 };

/* ---- all-gather ---------------------------------------------------------------- */

static const size_t odd[][2] = {{1, 1}, {2, 3},  {3, 1},  {5, 2}, {7, 3},
                                {8, 1}, {13, 2}, {17, 1}, {4, 5}};
enum { NUM_ODD = sizeof odd / sizeof *odd };

static fsdp_values_t
pass(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

/* Parameters of odd sizes in one module that does nothing with them. */
static fsdp_module_t *
odd_create(fsdp_dtype_t dtype)
{
    fsdp_module_t *module = fsdp_module_create("", "Odd", pass, NULL, 0);
    for (int i = 0; i < NUM_ODD; i++) {
        char *name = fsdp_format("p%d", i);
        fsdp_module_add_parameter(
            module, fsdp_parameter_create(name, dtype, 2, odd[i],
                                          FSDP_INIT_NORMAL, 1, 3));
        fsdp_free(name);
    }
    return module;
}

/* Is what was gathered the rounded whole? */
static bool
gathered_is(fsdp_parameter_t *mine, fsdp_parameter_t *whole)
{
    size_t numel = fsdp_parameter_numel(whole);
    char want[64 * 8];
    fsdp_convert(whole->dtype, fsdp_parameter_data(whole), mine->data_dtype,
                 want, numel);
    return mine->data != NULL &&
           memcmp(mine->data, want,
                  numel * fsdp_dtype_size(mine->data_dtype)) == 0;
}

static void
check_gather(fsdp_dtype_t dtype, fsdp_dtype_t param_dtype, int reshard)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.mp_policy.param_dtype = param_dtype;
    options.reshard_after_forward = reshard;
    fsdp_module_t *whole = odd_create(dtype), *module = odd_create(dtype);
    ck_assert(fully_shard(module, &options) == FSDP_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert(fsdp_module_unshard(module, false, NULL) == FSDP_OK);
        for (int p = 0; p < NUM_ODD; p++)
            mck_assert(gathered_is(module->parameter[p], whole->parameter[p]));
        ck_assert(fsdp_module_reshard(module) == FSDP_OK);
        for (int p = 0; p < NUM_ODD; p++)
            ck_assert(module->parameter[p]->data == NULL);
    }
    fsdp_module_destroy(&module);
    fsdp_module_destroy(&whole);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(gathers_of_odd_sizes)
{
    check_gather(FSDP_FP32, FSDP_DTYPE_NONE, FSDP_RESHARD_TRUE);
    check_gather(FSDP_FP64, FSDP_DTYPE_NONE, FSDP_RESHARD_TRUE);
    check_gather(FSDP_FP32, FSDP_BF16, FSDP_RESHARD_FALSE);
    check_gather(FSDP_FP32, FSDP_FP16, FSDP_RESHARD_TRUE);
    check_gather(FSDP_BF16, FSDP_DTYPE_NONE, FSDP_RESHARD_TRUE);
}
END_TEST

/* After a forward each rank keeps 1 / K of the padded whole, from which K
 * neighbours make it again, for the backward. */
static fsdp_module_t *whole_net;
static int good, bad;

static void
compare_gathered(void *context, fsdp_parameter_t *parameter, const void *data)
{
    (void)context;
    fsdp_parameter_t *whole =
        fsdp_module_find_parameter(whole_net, parameter->name);
    bool same = memcmp(data, fsdp_parameter_data(whole),
                       fsdp_parameter_numel(whole) * sizeof(float)) == 0;
    good += same;
    bad += !same;
}

/* Elements of all padded wholes. */
static size_t
padded_wholes(fsdp_module_t *net)
{
    fsdp_parameter_t *p[TWIN_PARAMS];
    size_t n = fsdp_module_parameters(net, p, TWIN_PARAMS), numel = 0;
    for (size_t i = 0; i < n; i++)
        numel += fsdp_parameter_local(p[i]).padded_numel * (size_t)twin_size();
    return numel;
}

/* What stays between forward and backward, and what the backward then sends:
 * 1 / K of the whole to each of K - 1 neighbours. */
static void
check_part_kept(fsdp_module_t *net, const fsdp_mesh_t *mesh, int k)
{
    size_t whole = padded_wholes(net) * sizeof(float);
    size_t before = fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss =
        net_loss(net, tape, net_batch(net, tape, NET_BATCH, twin_micro(0)));
    size_t kept = fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) - before;
    size_t sent = fsdp_mesh_counter(mesh, FSDP_ALL_GATHER).bytes_sent;
    mck_assert(kept == (k < twin_size() || k == 1 ? whole / (size_t)k : 0));
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    sent = fsdp_mesh_counter(mesh, FSDP_ALL_GATHER).bytes_sent - sent;
    mck_assert(sent == (size_t)(k - 1) * whole / (size_t)k);
}

START_TEST(gathers_of_groups_of_k)
{
    int size = twin_size();
    fsdp_observer_t observer = {.gathered = compare_gathered};
    for (int k = 1; k <= size; k++) {
        if (size % k != 0)
            continue;
        fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
        fsdp_options_t options = twin_options(mesh);
        options.reshard_after_forward = k;
        twin_reduction_t r = twin_reduction(0, 1);
        fsdp_module_t *net = net_create(&plain);
        twin_t *twin = twin_create(net_create(&plain), NULL);
        whole_net = net_create(&plain);
        net_run(whole_net, 0); /* so that it is there */
        net_shard(net, &options);
        good = bad = 0;
        fsdp_add_observer(&observer);
        check_part_kept(net, mesh, k);
        fsdp_remove_observer(NULL);
        /* 10 parameters, forward and backward; kept if k is 1 */
        mck_assert(bad == 0 && good == (k == 1 ? 10 : 20));
        twin_update_shards(net);
        twin_run(twin, net_run, size);
        twin_update(twin, &r);
        twin_train(twin, net, net_run, &r, 2);
        fsdp_module_destroy(&whole_net);
        twin_destroy(&twin);
        fsdp_module_destroy(&net);
        fsdp_mesh_destroy(&mesh);
    }
}
END_TEST

/* ---- reduce-scatter ------------------------------------------------------------ */

static void
train(fsdp_dtype_t param, const fsdp_options_t *options,
      const twin_reduction_t *r, void (*set)(fsdp_module_t *, double),
      double value)
{
    net_config_t low = plain;
    low.dtype = param;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(
        net_create(&plain), param != FSDP_DTYPE_NONE ? net_create(&low) : NULL);
    net_shard(net, options);
    if (set != NULL)
        set(net, value);
    twin_train(twin, net, net_run, r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
}

/* In each type of data and of the reduction, each averaging and order. */
START_TEST(reductions_in_their_types)
{
    static const fsdp_dtype_t types[][2] = {{FSDP_DTYPE_NONE, FSDP_DTYPE_NONE},
                                            {FSDP_DTYPE_NONE, FSDP_FP16},
                                            {FSDP_DTYPE_NONE, FSDP_BF16},
                                            {FSDP_BF16, FSDP_DTYPE_NONE},
                                            {FSDP_BF16, FSDP_FP32},
                                            {FSDP_FP16, FSDP_FP32},
                                            {FSDP_FP16, FSDP_DTYPE_NONE},
                                            {FSDP_BF16, FSDP_FP64},
                                            {FSDP_DTYPE_NONE, FSDP_FP64}};
    static const fsdp_reduce_order_t orders[] = {
        FSDP_ORDER_TREE, FSDP_ORDER_RANK, FSDP_ORDER_RING};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    for (int o = 0; o < 3; o++) {
        fsdp_options_t options = twin_options(mesh);
        twin_reduction_t r = twin_reduction(0, 1);
        options.mp_policy.param_dtype = types[_i][0];
        options.mp_policy.reduce_dtype = r.reduce = types[_i][1];
        options.reduce_order = r.order = orders[o];
        options.averaging = r.averaging = (fsdp_averaging_t)((_i + o) % 3);
        train(types[_i][0], &options, &r, NULL, 0);
    }
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- how often ------------------------------------------------------------------ */

static void
check_calls(fsdp_mesh_t *mesh, fsdp_module_t *net, int all_gathers)
{
    fsdp_mesh_reset_counters(mesh);
    net_run(net, twin_micro(0));
    mck_assert(twin_called(mesh, all_gathers, GROUPS, 0));
}

START_TEST(calls_of_a_step)
{
    static const struct {
        int reshard, gathers;
    } all[] = {{FSDP_RESHARD_AUTO, 2 * GROUPS - 1},
               {FSDP_RESHARD_TRUE, 2 * GROUPS},
               {FSDP_RESHARD_FALSE, GROUPS}};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = all[_i].reshard;
    fsdp_module_t *net = net_create(&plain);
    net_shard(net, &options);
    check_calls(mesh, net, all[_i].gathers);
    check_calls(mesh, net, all[_i].gathers);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(calls_after_reshard_is_set)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    net_shard(net, &options);
    check_calls(mesh, net, 2 * GROUPS - 1);
    ck_assert(fsdp_module_set_reshard_after_forward(net, false, true) ==
              FSDP_OK);
    check_calls(mesh, net, GROUPS);
    ck_assert(fsdp_module_set_reshard_after_forward(net, true, true) ==
              FSDP_OK);
    check_calls(mesh, net, 2 * GROUPS);
    ck_assert(fsdp_module_set_reshard_after_forward(net, false, false) ==
              FSDP_OK); /* the root only */
    check_calls(mesh, net, 2 * GROUPS - 1);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Kept after the forward, but freed by hand before the backward. */
START_TEST(calls_after_a_reshard_by_hand)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(net, &options);
    fsdp_mesh_reset_counters(mesh);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss =
        net_loss(net, tape, net_batch(net, tape, NET_BATCH, twin_micro(0)));
    for (int i = 0; i < 3; i++)
        ck_assert(fsdp_module_reshard(net_layer(net, i)) == FSDP_OK);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    mck_assert(twin_called(mesh, 2 * GROUPS - 1, GROUPS, 0));
    twin_run(twin, net_run, twin_size());
    mck_assert(twin_grads_agree(twin, net, &r));
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- unshard by hand -------------------------------------------------------------- */

/* Without a forward before it, waited for or not; nothing is gathered twice. */
START_TEST(unshard_before_anything)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    fsdp_unshard_handle_t *handle = NULL;
    net_shard(net, &options);
    fsdp_mesh_reset_counters(mesh);
    ck_assert(fsdp_module_unshard(net_layer(net, 0), true, &handle) == FSDP_OK);
    ck_assert(handle != NULL);
    ck_assert(net_layer(net, 0)->parameter[0]->data == NULL);
    if (_i == 0)
        fsdp_unshard_handle_wait(&handle);
    ck_assert((net_layer(net, 0)->parameter[0]->data != NULL) == (_i == 0));
    ck_assert(fsdp_module_unshard(net_layer(net, 1), false, NULL) == FSDP_OK);
    ck_assert(net_layer(net, 1)->parameter[0]->data != NULL);
    net_run(net, twin_micro(0));
    mck_assert(twin_called(mesh, 2 * GROUPS - 1, GROUPS, 0));
    fsdp_unshard_handle_wait(&handle);
    ck_assert(handle == NULL);
    ck_assert(fsdp_module_unshard(net, true, NULL) == FSDP_ERR_USAGE);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* A root all of whose parameters are in other groups. */
START_TEST(unshard_without_parameters)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    fsdp_unshard_handle_t *handle = NULL;
    twin_shard(net, &options);
    fsdp_mesh_reset_counters(mesh);
    ck_assert(fsdp_module_unshard(net, true, &handle) == FSDP_OK);
    fsdp_unshard_handle_wait(&handle);
    ck_assert(fsdp_module_reshard(net) == FSDP_OK);
    mck_assert(twin_called(mesh, 0, 0, 0));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("comm");
    TCase *tcase = tcase_create("collectives");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, gathers_of_odd_sizes);
    tcase_add_test(tcase, gathers_of_groups_of_k);
    tcase_add_loop_test(tcase, reductions_in_their_types, 0, 9);
    tcase_add_loop_test(tcase, calls_of_a_step, 0, 3);
    tcase_add_test(tcase, calls_after_reshard_is_set);
    tcase_add_test(tcase, calls_after_a_reshard_by_hand);
    tcase_add_loop_test(tcase, unshard_before_anything, 0, 2);
    tcase_add_test(tcase, unshard_without_parameters);
    return mck_run(argc, argv, suite);
}
