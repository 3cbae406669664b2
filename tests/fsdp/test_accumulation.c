/* Gradients of several micro-batches: how often collectives run, and every bit,
 * over when to synchronise, what to reshard, and meshes.  PyTorch:
 * test_fully_shard_training.py, gradient_accumulation and its neighbours. */
#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};
static const net_config_t twice = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 0}, .dropped = -1};

enum { GROUPS = 4, MICROS = 3 }; /* three layers and the root */

/* Replicas to try: no second dimension, one row, all rows, two. */
static bool
replicas_of(int i, int *replicas)
{
    int choice[] = {0, 1, twin_size(), 2};
    *replicas = choice[i];
    return i < 3 || (twin_size() % 2 == 0 && twin_size() > 2);
}

typedef struct setting {
    twin_accumulate_t how;
    int reshard; /* after the forward                               */
    bool keep;   /* do not reshard after backwards but the last one */
    int replicas;
    fsdp_reduce_order_t order;
    bool offload;
} setting_t;

/* Every gather of a step, as a formula.  Micro-batch 0 begins with nothing
 * gathered; with `keep` nothing is freed after backwards but the last. */
static int
expected_gathers(const setting_t *s)
{
    int forward = GROUPS, backward = 0;
    if (s->reshard == FSDP_RESHARD_AUTO)
        backward = GROUPS - 1; /* the root stays */
    if (s->reshard == FSDP_RESHARD_TRUE)
        backward = GROUPS;
    int once = forward + backward;
    return s->keep ? once + (MICROS - 1) * backward : MICROS * once;
}

static void
run_all(fsdp_module_t *net, const setting_t *s, const twin_reduction_t *r)
{
    for (int j = 0; j < r->micros; j++) {
        bool last = j == r->micros - 1;
        fsdp_module_set_is_last_backward(net, last);
        if (s->how == TWIN_NO_SYNC)
            fsdp_module_set_requires_gradient_sync(net, last, true);
        if (s->how == TWIN_DEFERRED)
            fsdp_module_set_requires_all_reduce(net, last, true);
        if (s->keep)
            fsdp_module_set_reshard_after_backward(net, last, true);
        net_run(net, twin_micro(j));
    }
}

