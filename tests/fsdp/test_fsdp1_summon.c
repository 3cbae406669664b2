/* FSDP1: summon_full_params: whole parameters and gradients, and what is written
 * back. */
/* Ranks: 1 2 3 4 5 */
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"

static const net_config_t config = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

enum { LAYERS = 3, MAX_PARAMS = 16 };

static int
world_size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

static fsdp1_options_t
options_on(fsdp_mesh_t *mesh)
{
    fsdp1_options_t o = fsdp1_options_default();
    o.mesh = mesh;
    return o;
}

static fsdp_module_t *
wrapped(const fsdp1_options_t *o)
{
    fsdp_module_t *net = net_create(&config);
    for (int i = 0; i < LAYERS; i++)
        ck_assert(fsdp_fully_sharded_data_parallel(net_layer(net, i), o) ==
                  FSDP_OK);
    ck_assert(fsdp_fully_sharded_data_parallel(net, o) == FSDP_OK);
    return net;
}

static void
run(fsdp_module_t *net, bool grad)
{
    fsdp_tape_options_t o = fsdp_tape_options_default();
    o.grad_enabled = grad;
    fsdp_tape_t *tape = fsdp_tape_create(&o);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, 0);
    fsdp_tensor_t *loss = net_loss(net, tape, x);
    if (grad)
        fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
}

/* Each parameter is what a rank makes of the whole, and a change of it is seen
 * in the chunks, the rest of which stays. */
static void
check_summon(const fsdp1_options_t *o, bool writeback, bool after_forward)
{
    fsdp_module_t *net = wrapped(o), *whole = net_create(&config);
    fsdp_parameter_t *mine[MAX_PARAMS], *want[MAX_PARAMS];
    size_t count = fsdp_module_parameters(net, mine, MAX_PARAMS);
    fsdp_module_parameters(whole, want, MAX_PARAMS);
    fsdp1_summon_options_t s = fsdp1_summon_options_default();
    s.writeback = writeback;
    if (after_forward)
        run(net, false);
    ck_assert(fsdp1_summon_full_params(net, &s) == FSDP_OK);
    for (size_t p = 0; p < count; p++) {
        const float *values = fsdp_parameter_data(mine[p]);
        size_t n = fsdp_parameter_numel(mine[p]);
        mck_assert(mine[p]->data_dtype == FSDP_FP32 &&
                   memcmp(values, fsdp_parameter_data(want[p]),
                          n * sizeof *values) == 0);
        for (size_t i = 0; i < n; i++)
            ((float *)mine[p]->data)[i] += 1;
    }
    ck_assert(fsdp1_release_full_params(net) == FSDP_OK);
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        const float *old = fsdp_parameter_data(want[p]);
        size_t begin = fsdp_layout_begin(&local.layout);
        bool good = true;
        bool kept = writeback || local.layout.kind == FSDP_LAYOUT_WHOLE;
        for (size_t i = 0; i < local.numel; i++)
            good &= ((float *)local.data)[i] == old[begin + i] + (kept ? 1 : 0);
        mck_assert(good);
    }
    fsdp_module_destroy(&whole);
    run(net, true); /* and the next forward uses them */
    fsdp_module_destroy(&net);
}

START_TEST(summon_and_write_back)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.use_orig_params = _i % 2 == 0;
    o.sharding_strategy = (fsdp_sharding_strategy_t)(_i % 3);
    if (_i >= 3)
        o.mixed_precision.param_dtype = FSDP_BF16;
    check_summon(&o, true, _i % 2 == 1);
    check_summon(&o, false, _i % 2 == 0);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* After a change that was written back, a forward uses it, although the unit had
 * been left gathered: the loss is that of the changed whole model. */
