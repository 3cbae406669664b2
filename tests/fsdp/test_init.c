/* Which parameters a call takes, how they are cut, what is refused, and initial
 * values that are put off.  PyTorch: test_fully_shard_init.py,
 * test_fully_shard_state.py, test_fully_shard_ignore_params.py. */
#include <string.h>

#include "fsdp.h"
#include "fsdp/fsdp_state.h"
#include "golden_events.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static const net_config_t plain = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};
static const net_config_t blocks = {.stem = true,
                                    .head = true,
                                    .blocks = true,
                                    .uses = 2,
                                    .order = {0, 1},
                                    .dropped = -1};

static void
give(fsdp_module_t *module, const fsdp_options_t *options)
{
    ck_assert_msg(fully_shard(module, options) == FSDP_OK, "%s",
                  fsdp_error_message());
}

static void
refused(fsdp_module_t *module, const fsdp_options_t *options, const char *word)
{
    ck_assert(fully_shard(module, options) == FSDP_ERR_USAGE);
    ck_assert_msg(strstr(fsdp_error_message(), word) != NULL, "%s",
                  fsdp_error_message());
}

/* ---- which parameters ---------------------------------------------------------- */

/* Is every parameter below in that unit? */
static bool
all_in(fsdp_module_t *module, const char *unit)
{
    fsdp_parameter_t *p[TWIN_PARAMS];
    size_t n = fsdp_module_parameters(module, p, TWIN_PARAMS);
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all &= fsdp_parameter_unit(p[i]) != NULL &&
               strcmp(fsdp_parameter_unit(p[i]), unit) == 0;
    return all;
}

START_TEST(one_call_takes_all)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    ck_assert(fsdp_parameter_unit(net->child[0]->parameter[0]) == NULL);
    give(net, &options);
    ck_assert(all_in(net, ""));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Nested calls keep theirs, two levels deep. */
START_TEST(nested_calls)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&blocks);
    fsdp_module_t *block = net_layer(net, 0);
    give(block->child[1], &options);
    give(block, &options);
    give(net, &options);
    ck_assert(all_in(block->child[1], "layers.0.up"));
    ck_assert(all_in(block->child[0], "layers.0"));
    ck_assert(all_in(block->child[2], "layers.0"));
    ck_assert(all_in(net_layer(net, 1), ""));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(lists_are_one_group)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&blocks);
    ck_assert(fully_shard_list(net->child, 2, &options) == FSDP_OK);
    give(net, &options);
    ck_assert(all_in(net_layer(net, 0), "layers.0, layers.1"));
    ck_assert(all_in(net_layer(net, 1), "layers.0, layers.1"));
    ck_assert(all_in(net->child[2], ""));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