static void
check(const setting_t *s)
{
    fsdp_mesh_t *mesh = twin_mesh(s->replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(s->replicas, MICROS);
    options.reshard_after_forward = s->reshard;
    options.reduce_order = r.order = s->order;
    options.offload_policy.directory = s->offload ? "/tmp" : NULL;
    r.how = s->how;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(net, &options);
    for (int step = 0; step < 2; step++) {
        twin_run(twin, net_run, twin_size() * MICROS);
        fsdp_mesh_reset_counters(mesh);
        run_all(net, s, &r);
        int scatters = s->how == TWIN_NO_SYNC ? GROUPS : MICROS * GROUPS;
        int reduces = s->how == TWIN_SYNC ? MICROS * GROUPS : GROUPS;
        mck_assert(twin_called(mesh, expected_gathers(s), scatters, reduces));
        mck_assert(twin_grads_agree(twin, net, &r));
        twin_update(twin, &r);
        twin_update_shards(net);
        mck_assert(twin_data_agree(twin, net));
    }
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(counts_and_gradients)
{
    static const int reshard[] = {FSDP_RESHARD_AUTO, FSDP_RESHARD_TRUE,
                                  FSDP_RESHARD_FALSE};
    static const fsdp_reduce_order_t order[] = {FSDP_ORDER_TREE,
                                                FSDP_ORDER_RANK};
    setting_t s = {.how = (twin_accumulate_t)(_i % 3),
                   .reshard = reshard[_i / 3]};
    for (int i = 0; i < 4; i++)
        for (int keep = 0; keep < 2; keep++) {
            s.keep = keep;
            s.order = order[(_i + i + keep) % 2];
            s.offload = i == 0 && keep;
            if (replicas_of(i, &s.replicas) &&
                (s.how != TWIN_DEFERRED || s.replicas > 0))
                check(&s);
        }
}
END_TEST

/* Gathers of all layers started by hand before each forward. */
static void
run_unsharded_by_hand(fsdp_module_t *net, int micro)
{
    fsdp_unshard_handle_t *handle[3] = {NULL};
    for (int i = 0; i < 3 && net->fsdp_state != NULL; i++)
        ck_assert(fsdp_module_unshard(net_layer(net, i), true, &handle[i]) ==
                  FSDP_OK);
    net_run(net, micro);
    for (int i = 0; i < 3; i++)
        fsdp_unshard_handle_wait(&handle[i]);
}

START_TEST(hybrid_unsharded_by_hand)
{
    int replicas;
    if (!replicas_of(_i, &replicas))
        return;
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(replicas, 2);
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(net, &options);
    twin_train(twin, net, run_unsharded_by_hand, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* One reduction, although the post-backward of the later use comes before the
 * gradient is whole. */
START_TEST(a_module_used_twice_is_reduced_once)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 3);
    r.how = TWIN_NO_SYNC;
    fsdp_module_t *net = net_create(&twice);
    twin_t *twin = twin_create(net_create(&twice), NULL);
    net_shard(net, &options);
    fsdp_module_set_reduce_scatter_unused_params(net, _i == 1, true);
    fsdp_mesh_reset_counters(mesh);
    twin_train(twin, net, net_run, &r, 1);
    mck_assert(twin_calls(mesh).reduce_scatter ==
               (twin_size() > 1 ? GROUPS - 1 : 0));
    twin_train(twin, net, net_run, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- interleaved micro-batches ------------------------------------------------ */

typedef struct flight {
    fsdp_tape_t *tape;
    fsdp_tensor_t *loss;
} flight_t;

static void
forward(fsdp_module_t *net, flight_t *flight, int micro)
{
    flight->tape = fsdp_tape_create(NULL);
    flight->loss = net_loss(net, flight->tape,
                            net_batch(net, flight->tape, NET_BATCH, micro));
}

static void
backward(flight_t *flight)
{
    fsdp_backward(flight->tape, flight->loss);
    fsdp_tape_destroy(&flight->tape);
}

/* One forward, one backward (1F1B): two micro-batches are under way at a time;
 * everything is gathered at the start and kept to the last backward. */
static void
run_interleaved(fsdp_module_t *net, int micros)
{
    flight_t flight[4];
    fsdp_module_set_requires_gradient_sync(net, false, true);
    fsdp_module_set_reshard_after_backward(net, false, true);
    fsdp_module_set_is_last_backward(net, false);
    for (int i = 0; i < 3; i++)
        ck_assert(fsdp_module_unshard(net_layer(net, i), false, NULL) ==
                  FSDP_OK);
    ck_assert(fsdp_module_unshard(net, false, NULL) == FSDP_OK);
    forward(net, &flight[0], twin_micro(0));
    for (int j = 0; j < micros; j++) {
        if (j + 1 < micros)
            forward(net, &flight[(j + 1) % 4], twin_micro(j + 1));
        if (j + 1 == micros) {
            fsdp_module_set_requires_gradient_sync(net, true, true);
            fsdp_module_set_reshard_after_backward(net, true, true);
            fsdp_module_set_is_last_backward(net, true);
        }
        backward(&flight[j % 4]);
    }
}

START_TEST(one_forward_one_backward)
{
    int micros = 2 + _i;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = FSDP_RESHARD_FALSE;
    twin_reduction_t r = twin_reduction(0, micros);
    r.how = TWIN_NO_SYNC;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    net_shard(net, &options);
    for (int step = 0; step < 2; step++) {
        twin_run(twin, net_run, twin_size() * micros);
        fsdp_mesh_reset_counters(mesh);
        run_interleaved(net, micros);
        mck_assert(twin_grads_agree(twin, net, &r));
        mck_assert(twin_called(mesh, GROUPS, GROUPS, 0));
        twin_update(twin, &r);
        twin_update_shards(net);
    }
    mck_assert(twin_data_agree(twin, net));
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("accumulation");
    TCase *tcase = tcase_create("micro-batches");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, counts_and_gradients, 0, 9);
    tcase_add_loop_test(tcase, hybrid_unsharded_by_hand, 0, 4);
    tcase_add_loop_test(tcase, a_module_used_twice_is_reduced_once, 0, 2);
    tcase_add_loop_test(tcase, one_forward_one_backward, 0, 3);
    return mck_run(argc, argv, suite);
}
