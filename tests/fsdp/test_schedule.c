/* What settings, replicas, lists of modules and checkpoints do to the order of
 * events equals what PyTorch 2.13 did (data/golden/fsdp_events.json). */
/* Ranks: 2 4 */
#include <string.h>

#include "fsdp.h"
#include "golden_events.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

typedef struct scenario {
    const char *name;
    int world_size, replicas;
    net_config_t net;
    int reshard;
    void (*shard)(fsdp_module_t *net, const fsdp_options_t *options);
    void (*set)(fsdp_module_t *net); /* NULL: nothing                        */
    void (*step)(const char *name, fsdp_module_t *net);
} scenario_t;

/* ---- how it is sharded --------------------------------------------------- */

static void
give(fsdp_module_t *module, const fsdp_options_t *options)
{
    ck_assert_msg(fully_shard(module, options) == FSDP_OK, "%s",
                  fsdp_error_message());
}

static void
each_layer(fsdp_module_t *net, const fsdp_options_t *options)
{
    for (int i = 0; i < net_num_layers(net); i++)
        give(net_layer(net, i), options);
    give(net, options);
}

static void
checkpoint_layers(fsdp_module_t *net)
{
    for (int i = 0; i < net_num_layers(net); i++)
        ck_assert(fsdp_checkpoint_wrapper(net_layer(net, i)) == FSDP_OK);
}

static void
checkpoint_first(fsdp_module_t *net, const fsdp_options_t *options)
{
    checkpoint_layers(net);
    each_layer(net, options);
}

static void
checkpoint_last(fsdp_module_t *net, const fsdp_options_t *options)
{
    each_layer(net, options);
    checkpoint_layers(net);
}

static void
blocks(fsdp_module_t *net, const fsdp_options_t *options)
{
    for (int i = 0; i < net_num_layers(net); i++) {
        give(net_layer(net, i)->child[1], options);
        give(net_layer(net, i)->child[2], options);
    }
    each_layer(net, options);
}

static void
checkpoint_blocks(fsdp_module_t *net, const fsdp_options_t *options)
{
    checkpoint_layers(net);
    blocks(net, options);
}

static void
first_two_as_list(fsdp_module_t *net, const fsdp_options_t *options)
{
    fsdp_module_t *list[] = {net_layer(net, 0), net_layer(net, 1)};
    ck_assert(fully_shard_list(list, 2, options) == FSDP_OK);
    give(net_layer(net, 2), options);
    give(net, options);
}

/* ---- what is set --------------------------------------------------------- */

static void
prefetch(fsdp_module_t *module, bool backward, fsdp_module_t *const *list,
         int count)
{
    fsdp_status_t status =
        backward
            ? fsdp_module_set_modules_to_backward_prefetch(module, list, count)
            : fsdp_module_set_modules_to_forward_prefetch(module, list, count);
    ck_assert(status == FSDP_OK);
}

/* Each layer lists the `count` layers that are needed after it. */
static void
prefetch_next(fsdp_module_t *net, int count, bool backward)
{
    fsdp_module_t *order[3];
    for (int i = 0; i < 3; i++)
        order[i] = net_layer(net, backward ? 2 - i : i);
    for (int i = 0; i < 3; i++)
        prefetch(order[i], backward, order + i + 1,
                 count < 2 - i ? count : 2 - i);
}

static void
forward_1(fsdp_module_t *net)
{
    prefetch_next(net, 1, false);
}

static void
forward_2(fsdp_module_t *net)
{
    prefetch_next(net, 2, false);
}

static void
backward_1(fsdp_module_t *net)
{
    prefetch_next(net, 1, true);
}

static void
backward_2(fsdp_module_t *net)
{
    prefetch_next(net, 2, true);
}

static void
wrong(fsdp_module_t *net)
{
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            prefetch(net_layer(net, i), false, &net->child[i - 1], 1);
        if (i < 2)
            prefetch(net_layer(net, i), true, &net->child[i + 1], 1);
    }
}

static void
from_root(fsdp_module_t *net)
{
    fsdp_module_t *back[] = {net_layer(net, 2), net_layer(net, 1)};
    prefetch(net, false, net->child, 2);
    prefetch(net, true, back, 2);
}

static void
keep_first_away(fsdp_module_t *net)
{
    ck_assert(fsdp_module_set_unshard_in_backward(net_layer(net, 0), false) ==
              FSDP_OK);
}

/* ---- a step -------------------------------------------------------------- */

static void
run(const char *name, fsdp_module_t *net, const char *forward,
    const char *backward)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss =
        net_loss(net, tape, net_batch(net, tape, NET_BATCH, 0));
    golden_expect(name, forward);
    fsdp_backward(tape, loss);
    golden_expect(name, backward);
    fsdp_tape_destroy(&tape);
}

static void
plain(const char *name, fsdp_module_t *net)
{
    run(name, net, "forward", "backward");
}

static void
no_sync(const char *name, fsdp_module_t *net)
{
    fsdp_module_set_requires_gradient_sync(net, false, true);
    run(name, net, "forward 0", "backward 0");
    fsdp_module_set_requires_gradient_sync(net, true, true);
    run(name, net, "forward 1", "backward 1");
}

static void
no_sync_keep(const char *name, fsdp_module_t *net)
{
    fsdp_module_set_requires_gradient_sync(net, false, true);
    fsdp_module_set_reshard_after_backward(net, false, true);
    run(name, net, "forward 0", "backward 0");
    fsdp_module_set_requires_gradient_sync(net, true, true);
    fsdp_module_set_reshard_after_backward(net, true, true);
    run(name, net, "forward 1", "backward 1");
}

