/* What reduced gradients are divided by, in which collectives, and what may be
 * put in their place: factors, forced sums, hooks, custom collectives, replicas.
 * PyTorch: test_fully_shard_comm.py, test_fully_shard_init.py (hooks). */
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

enum { GROUPS = 4 };

/* Replicas to try: no second dimension, one row, all rows, two. */
static bool
replicas_of(int i, int *replicas)
{
    int choice[] = {0, 1, twin_size(), 2};
    *replicas = choice[i];
    return i < 3 || (twin_size() % 2 == 0 && twin_size() > 2);
}

/* ---- factors ----------------------------------------------------------------- */

static void
set_all(fsdp_module_t *net, double factor, bool force_sum)
{
    for (int i = -1; i < net_num_layers(net); i++) {
        fsdp_module_t *module = i < 0 ? net : net_layer(net, i);
        if (factor != 0)
            ck_assert(fsdp_module_set_gradient_divide_factor(module, factor) ==
                      FSDP_OK);
        ck_assert(fsdp_module_set_force_sum_reduction_for_comms(
                      module, force_sum) == FSDP_OK);
    }
}

static void
check(int replicas, fsdp_dtype_t param, fsdp_dtype_t reduce,
      fsdp_averaging_t averaging, double factor, bool force_sum)
{
    net_config_t low = plain;
    low.dtype = param;
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(replicas, 1);
    options.mp_policy.param_dtype = param;
    options.mp_policy.reduce_dtype = r.reduce = reduce;
    options.averaging = r.averaging = averaging;
    r.factor = factor;
    r.force_sum = force_sum;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(
        net_create(&plain), param != FSDP_DTYPE_NONE ? net_create(&low) : NULL);
    net_shard(net, &options);
    set_all(net, factor, force_sum);
    twin_train(twin, net, net_run, &r, 1);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

/* f none, S, 2 S, W, 2 W and one that is no integer, on each mesh. */
START_TEST(factors_on_meshes)
{
    static const fsdp_dtype_t types[][2] = {{FSDP_DTYPE_NONE, FSDP_DTYPE_NONE},
                                            {FSDP_BF16, FSDP_FP32},
                                            {FSDP_BF16, FSDP_DTYPE_NONE},
                                            {FSDP_DTYPE_NONE, FSDP_FP16},
                                            {FSDP_DTYPE_NONE, FSDP_FP64}};
    int w = twin_size(), replicas;
    for (int i = 0; i < 4; i++) {
        if (!replicas_of(i, &replicas))
            continue;
        int s = replicas > 0 ? w / replicas : w;
        double factor[] = {0, s, 2.0 * s, w, 2.0 * w, 2.75};
        for (int f = 0; f < 6; f++)
            check(replicas, types[_i / 3][0], types[_i / 3][1],
                  (fsdp_averaging_t)(_i % 3), factor[f], false);
    }
}
END_TEST

START_TEST(sums_are_forced)
{
    static const fsdp_dtype_t reduce[] = {FSDP_DTYPE_NONE, FSDP_BF16, FSDP_FP16,
                                          FSDP_FP64};
    int replicas;
    for (int i = 0; i < 4; i++)
        for (int f = 0; f < 2 && replicas_of(i, &replicas); f++)
            check(replicas, FSDP_DTYPE_NONE, reduce[_i],
                  (fsdp_averaging_t)(i % 3), f * 3.0, true);
}
END_TEST

/* One rank of each dimension: one division, by the factor; by nothing if there
 * is none.  The gradient is exact, so dividing twice would show. */
START_TEST(one_rank_divides_once)
{
    static const fsdp_dtype_t reduce[] = {FSDP_DTYPE_NONE, FSDP_BF16, FSDP_FP16,
                                          FSDP_FP64};
    if (twin_size() > 1)
        return;
    for (int replicas = 0; replicas < 2; replicas++)
        for (int f = 0; f < 3; f++)
            for (int force = 0; force < 2; force++)
                check(replicas, FSDP_DTYPE_NONE, reduce[_i],
                      (fsdp_averaging_t)f, f * 2.0, force);
}
END_TEST

/* Set on the root, the factor is the root's alone. */
START_TEST(factor_of_the_root_only)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t others = twin_reduction(0, 1), root = others;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    fsdp_parameter_t *mine[TWIN_PARAMS];
    net_shard(net, &options);
    root.factor = 2 * twin_size();
    ck_assert(fsdp_module_set_gradient_divide_factor(net, root.factor) ==
              FSDP_OK);
    twin_run(twin, net_run, twin_size());
    net_run(net, twin_micro(0));
    fsdp_module_parameters(net, mine, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++) {
        bool in_root = strcmp(fsdp_parameter_unit(mine[p]), "") == 0;
        mck_assert(
            twin_grad_agrees(twin, p, mine[p], in_root ? &root : &others));
    }
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- hooks --------------------------------------------------------------------- */

typedef struct hooked {
    int calls;
    fsdp_dtype_t dtype;
    size_t numel;
    bool twice; /* doubles what it sees */
    float first;
} hooked_t;

static void
look(void *context, fsdp_dtype_t dtype, void *output, size_t numel)
{
    hooked_t *h = context;
    h->calls++;
    h->dtype = dtype;
    h->numel = numel;
    if (numel > 0)
        fsdp_convert(dtype, output, FSDP_FP32, &h->first, 1);
    for (size_t i = 0; h->twice && i < numel && dtype == FSDP_FP32; i++)
        ((float *)output)[i] *= 2;
}

/* The hook of layer 0 doubles its output: as if it had been divided by half as
 * much (a power of two changes no rounding).  It sees the output of the
 * all-reduce, if there is one, and each reduction once. */
START_TEST(hook_changes_its_module)
{
    int replicas;
    if (!replicas_of(_i, &replicas))
        return;
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(replicas, 1);
    hooked_t hooked = {.twice = true};
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    fsdp_parameter_t *mine[TWIN_PARAMS];
    net_shard(net, &options);
    ck_assert(fsdp_module_set_all_reduce_hook(net_layer(net, 0), look,
                                              &hooked) == FSDP_OK);
    twin_run(twin, net_run, twin_size());
    net_run(net, twin_micro(0));
    fsdp_module_parameters(net, mine, TWIN_PARAMS);
    size_t numel = 0;
    for (int p = 0; p < twin->count; p++) {
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        bool own = strcmp(fsdp_parameter_unit(mine[p]), "layers.0") == 0;
        for (size_t k = 0; own && k < local.padded_numel; k++)
            ((float *)local.grad)[k] /= 2;
        numel += own ? local.padded_numel : 0;
        mck_assert(twin_grad_agrees(twin, p, mine[p], &r));
    }
    mck_assert(hooked.calls == 1 && hooked.numel == numel &&
               hooked.dtype == FSDP_FP32);
    ck_assert(fsdp_module_set_all_reduce_hook(net_layer(net, 0), NULL, NULL) ==
              FSDP_OK);
    net_run(net, twin_micro(0));
    mck_assert(hooked.calls == 1);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* With a division that follows the sums the hook sees what it divides: W times
 * the gradient's first element, when W is a power of two. */
START_TEST(hook_comes_before_the_division)
{
    int w = twin_size();
    if ((w & (w - 1)) != 0)
        return;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    hooked_t hooked = {0};
    fsdp_module_t *net = net_create(&plain);
    net_shard(net, &options);
    fsdp_module_t *layer = net_layer(net, 0);
    fsdp_module_set_force_sum_reduction_for_comms(layer, _i == 0);
    fsdp_module_set_all_reduce_hook(layer, look, &hooked);
    net_run(net, twin_micro(0));
    fsdp_local_t local = fsdp_parameter_local(layer->parameter[0]);
    float first = local.numel > 0 ? ((float *)local.grad)[0] : 0;
    mck_assert(local.numel == 0 ||
               hooked.first == first * (_i == 0 ? (float)w : 1));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* An all-reduce that is put off puts its hook off. */
START_TEST(hook_waits_for_the_all_reduce)
{
    fsdp_mesh_t *mesh = twin_mesh(twin_size());
    fsdp_options_t options = twin_options(mesh);
    hooked_t hooked = {0};
    fsdp_module_t *net = net_create(&plain);
    net_shard(net, &options);
    fsdp_module_set_all_reduce_hook(net, look, &hooked);
    fsdp_module_set_requires_all_reduce(net, false, true);
    net_run(net, twin_micro(0));
    ck_assert(hooked.calls == 0);
    fsdp_module_set_requires_all_reduce(net, true, true);
    net_run(net, twin_micro(1));
    ck_assert(hooked.calls == 1);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- custom collectives ---------------------------------------------------------- */

typedef struct counted {
    int gathers, scatters;
} counted_t;

static void
own_all_gather(void *context, fsdp_comm_t *comm, fsdp_dtype_t dtype,
               const void *in, void *out, size_t count)
{
    ((counted_t *)context)->gathers++;
    fsdp_all_gather(comm, "own", dtype, in, out, count);
}

static void
own_reduce_scatter(void *context, fsdp_comm_t *comm, fsdp_dtype_t dtype,
                   const void *in, void *out, size_t count)
{
    ((counted_t *)context)->scatters++;
    fsdp_reduce_scatter(comm, "own", dtype, FSDP_ORDER_TREE, in, out, count);
}

/* They take the place of the library's for their module alone. */
START_TEST(custom_collectives)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    counted_t counted = {0};
    fsdp_custom_comm_t custom = {.context = &counted,
                                 .all_gather = own_all_gather,
                                 .reduce_scatter = own_reduce_scatter};
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(net, &options);
    ck_assert(fsdp_module_set_custom_comm(net_layer(net, 1), &custom) ==
              FSDP_OK);
    fsdp_mesh_reset_counters(mesh);
    twin_train(twin, net, net_run, &r, 1);
    int some = twin_size() > 1;
    mck_assert(counted.gathers == 2 * some && counted.scatters == some);
    mck_assert(twin_called(mesh, 2 * GROUPS - 1, GROUPS, 0));
    ck_assert(fsdp_module_set_custom_comm(net_layer(net, 1), NULL) == FSDP_OK);
    twin_train(twin, net, net_run, &r, 1);
    mck_assert(counted.gathers == 2 * some && counted.scatters == some);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("divide");
    TCase *tcase = tcase_create("reductions");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, factors_on_meshes, 0, 15);
    tcase_add_loop_test(tcase, sums_are_forced, 0, 4);
    tcase_add_loop_test(tcase, one_rank_divides_once, 0, 4);
    tcase_add_test(tcase, factor_of_the_root_only);
    tcase_add_loop_test(tcase, hook_changes_its_module, 0, 4);
    tcase_add_loop_test(tcase, hook_comes_before_the_division, 0, 2);
    tcase_add_test(tcase, hook_waits_for_the_all_reduce);
    tcase_add_test(tcase, custom_collectives);
    return mck_run(argc, argv, suite);
}
