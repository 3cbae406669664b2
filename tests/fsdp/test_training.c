/* Training of a sharded model gives the bits of one that nobody shards: groups
 * of all kinds, settings that may change no number.  PyTorch:
 * test_fully_shard_training.py. */
#include <stdlib.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};
static const net_config_t twice = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 0}, .dropped = -1};
static const net_config_t blocks = {.stem = true,
                                    .head = true,
                                    .blocks = true,
                                    .uses = 2,
                                    .order = {0, 1},
                                    .dropped = -1};

/* Shards copies of the net in some way, trains both, and cleans up. */
static void
train(const net_config_t *config, const fsdp_options_t *options,
      void (*shard)(fsdp_module_t *net, const fsdp_options_t *options),
      twin_run_t run, const twin_reduction_t *r, int steps)
{
    fsdp_module_t *net = net_create(config);
    twin_t *twin = twin_create(net_create(config), NULL);
    shard(net, options);
    twin_train(twin, net, run, r, steps);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
}

static void
root_alone(fsdp_module_t *net, const fsdp_options_t *options)
{
    ck_assert(fully_shard(net, options) == FSDP_OK);
}

/* ---- groups ---------------------------------------------------------------- */

START_TEST(one_group_uneven_rows)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    train(&plain, &options, root_alone, net_run, &r, 10);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(several_groups)
{
    static const int reshard[] = {FSDP_RESHARD_AUTO, FSDP_RESHARD_TRUE,
                                  FSDP_RESHARD_FALSE};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = reshard[_i];
    twin_reduction_t r = twin_reduction(0, 2);
    train(&plain, &options, twin_shard, net_run, &r, 3);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(a_module_used_twice)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward =
        _i == 0 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, 1);
    train(&twice, &options, twin_shard, net_run, &r, 3);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* A single rank calls no collective, and divides by nothing. */
START_TEST(collectives_of_one_rank)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_mesh_reset_counters(mesh);
    train(&plain, &options, twin_shard, net_run, &r, 2);
    twin_calls_t calls = twin_calls(mesh);
    ck_assert((calls.all_gather == 0) == (twin_size() == 1));
    ck_assert((calls.reduce_scatter == 0) == (twin_size() == 1));
    ck_assert(calls.all_reduce == 0);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Shards and gradients in a file. */
START_TEST(offloaded)
{
    const char *directory = getenv("TMPDIR");
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.offload_policy.directory = directory != NULL ? directory : "/tmp";
    options.reshard_after_forward =
        _i == 0 ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, 2);
    size_t in_memory = fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD);

    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    twin_shard(net, &options);
    ck_assert(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD) == in_memory);
    ck_assert(fsdp_offload_live_bytes(FSDP_MEM_PARAM_SHARD) > 0);
    twin_train(twin, net, net_run, &r, 3);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- gathers by hand and ahead --------------------------------------------- */

/* Handles of even layers are waited for, those of odd ones left to the
 * forward. */
static void
run_after_unshard(fsdp_module_t *net, int micro)
{
    fsdp_unshard_handle_t *handle[3] = {NULL};
    for (int i = 0; i < 3 && net->fsdp_state != NULL; i++)
        ck_assert(fsdp_module_unshard(net_layer(net, i), true, &handle[i]) ==
                  FSDP_OK);
    for (int i = 0; i < 3; i += 2)
        fsdp_unshard_handle_wait(&handle[i]);
    net_run(net, micro);
    fsdp_unshard_handle_wait(&handle[1]);
}

START_TEST(unshard_ahead_of_the_forward)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 2);
    train(&plain, &options, twin_shard, run_after_unshard, &r, 3);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

static void
shard_and_prefetch(fsdp_module_t *net, const fsdp_options_t *options)
{
    twin_shard(net, options);
    for (int i = 0; i < 3; i++) {
        fsdp_module_t *back[] = {net_layer(net, (i + 2) % 3),
                                 net_layer(net, (i + 1) % 3)};
        fsdp_module_set_modules_to_forward_prefetch(
            net_layer(net, i), net->child + i + 1, i < 2 ? 2 - i : 0);
        fsdp_module_set_modules_to_backward_prefetch(net_layer(net, i), back,
                                                     i < 2 ? i : 2);
    }
}

