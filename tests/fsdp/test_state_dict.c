/* The state of a sharded model: shards that alias its parameters, without
 * collectives; wholes on one rank; saved and loaded; methods under hooks.
 * PyTorch: test_fully_shard_state_dict.py, checkpoint/fsdp/test_fsdp_dsd.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

static fsdp_comm_t *
world(void)
{
    return fsdp_comm_world();
}

static size_t
parameters(fsdp_module_t *net, fsdp_parameter_t **p)
{
    return fsdp_module_parameters(net, p, TWIN_PARAMS);
}

/* ---- aliasing ---------------------------------------------------------------------- */

/* No collective; the same memory from the first to the last step, also while the
 * parameters are gathered; and what is written there is what is gathered. */
START_TEST(shards_alias_the_parameters)
{
    static const int reshard[] = {FSDP_RESHARD_TRUE, FSDP_RESHARD_FALSE};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = reshard[_i];
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_parameter_t *p[TWIN_PARAMS];
    void *data[TWIN_PARAMS];
    net_shard(net, &options);
    size_t n = parameters(net, p);
    fsdp_mesh_reset_counters(mesh);
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(p[i]->name, twin->param[i]->name);
        data[i] = fsdp_parameter_local(p[i]).data;
    }
    mck_assert(twin_called(mesh, 0, 0, 0));
    twin_train(twin, net, net_run, &r, 2);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    net_loss(net, tape, net_batch(net, tape, 2, 0));
    for (size_t i = 0; i < n; i++)
        ck_assert(fsdp_parameter_local(p[i]).data == data[i]);
    fsdp_tape_destroy(&tape);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- wholes ------------------------------------------------------------------------- */

/* Only the root is given anything; parameters and gradients alike, over shards
 * and replicas. */
static void
check_wholes(int replicas, bool offload)
{
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    options.offload_policy.directory = offload ? "/tmp" : NULL;
    twin_reduction_t r = twin_reduction(replicas, 1);
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    fsdp_parameter_t *p[TWIN_PARAMS];
    net_shard(net, &options);
    twin_run(twin, net_run, twin_size());
    net_run(net, twin_micro(0));
    size_t n = parameters(net, p);
    int root = twin_size() - 1;
    float out[64], untouched = -7;
    for (size_t i = 0; i < n; i++) {
        size_t numel = fsdp_parameter_numel(p[i]);
        for (int grad = 0; grad < 2; grad++) {
            out[0] = untouched;
            fsdp_parameter_gather(p[i],
                                  grad ? fsdp_parameter_local(p[i]).grad : NULL,
                                  world(), root, out);
            bool right = twin_rank() == root || out[0] == untouched;
            for (size_t k = 0; twin_rank() == root && k < numel; k++) {
                double want = twin->value[i][k];
                if (grad)
                    twin_reduced(twin, (int)i, k, 0, &r, &want);
                right &= out[k] == (float)want;
            }
            mck_assert(right);
        }
    }
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(wholes_on_one_rank)
{
    check_wholes(0, false);
    check_wholes(twin_size(), false);
    check_wholes(twin_size() % 2 == 0 ? 2 : 1, false);
}
END_TEST

START_TEST(wholes_of_offloaded_shards)
{
    check_wholes(0, true);
}
END_TEST

/* ---- there and back ------------------------------------------------------------------ */

/* Written by a sharded model on one mesh, read by one on another, and by a model
 * that nobody shards. */
START_TEST(saved_and_loaded)
{
    const char *path = "test_state_dict.safetensors";
    bool offload = _i == 1;
    int replicas = twin_size() % 2 == 0 ? 2 : 1;
    fsdp_mesh_t *one = twin_mesh(0), *two = twin_mesh(replicas);
    fsdp_options_t options = twin_options(one);
    options.offload_policy.directory = offload ? "/tmp" : NULL;
    twin_reduction_t r = twin_reduction(0, 1), s = twin_reduction(replicas, 1);
    fsdp_module_t *from = net_create(&plain), *to = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(from, &options);
    options.mesh = two;
    net_shard(to, &options);
    twin_train(twin, from, net_run, &r, 2);
    ck_assert_msg(fsdp_model_save(from, world(), path, NULL, 0) == FSDP_OK,
                  "%s", fsdp_error_message());
    ck_assert_msg(fsdp_model_load(to, world(), path) == FSDP_OK, "%s",
                  fsdp_error_message());
    mck_assert(twin_data_agree(twin, to));
    twin_train(twin, to, net_run, &s, 1);
    fsdp_barrier(world(), "test");
    if (twin_rank() == 0)
        unlink(path);
    twin_destroy(&twin);
    fsdp_module_destroy(&from);
    fsdp_module_destroy(&to);
    fsdp_mesh_destroy(&one);
    fsdp_mesh_destroy(&two);
}
END_TEST

/* ---- another method ------------------------------------------------------------------- */

/* As the forward of layer 0, but of twice the input. */
static fsdp_values_t
twice_the_input(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = fsdp_scale(tape, inputs.tensor[0], 2);
    return fsdp_values1(
        fsdp_linear(tape, x, self->parameter[0], self->parameter[1]));
}

static void
run_method(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){3, 4});
    for (size_t i = 0; i < 12; i++)
        fsdp_tensor_set(x, i, (double)((i * 5 + (size_t)micro) % 8) / 4 - 1);
    fsdp_tensor_t *y =
        fsdp_module_call_method(module, twice_the_input, tape, fsdp_values1(x))
            .tensor[0];
    fsdp_tensor_t *zero =
        fsdp_tape_new_tensor(tape, y->dtype, y->ndim, y->shape);
    fsdp_tensor_zero(zero);
    fsdp_backward(tape, fsdp_mse_loss(tape, y, zero));
    fsdp_tape_destroy(&tape);
}

START_TEST(a_method_under_the_hooks)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *module = fsdp_linear_create("", 4, 3, true, FSDP_FP32, 1);
    twin_t *twin =
        twin_create(fsdp_linear_create("", 4, 3, true, FSDP_FP32, 1), NULL);
    ck_assert(fully_shard(module, &options) == FSDP_OK);
    fsdp_mesh_reset_counters(mesh);
    twin_train(twin, module, run_method, &r, 2);
    mck_assert(twin_called(mesh, 2, 2, 0));
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("state dict");
    TCase *tcase = tcase_create("state");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, shards_alias_the_parameters, 0, 2);
    tcase_add_test(tcase, wholes_on_one_rank);
    tcase_add_test(tcase, wholes_of_offloaded_shards);
    tcase_add_loop_test(tcase, saved_and_loaded, 0, 2);
    tcase_add_test(tcase, a_method_under_the_hooks);
    return mck_run(argc, argv, suite);
}
