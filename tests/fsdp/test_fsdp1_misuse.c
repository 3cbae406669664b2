/* FSDP1: what is refused is refused on all ranks, with a message that says what
 * and the remedy, and nothing hangs. */
/* Ranks: 1 2 4 */
#include <math.h>
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"

static const net_config_t config = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

static fsdp_mesh_t *mesh;
static fsdp_module_t *net;
static fsdp1_options_t o;

static void
set_up(void)
{
    mesh = fsdp_mesh_create_1d();
    net = net_create(&config);
    o = fsdp1_options_default();
    o.mesh = mesh;
}

static void
tear_down(void)
{
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

static bool
refused(fsdp_status_t status, const char *word)
{
    return status == FSDP_ERR_USAGE &&
           strstr(fsdp_error_message(), word) != NULL;
}

static fsdp_status_t
wrap(fsdp_module_t *module)
{
    return fsdp_fully_sharded_data_parallel(module, &o);
}

START_TEST(options_are_checked)
{
    mck_assert(refused(fsdp_fully_sharded_data_parallel(net, NULL), "options"));
    o.mesh = NULL;
    mck_assert(refused(wrap(net), "mesh"));
    o.mesh = mesh;
    o.sharding_strategy = FSDP_HYBRID_SHARD;
    mck_assert(refused(wrap(net), "two dimensions"));
    o.sharding_strategy = FSDP_FULL_SHARD;
    fsdp_mesh_t *two =
        fsdp_mesh_create_2d(1, fsdp_comm_size(fsdp_comm_world()));
    o.mesh = two;
    mck_assert(refused(wrap(net), "one dimension"));
    fsdp_mesh_destroy(&two);
    o.mesh = mesh;
    o.mixed_precision.buffer_dtype = FSDP_BF16;
    mck_assert(refused(wrap(net), "buffer_dtype"));
    o.mixed_precision.buffer_dtype = FSDP_DTYPE_NONE;
    o.mixed_precision.param_dtype = FSDP_INT32;
    mck_assert(refused(wrap(net), "param_dtype"));
    o.mixed_precision.param_dtype = FSDP_DTYPE_NONE;
    o.mixed_precision.reduce_dtype = FSDP_UINT8;
    mck_assert(refused(wrap(net), "reduce_dtype"));
    o.mixed_precision.reduce_dtype = FSDP_DTYPE_NONE;
    o.gradient_divide_factor = -1;
    mck_assert(refused(wrap(net), "factor"));
    o.gradient_divide_factor = NAN;
    mck_assert(refused(wrap(net), "factor"));
    o.gradient_divide_factor = 0;
    mck_assert(wrap(net) == FSDP_OK); /* nothing was changed by all that */
}
END_TEST

START_TEST(modules_are_checked)
{
    mck_assert(wrap(net_layer(net, 0)) == FSDP_OK);
    mck_assert(refused(wrap(net_layer(net, 0)), "already"));
    o.auto_wrap_policy = fsdp_always_wrap_policy();
    mck_assert(refused(wrap(net), "layers.0"));
    o.auto_wrap_policy = (fsdp_wrap_policy_t){0};
    o.use_orig_params = true;
    mck_assert(refused(wrap(net), "use_orig_params"));
    o.use_orig_params = false;
    o.limit_all_gathers = false;
    mck_assert(refused(wrap(net), "limit_all_gathers"));
    o.limit_all_gathers = true;
    fsdp_options_t two = fsdp_options_default();
    two.mesh = mesh;
    mck_assert(fully_shard(net_layer(net, 1), &two) == FSDP_OK);
    mck_assert(refused(wrap(net_layer(net, 1)), "another unit or group"));
    mck_assert(refused(fully_shard(net_layer(net, 0), &two), "layers.0"));
}
END_TEST

START_TEST(parameters_are_checked)
{
    fsdp_parameter_t *bias = fsdp_module_find_parameter(net, "layers.1.bias");
    bias->requires_grad = false;
    mck_assert(refused(wrap(net_layer(net, 1)), "layers.1.bias"));
    mck_assert(refused(wrap(net_layer(net, 1)), "use_orig_params"));
    bias->requires_grad = true;
    bias->dtype = FSDP_FP64;
    mck_assert(refused(wrap(net_layer(net, 1)), "float64"));
    bias->dtype = FSDP_INT32;
    mck_assert(refused(wrap(net_layer(net, 1)), "int32"));
    bias->dtype = FSDP_FP32;
    fsdp_parameter_data(fsdp_module_find_parameter(net, "layers.2.bias"));
    mck_assert(refused(wrap(net_layer(net, 2)), "layers.2.bias"));
    mck_assert(wrap(net_layer(net, 0)) == FSDP_OK);
    fsdp_module_tie_parameter(net_layer(net, 1),
                              net_layer(net, 0)->parameter[0]);
    mck_assert(refused(wrap(net_layer(net, 1)), "layers.0.weight"));
}
END_TEST

START_TEST(calls_are_checked)
{
    mck_assert(
        refused(fsdp1_set_requires_gradient_sync(net, false), "not wrapped"));
    mck_assert(wrap(net_layer(net, 0)) == FSDP_OK && wrap(net) == FSDP_OK);
    mck_assert(fsdp1_set_requires_gradient_sync(net, true) == FSDP_OK);
    mck_assert(refused(
        fsdp1_set_requires_gradient_sync(net_layer(net, 0), false), "root"));
    fsdp1_summon_options_t s = fsdp1_summon_options_default();
    s.rank0_only = true;
    mck_assert(refused(fsdp1_summon_full_params(net, &s), "rank0_only"));
    s.rank0_only = false;
    s.with_grads = true;
    mck_assert(refused(fsdp1_summon_full_params(net, &s), "use_orig_params"));
    s.offload_to_cpu = true;
    mck_assert(refused(fsdp1_summon_full_params(net, &s), "offload_to_cpu"));
    s.with_grads = false;
    bool cut = fsdp_comm_size(fsdp_comm_world()) > 1;
    mck_assert(cut ? fsdp1_summon_full_params(net, &s) == FSDP_OK
                   : refused(fsdp1_summon_full_params(net, &s), "NO_SHARD"));
    mck_assert((fsdp1_release_full_params(net) == FSDP_OK) == cut);
    mck_assert(refused(fsdp1_release_full_params(net), "nothing"));
}
END_TEST

START_TEST(stages_are_checked)
{
    if (fsdp_comm_size(fsdp_comm_world()) == 1)
        return; /* every stage is DDP there */
    mck_assert(fsdp_zero(net_layer(net, 0), FSDP_ZERO1, &o) == FSDP_OK);
    mck_assert(refused(fsdp_zero(net, FSDP_ZERO2, &o), "layers.0"));
    o.sharding_strategy = FSDP_HYBRID_SHARD;
    mck_assert(refused(fsdp_zero(net, FSDP_ZERO1, &o), "hybrid"));
}
END_TEST

START_TEST(names)
{
    fsdp_sharding_strategy_t s;
    fsdp_backward_prefetch_t b;
    fsdp_zero_stage_t z;
    for (int i = 0; i < 5; i++)
        ck_assert(
            fsdp_sharding_strategy_from_name(
                fsdp_sharding_strategy_name((fsdp_sharding_strategy_t)i), &s) &&
            (int)s == i);
    ck_assert(fsdp_sharding_strategy_from_name("HYBRID_SHARD_ZERO2", &s) &&
              s == FSDP_HYBRID_SHARD_ZERO2);
    ck_assert(!fsdp_sharding_strategy_from_name("full", &s));
    ck_assert(!fsdp_sharding_strategy_from_name("ULL_SHARD", &s));
    ck_assert(fsdp_backward_prefetch_from_name("BACKWARD_POST", &b) &&
              b == FSDP_BACKWARD_POST);
    ck_assert(!fsdp_backward_prefetch_from_name("pre", &b));
    for (int i = 0; i < 4; i++)
        ck_assert(fsdp_zero_stage_from_name(
                      fsdp_zero_stage_name((fsdp_zero_stage_t)i), &z) &&
                  (int)z == i);
    ck_assert(!fsdp_zero_stage_from_name("zero4", &z));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_misuse");
    TCase *tcase = tcase_create("refused");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, options_are_checked);
    tcase_add_test(tcase, modules_are_checked);
    tcase_add_test(tcase, parameters_are_checked);
    tcase_add_test(tcase, calls_are_checked);
    tcase_add_test(tcase, stages_are_checked);
    tcase_add_test(tcase, names);
    return mck_run(argc, argv, suite);
}
