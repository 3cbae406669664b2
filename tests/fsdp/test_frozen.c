/* Parameters that are frozen, not used, or whose outputs are not used.
 * PyTorch: test_fully_shard_frozen.py, test_fully_shard_autograd.py. */
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};
static const net_config_t twice = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 0}, .dropped = -1};
static const net_config_t unused = {
    .stem = true, .head = true, .uses = 2, .order = {0, 2}, .dropped = -1};
static const net_config_t dropped = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = 1};

/* Freezes every parameter whose name contains the word. */
static void
freeze(fsdp_module_t *net, const char *word)
{
    fsdp_parameter_t *p[TWIN_PARAMS];
    size_t n = fsdp_module_parameters(net, p, TWIN_PARAMS);
    for (size_t i = 0; i < n; i++)
        if (strstr(p[i]->name, word) != NULL)
            p[i]->requires_grad = false;
}

/* Bytes of the padded shards of trainable parameters that were used. */
static size_t
trainable_bytes(const twin_t *twin, fsdp_module_t *net)
{
    fsdp_parameter_t *p[TWIN_PARAMS];
    size_t n = fsdp_module_parameters(net, p, TWIN_PARAMS), bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (twin->grad[i][0] != NULL)
            bytes += fsdp_parameter_local(p[i]).padded_numel * sizeof(float);
    return bytes;
}

static void
check(const net_config_t *config, const char *frozen, int micros)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, micros);
    fsdp_module_t *net = net_create(config);
    twin_t *twin = twin_create(net_create(config), NULL);
    freeze(net, frozen);
    freeze(twin->module, frozen);
    net_shard(net, &options);
    twin_run(twin, net_run, twin_size() * micros);
    fsdp_mesh_reset_counters(mesh);
    twin_run_sharded(net, net_run, &r);
    mck_assert(twin_grads_agree(twin, net, &r));
    mck_assert(fsdp_mesh_counter(mesh, FSDP_REDUCE_SCATTER).bytes_sent ==
               (size_t)(twin_size() - 1) * (size_t)micros *
                   trainable_bytes(twin, net));
    twin_update(twin, &r);
    twin_update_shards(net);
    twin_train(twin, net, net_run, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

/* Only what is trainable is reduced. */
START_TEST(mixed_within_groups)
{
    check(&plain, "bias", 1);
    check(&plain, "weight", 2);
}
END_TEST

START_TEST(mixed_over_groups)
{
    static const char *const frozen[] = {"layers.0", "layers.1", "layers.2",
                                         "stem", "head"};
    for (int i = 0; i < 5; i++)
        check(&plain, frozen[i], 1);
}
END_TEST

START_TEST(mixed_and_used_twice)
{
    check(&twice, "bias", 1);
    check(&twice, "layers.1", 2);
}
END_TEST

START_TEST(unused_module)
{
    check(&unused, "nothing", 2);
}
END_TEST

START_TEST(unused_output)
{
    check(&dropped, "nothing", 2);
}
END_TEST

/* ---- ranks that use different modules ---------------------------------------------- */

/* Even micro-batches go through a, odd ones through b. */
static int chosen;

static fsdp_values_t
choose(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int i = 0; i < 2; i++) /* all run, so all ranks gather alike */
        fsdp_module_call1(self->child[i], tape, inputs.tensor[0]);
    return fsdp_values1(
        fsdp_module_call1(self->child[chosen], tape, inputs.tensor[0]));
}

static fsdp_module_t *
choose_create(void)
{
    fsdp_module_t *module = fsdp_module_create("", "Choose", choose, NULL, 0);
    fsdp_module_add_child(module,
                          fsdp_linear_create("a", 4, 3, true, FSDP_FP32, 1));
    fsdp_module_add_child(module,
                          fsdp_linear_create("b", 4, 3, true, FSDP_FP32, 1));
    return module;
}

static void
run_choose(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){2, 4});
    for (size_t i = 0; i < 8; i++)
        fsdp_tensor_set(x, i, (double)((i * 3 + (size_t)micro) % 8) / 4 - 1);
    chosen = micro % 2;
    fsdp_backward(tape, net_loss(module, tape, x));
    fsdp_tape_destroy(&tape);
}

/* Told so, ranks that did not use a parameter reduce zeros in its place. */
START_TEST(unused_on_some_ranks)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 2);
    r.unused = true;
    r.how = _i == 0 ? TWIN_SYNC : TWIN_NO_SYNC;
    fsdp_module_t *module = choose_create();
    twin_t *twin = twin_create(choose_create(), NULL);
    ck_assert(fully_shard(module, &options) == FSDP_OK);
    ck_assert(fsdp_module_set_reduce_scatter_unused_params(module, true,
                                                           true) == FSDP_OK);
    twin_train(twin, module, run_choose, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("frozen");
    TCase *tcase = tcase_create("gradients");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, mixed_within_groups);
    tcase_add_test(tcase, mixed_over_groups);
    tcase_add_test(tcase, mixed_and_used_twice);
    tcase_add_test(tcase, unused_module);
    tcase_add_test(tcase, unused_output);
    tcase_add_loop_test(tcase, unused_on_some_ranks, 0, 2);
    return mck_run(argc, argv, suite);
}