static fsdp_values_t
pass(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

/* The order of the bucket: children before parents, those of a module in the
 * order of their making, a shared one where it is met first. */
START_TEST(bucket_order_and_shared_once)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *root = fsdp_module_create("", "Root", pass, NULL, 0);
    fsdp_module_t *a = fsdp_module_add_child(
        root, fsdp_linear_create("a", 2, 3, true, FSDP_FP32, 1));
    fsdp_module_t *b = fsdp_module_add_child(
        root, fsdp_module_create("b", "Tied", pass, NULL, 0));
    fsdp_parameter_t *own = fsdp_module_add_parameter(
        root, fsdp_parameter_create("own", FSDP_FP32, 1, (size_t[]){4},
                                    FSDP_INIT_ONES, 0, 1));
    fsdp_module_tie_parameter(b, a->parameter[0]);
    fsdp_module_tie_parameter(b, own);
    give(root, &options);
    const fsdp_param_group_t *group = root->fsdp_state->groups[0];
    fsdp_parameter_t *want[] = {a->parameter[0], a->parameter[1], own};
    ck_assert(root->fsdp_state->num_groups == 1 && group->num_params == 3);
    for (int p = 0; p < 3; p++)
        ck_assert(group->fsdp_params[p]->parameter == want[p]);
    ck_assert(a->parameter[0]->managed != NULL &&
              b->parameter[0] == a->parameter[0]);
    fsdp_module_destroy(&root);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* A, B and C, of which A and C are somebody else's: their parameters stay whole
 * where they are, with this rank's own gradient; B's are sharded. */
START_TEST(ignored_parameters)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1),
                     alone = {.shard = 1, .replicas = 1, .micros = 1};
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    fsdp_parameter_t *ignored[] = {
        net_layer(net, 0)->parameter[0], net_layer(net, 0)->parameter[1],
        net_layer(net, 2)->parameter[0], net_layer(net, 2)->parameter[1]};
    const void *data = fsdp_parameter_data(ignored[0]);
    options.ignored_params = ignored;
    options.num_ignored_params = 4;
    give(net, &options);
    twin_run(twin, net_run, twin_size());
    net_run(net, twin_micro(0));
    fsdp_parameter_t *mine[TWIN_PARAMS];
    fsdp_module_parameters(net, mine, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++) {
        bool left = mine[p]->managed == NULL;
        ck_assert(left == (strncmp(mine[p]->name, "layers.0", 8) == 0 ||
                           strncmp(mine[p]->name, "layers.2", 8) == 0));
        if (!left)
            mck_assert(twin_grad_agrees(twin, p, mine[p], &r));
    }
    ck_assert(ignored[0]->data == data);
    twin_run(twin, net_run, twin_size());
    for (int p = 0; p < twin->count; p++) {
        double *other = twin->grad[p][0];
        twin->grad[p][0] = twin->grad[p][twin_rank()];
        if (mine[p]->managed == NULL)
            mck_assert(twin_grad_agrees(twin, p, mine[p], &alone));
        twin->grad[p][0] = other;
    }
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- state ------------------------------------------------------------------------ */

/* The root is the module whose forward runs first; states are listed parents
 * first; each has its modules' names. */