static void
deferred(const char *name, fsdp_module_t *net)
{
    fsdp_module_set_requires_all_reduce(net, false, true);
    run(name, net, "forward 0", "backward 0");
    fsdp_module_set_requires_all_reduce(net, true, true);
    run(name, net, "forward 1", "backward 1");
}

static void
not_last(const char *name, fsdp_module_t *net)
{
    fsdp_module_set_is_last_backward(net, false);
    run(name, net, "forward 0", "backward 0");
    fsdp_module_set_is_last_backward(net, true);
    run(name, net, "forward 1", "backward 1");
}

static void
unshard_by_hand(const char *name, fsdp_module_t *net)
{
    fsdp_unshard_handle_t *handle[3];
    for (int i = 0; i < 3; i++)
        ck_assert(fsdp_module_unshard(net_layer(net, i), true, &handle[i]) ==
                  FSDP_OK);
    golden_expect(name, "unshard");
    for (int i = 0; i < 3; i++)
        fsdp_unshard_handle_wait(&handle[i]);
    golden_expect(name, "wait");
    plain(name, net);
}

/* ---- all of them --------------------------------------------------------- */

#define NET                                                                    \
    {                                                                          \
        .stem = true, .head = true, .uses = 3, .order = {0, 1, 2},             \
        .dropped = -1                                                          \
    }
#define HEAD                                                                   \
    {                                                                          \
        .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1             \
    }
#define SOME                                                                   \
    {                                                                          \
        .stem = true, .head = true, .uses = 2, .order = {0, 2}, .dropped = -1  \
    }
#define BLOCKS                                                                 \
    {                                                                          \
        .stem = true, .head = true, .blocks = true, .uses = 2,                 \
        .order = {0, 1}, .dropped = -1                                         \
    }
#define BOTH(name, net, shard, set, step)                                      \
    {name "_auto", 2, 0, net, FSDP_RESHARD_AUTO, shard, set, step},            \
    {                                                                          \
        name "_false", 2, 0, net, FSDP_RESHARD_FALSE, shard, set, step         \
    }

/* clang-format off */
static const scenario_t scenarios[] = {
    {"accumulate_no_sync", 2, 0, NET, FSDP_RESHARD_AUTO, each_layer, NULL,
     no_sync},
    {"accumulate_no_sync_keep", 2, 0, NET, FSDP_RESHARD_AUTO, each_layer, NULL,
     no_sync_keep},
    BOTH("checkpoint_inside", NET, checkpoint_first, NULL, plain),
    BOTH("checkpoint_around", NET, checkpoint_last, NULL, plain),
    BOTH("blocks", BLOCKS, blocks, NULL, plain),
    BOTH("checkpoint_blocks", BLOCKS, checkpoint_blocks, NULL, plain),
    BOTH("forward_prefetch_1", NET, each_layer, forward_1, plain),
    BOTH("forward_prefetch_2", NET, each_layer, forward_2, plain),
    BOTH("backward_prefetch_1", NET, each_layer, backward_1, plain),
    BOTH("backward_prefetch_2", NET, each_layer, backward_2, plain),
    BOTH("prefetch_wrong", NET, each_layer, wrong, plain),
    BOTH("prefetch_from_root", NET, each_layer, from_root, plain),
    BOTH("list_some_run", SOME, first_two_as_list, NULL, plain),
    BOTH("unshard_by_hand", NET, each_layer, NULL, unshard_by_hand),
    BOTH("not_last_backward", NET, each_layer, NULL, not_last),
    {"no_unshard_in_backward", 2, 0, HEAD, FSDP_RESHARD_AUTO, each_layer,
     keep_first_away, plain},
    {"backward_prefetch_checkpoint", 2, 0, NET, FSDP_RESHARD_AUTO,
     checkpoint_first, backward_1, plain},
    {"stem_head_2", 2, 0, NET, 2, each_layer, NULL, plain},
    {"groups_of_two", 4, 0, NET, 2, each_layer, NULL, plain},
    {"hsdp_auto", 4, 2, NET, FSDP_RESHARD_AUTO, each_layer, NULL, plain},
    {"hsdp_false", 4, 2, NET, FSDP_RESHARD_FALSE, each_layer, NULL, plain},
    {"hsdp_accumulate_no_sync", 4, 2, NET, FSDP_RESHARD_AUTO, each_layer, NULL,
     no_sync},
    {"hsdp_accumulate_deferred", 4, 2, NET, FSDP_RESHARD_AUTO, each_layer, NULL,
     deferred},
};
/* clang-format on */
enum { NUM_SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* The second step does what the first one did, so nothing is left behind. */
START_TEST(settings_as_pytorch)
{
    const scenario_t *s = &scenarios[_i];
    if (s->world_size != twin_size())
        return;
    fsdp_mesh_t *mesh = twin_mesh(s->replicas);
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = s->reshard;
    fsdp_module_t *net = net_create(&s->net);
    s->shard(net, &options);
    if (s->set != NULL)
        s->set(net);
    for (int step = 0; step < 2; step++) {
        golden_watch(true);
        s->step(s->name, net);
        golden_watch(false);
    }
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("order");
    suite_add_tcase(suite, tcase);
    tcase_add_unchecked_fixture(tcase, golden_read, golden_free);
    tcase_add_loop_test(tcase, settings_as_pytorch, 0, NUM_SCENARIOS);
    return mck_run(argc, argv, suite);
}