START_TEST(what_was_gathered_is_not_old)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.sharding_strategy = (fsdp_sharding_strategy_t)_i;
    fsdp_module_t *nets[2] = {wrapped(&o), net_create(&config)};
    fsdp_tape_options_t quiet = fsdp_tape_options_default();
    quiet.grad_enabled = false;
    run(nets[0], false); /* leaves the root gathered, or all */
    double loss[2];
    for (int k = 0; k < 2; k++) {
        ck_assert(fsdp1_summon_full_params(nets[k], NULL) == FSDP_OK);
        fsdp_parameter_t *all[MAX_PARAMS];
        size_t count = fsdp_module_parameters(nets[k], all, MAX_PARAMS);
        for (size_t p = 0; p < count; p++) {
            float *x = (float *)fsdp_parameter_data(all[p]);
            x[0] = 0.25f;
        }
        ck_assert(fsdp1_release_full_params(nets[k]) == FSDP_OK);
        fsdp_tape_t *tape = fsdp_tape_create(&quiet);
        loss[k] = fsdp_tensor_get(
            net_loss(nets[k], tape, net_batch(nets[k], tape, NET_BATCH, 3)), 0);
        fsdp_tape_destroy(&tape);
    }
    mck_assert(loss[0] == loss[1]);
    fsdp_module_destroy(&nets[0]);
    fsdp_module_destroy(&nets[1]);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(summon_on_rank_0_without_recursion)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *net = wrapped(&o);
    fsdp1_summon_options_t s = {.rank0_only = true};
    fsdp_parameter_t *stem = fsdp_module_find_parameter(net, "stem.weight");
    fsdp_parameter_t *inner =
        fsdp_module_find_parameter(net, "layers.1.weight");
    ck_assert(fsdp1_summon_full_params(net, &s) == FSDP_OK);
    bool whole = world_size() == 1;
    bool first = fsdp_comm_rank(fsdp_comm_world()) == 0;
    mck_assert((stem->data != NULL) == (first || whole));
    mck_assert((inner->data != NULL) == whole);
    ck_assert(fsdp1_summon_full_params(net, &s) == FSDP_ERR_USAGE);
    ck_assert(fsdp1_release_full_params(net) == FSDP_OK);
    ck_assert(fsdp1_release_full_params(net) == FSDP_ERR_USAGE);
    mck_assert((stem->data != NULL) == whole);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Whole gradients: doubled while summoned, they are so in the parts. */
START_TEST(summon_gradients)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.use_orig_params = true;
    o.sharding_strategy = (fsdp_sharding_strategy_t)_i;
    fsdp_module_t *net = wrapped(&o);
    fsdp_parameter_t *all[MAX_PARAMS];
    size_t count = fsdp_module_parameters(net, all, MAX_PARAMS);
    fsdp1_summon_options_t s = fsdp1_summon_options_default();
    s.with_grads = true;
    run(net, true);
    float *before[MAX_PARAMS];
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(all[p]);
        before[p] = fsdp_alloc(FSDP_MEM_OTHER, local.numel * sizeof *before[p]);
        memcpy(before[p], local.grad, local.numel * sizeof *before[p]);
    }
    ck_assert(fsdp1_summon_full_params(net, &s) == FSDP_OK);
    for (size_t p = 0; p < count; p++) {
        ck_assert(all[p]->grad != NULL);
        float *g = all[p]->grad->data;
        for (size_t i = 0; i < fsdp_parameter_numel(all[p]); i++)
            g[i] *= 2;
    }
    ck_assert(fsdp1_release_full_params(net) == FSDP_OK);
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(all[p]);
        bool good = all[p]->grad == NULL;
        for (size_t i = 0; i < local.numel; i++)
            good &= ((float *)local.grad)[i] == 2 * before[p][i];
        mck_assert(good);
        fsdp_free(before[p]);
    }
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_summon");
    TCase *tcase = tcase_create("whole");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, summon_and_write_back, 0, 6);
    tcase_add_loop_test(tcase, what_was_gathered_is_not_old, 0, 3);
    tcase_add_test(tcase, summon_on_rank_0_without_recursion);
    tcase_add_loop_test(tcase, summon_gradients, 0, 3);
    return mck_run(argc, argv, suite);
}