START_TEST(root_and_names)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    ck_assert(net->fsdp_state == NULL);
    net_shard(net, &options);
    const fsdp_state_t *root = net->fsdp_state;
    ck_assert(root != NULL && root->comm_ctx == NULL); /* nothing has run */
    net_run(net, twin_micro(0));
    ck_assert(root->comm_ctx->root == root && root->num_states == 4);
    for (int i = 0; i < 3; i++) {
        const fsdp_state_t *state = net_layer(net, i)->fsdp_state;
        ck_assert(root->all_states[i + 1] == state);
        ck_assert(state->comm_ctx == root->comm_ctx);
        ck_assert(state->all_states == NULL); /* no root */
        ck_assert_str_eq(state->groups[0]->module_fqn, net->child[i]->name);
        ck_assert(state->num_to_run == 0);
        for (int p = 0; p < state->groups[0]->num_params; p++)
            ck_assert(strncmp(state->groups[0]->fsdp_params[p]->parameter->name,
                              net->child[i]->name, 8) == 0);
    }
    ck_assert_str_eq(root->groups[0]->module_fqn, "");
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(what_is_not_sharded_is_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *net = net_create(&plain);
    fsdp_module_t *layer = net_layer(net, 0);
    fsdp_unshard_handle_t *handle = NULL;
    fsdp_status_t all[] = {
        fsdp_module_unshard(net, true, &handle),
        fsdp_module_reshard(net),
        fsdp_module_set_requires_gradient_sync(net, false, true),
        fsdp_module_set_requires_all_reduce(net, false, true),
        fsdp_module_set_is_last_backward(net, false),
        fsdp_module_set_reshard_after_forward(net, true, true),
        fsdp_module_set_reshard_after_backward(net, true, true),
        fsdp_module_set_modules_to_forward_prefetch(net, &layer, 1),
        fsdp_module_set_modules_to_backward_prefetch(net, &layer, 1),
        fsdp_module_set_unshard_in_backward(net, false),
        fsdp_module_set_gradient_divide_factor(net, 2),
        fsdp_module_set_force_sum_reduction_for_comms(net, true),
        fsdp_module_set_reduce_scatter_unused_params(net, true, true),
        fsdp_module_set_custom_comm(net, NULL),
        fsdp_module_set_all_reduce_hook(net, NULL, NULL),
        fsdp_module_reset_iter_state(net),
        fsdp_module_materialize(net, 1)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_msg(all[i] == FSDP_ERR_USAGE, "call %zu", i);
    give(net, &options);
    ck_assert(fsdp_module_set_modules_to_forward_prefetch(net, &layer, 1) ==
              FSDP_ERR_USAGE);
    refused(net, &options, "already");
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* What is written to the shards before the first forward is what it gathers. */
START_TEST(values_set_before_the_first_forward)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), NULL);
    fsdp_parameter_t *mine[TWIN_PARAMS];
    net_shard(net, &options);
    fsdp_module_parameters(net, mine, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++) {
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        for (size_t k = 0; k < local.numel; k++)
            ((float *)local.data)[k] *= -2;
        for (size_t i = 0; i < fsdp_parameter_numel(mine[p]); i++)
            twin->value[p][i] *= -2;
    }
    twin_train(twin, net, net_run, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- meshes --------------------------------------------------------------------- */

START_TEST(meshes_that_are_refused)
{
    fsdp_module_t *net = net_create(&plain);
    int three[] = {1, 1, twin_size()};
    fsdp_mesh_t *mesh =
        fsdp_mesh_create(3, three, (const char *const[]){"a", "b", "c"});
    fsdp_options_t options = twin_options(mesh);
    refused(net, &options, "dimensions");
    fsdp_mesh_destroy(&mesh);
    fsdp_module_destroy(&net);
    const char *const twice[] = {"a", "a"};
    const char *const missing[] = {"a", NULL};
    ck_assert(fsdp_mesh_create(2, three + 1, NULL) == NULL);
    ck_assert(strstr(fsdp_error_message(), "name") != NULL);
    ck_assert(fsdp_mesh_create(2, three + 1, missing) == NULL);
    ck_assert(fsdp_mesh_create(2, three + 1, twice) == NULL);
    ck_assert(fsdp_mesh_create_2d(2, twin_size()) == NULL);
    ck_assert(strstr(fsdp_error_message(), "ranks") != NULL);
}
END_TEST

/* Who reduces with whom: neighbours the shards, ranks S apart the replicas. */
START_TEST(ranks_of_a_mesh)
{
    for (int replicas = 0; replicas <= twin_size(); replicas++) {
        if (replicas > 0 && twin_size() % replicas != 0)
            continue;
        int s = replicas > 0 ? twin_size() / replicas : twin_size();
        fsdp_mesh_t *mesh = twin_mesh(replicas);
        fsdp_options_t options = twin_options(mesh);
        fsdp_module_t *net = net_create(&plain);
        give(net, &options);
        const fsdp_param_group_t *group = net->fsdp_state->groups[0];
        int32_t low = twin_rank(), high = -low, want = twin_rank() / s * s;
        fsdp_all_reduce(group->comm, "t", FSDP_INT32, FSDP_MIN, FSDP_ORDER_TREE,
                        &low, 1);
        mck_assert(fsdp_comm_size(group->comm) == s && low == want);
        mck_assert(fsdp_comm_rank(group->comm) == twin_rank() % s);
        ck_assert((group->replicate_comm == NULL) == (replicas == 0));
        if (replicas > 0) {
            fsdp_all_reduce(group->replicate_comm, "t", FSDP_INT32, FSDP_MIN,
                            FSDP_ORDER_TREE, &high, 1);
            mck_assert(fsdp_comm_size(group->replicate_comm) == replicas);
            mck_assert(-high == twin_rank() % s + (replicas - 1) * s);
        }
        fsdp_module_destroy(&net);
        fsdp_mesh_destroy(&mesh);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("init");
    TCase *tcase = tcase_create("calls");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, one_call_takes_all);
    tcase_add_test(tcase, nested_calls);
    tcase_add_test(tcase, lists_are_one_group);
    tcase_add_test(tcase, bucket_order_and_shared_once);
    tcase_add_test(tcase, ignored_parameters);
    tcase_add_test(tcase, root_and_names);
    tcase_add_test(tcase, what_is_not_sharded_is_refused);
    tcase_add_test(tcase, values_set_before_the_first_forward);
    tcase_add_test(tcase, meshes_that_are_refused);
    tcase_add_test(tcase, ranks_of_a_mesh);
    return mck_run(argc, argv, suite);
}