START_TEST(prefetch_lists_change_no_bit)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    train(&plain, &options, shard_and_prefetch, net_run, &r, 3);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- a child by itself ------------------------------------------------------ */

/* Every other micro-batch of a rank goes through layer 1 alone. */
static void
run_root_or_child(fsdp_module_t *net, int micro)
{
    if (micro / twin_size() % 2 == 0) {
        net_run(net, micro);
        return;
    }
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){3, 7});
    for (size_t i = 0; i < 21; i++)
        fsdp_tensor_set(x, i, (double)((int)i * 5 % 7 - micro) / 8);
    fsdp_backward(tape, net_loss(net_layer(net, 1), tape, x));
    fsdp_tape_destroy(&tape);
}

START_TEST(root_then_a_child_alone)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 2);
    train(&plain, &options, twin_shard, run_root_or_child, &r, 2);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- checkpoints ------------------------------------------------------------ */

static void
checkpoint_layers(fsdp_module_t *net)
{
    for (int i = 0; i < net_num_layers(net); i++)
        ck_assert(fsdp_checkpoint_wrapper(net_layer(net, i)) == FSDP_OK);
}

/* PyTorch: fully_shard(checkpoint(block)). */
static void
blocks_inside(fsdp_module_t *net, const fsdp_options_t *options)
{
    checkpoint_layers(net);
    twin_shard(net, options);
}

/* PyTorch: checkpoint(fully_shard(block)). */
static void
blocks_around(fsdp_module_t *net, const fsdp_options_t *options)
{
    twin_shard(net, options);
    checkpoint_layers(net);
}

/* Groups inside the checkpoint, with and without one around. */
static void
parts_inside(fsdp_module_t *net, const fsdp_options_t *options)
{
    checkpoint_layers(net);
    for (int i = 0; i < net_num_layers(net); i++)
        for (int c = 1; c < 3; c++)
            root_alone(net_layer(net, i)->child[c], options);
    root_alone(net, options);
}

static void
parts_and_blocks(fsdp_module_t *net, const fsdp_options_t *options)
{
    for (int i = 0; i < net_num_layers(net); i++)
        for (int c = 0; c < 3; c++)
            root_alone(net_layer(net, i)->child[c], options);
    blocks_inside(net, options);
}

static void
root_only(fsdp_module_t *net, const fsdp_options_t *options)
{
    checkpoint_layers(net);
    root_alone(net, options);
}

START_TEST(checkpoints_and_groupings)
{
    void (*const ways[])(fsdp_module_t *, const fsdp_options_t *) = {
        blocks_inside, blocks_around, parts_inside, parts_and_blocks,
        root_only};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward =
        _i % 2 == 0 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, 2);
    train(&blocks, &options, ways[_i / 2], net_run, &r, 2);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Two forwards through checkpointed blocks with groups inside, then one
 * backward. */
static void
run_two_forwards(fsdp_module_t *net, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *a = net_loss(net, tape, net_batch(net, tape, 3, micro));
    fsdp_tensor_t *b = net_loss(net, tape, net_batch(net, tape, 2, micro + 9));
    fsdp_backward(tape, fsdp_add(tape, a, b));
    fsdp_tape_destroy(&tape);
}

START_TEST(two_forwards_through_checkpoints)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward =
        _i == 0 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, 1);
    train(&blocks, &options, parts_and_blocks, run_two_forwards, &r, 2);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("training");
    TCase *tcase = tcase_create("parity");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, one_group_uneven_rows);
    tcase_add_loop_test(tcase, several_groups, 0, 3);
    tcase_add_loop_test(tcase, a_module_used_twice, 0, 2);
    tcase_add_test(tcase, collectives_of_one_rank);
    tcase_add_loop_test(tcase, offloaded, 0, 2);
    tcase_add_test(tcase, unshard_ahead_of_the_forward);
    tcase_add_test(tcase, prefetch_lists_change_no_bit);
    tcase_add_test(tcase, root_then_a_child_alone);
    tcase_add_loop_test(tcase, checkpoints_and_groupings, 0, 10);
    tcase_add_loop_test(tcase, two_forwards_through_checkpoints, 0, 2);
    return mck_run(argc, argv, suite);
}
