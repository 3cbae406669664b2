/* FSDP1: what can be asked of it: initial values, policies, precision of kept gradients, limits; and what is refused. */
/* Ranks: 1 2 3 4 5 */
#include <math.h>
#include <string.h>

#include "fsdp.h"
#include "fsdp/fsdp1_state.h"
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

/* ---- initial values ------------------------------------------------------ */

static size_t asked; /* elements that the hook was asked for */

/* Values that tell the element, and the rank if that is to show. */
static void
number(void *context, const fsdp_parameter_t *parameter, size_t begin,
       size_t count, void *out)
{
    (void)parameter;
    float own =
        context != NULL ? 1000 * (float)fsdp_comm_rank(fsdp_comm_world()) : 0;
    for (size_t i = 0; i < count; i++)
        ((float *)out)[i] = own + (float)(begin + i);
    asked += count;
}

/* Ranks that would begin with values of their own begin with rank 0's. */
START_TEST(initial_values_from_a_hook)
{
    bool sync = _i > 0, hybrid = _i == 2 && world_size() == 4;
    fsdp_mesh_t *mesh =
        hybrid ? fsdp_mesh_create_2d(2, 2) : fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    if (hybrid)
        o.sharding_strategy = FSDP_HYBRID_SHARD;
    o.param_init_fn = number;
    o.param_init_context = sync ? &asked : NULL;
    o.sync_module_states = sync;
    asked = 0;
    fsdp_module_t *net = wrapped(&o);
    fsdp_parameter_t *all[MAX_PARAMS];
    size_t count = fsdp_module_parameters(net, all, MAX_PARAMS), kept = 0;
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(all[p]);
        size_t begin = fsdp_layout_begin(&local.layout);
        bool good = true;
        for (size_t i = 0; i < local.numel; i++)
            good &= ((float *)local.data)[i] == (float)(begin + i);
        mck_assert(good);
        kept += local.numel;
    }
    mck_assert(sync || asked == kept); /* only for what it keeps */
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- gradients ----------------------------------------------------------- */

static float
to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Reduced in float32 and kept in bfloat16: rounded, at half the bytes; the next
 * backward adds to what was rounded, and rounds again. */
START_TEST(keep_low_precision_grads)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.mixed_precision.param_dtype = FSDP_BF16;
    o.mixed_precision.reduce_dtype = world_size() == 1 ? FSDP_BF16 : FSDP_FP32;
    fsdp_module_t *nets[2];
    for (int k = 0; k < 2; k++) {
        o.mixed_precision.keep_low_precision_grads = k == 1;
        nets[k] = wrapped(&o);
    }
    size_t empty = fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD), used[2];
    for (int k = 0; k < 2; k++) {
        run(nets[k], true);
        used[k] = fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD) - empty;
        empty += used[k];
    }
    mck_assert(used[0] == 2 * used[1] && used[1] > 0);
    run(nets[1], true);
    fsdp_parameter_t *wide[MAX_PARAMS], *low[MAX_PARAMS];
    size_t count = fsdp_module_parameters(nets[0], wide, MAX_PARAMS);
    fsdp_module_parameters(nets[1], low, MAX_PARAMS);
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t a = fsdp_parameter_local(wide[p]);
        fsdp_local_t b = fsdp_parameter_local(low[p]);
        bool good = true;
        for (size_t i = 0; i < a.numel; i++) {
            float once = ((float *)a.grad)[i];
            good &= ((float *)b.grad)[i] == to_bf16(to_bf16(once) + once);
        }
        mck_assert(good);
    }
    fsdp_module_destroy(&nets[0]);
    fsdp_module_destroy(&nets[1]);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Frozen parameters have no gradient beside trainable ones of their unit; an
 * ignored one has a whole one, which nobody reduces. */
START_TEST(frozen_and_ignored)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *net = net_create(&config);
    fsdp_parameter_t *bias = fsdp_module_find_parameter(net, "layers.1.bias");
    fsdp_parameter_t *stem = fsdp_module_find_parameter(net, "stem.weight");
    fsdp_parameter_t *head = fsdp_module_find_parameter(net, "head.weight");
    bias->requires_grad = stem->requires_grad = false;
    o.use_orig_params = true;
    o.ignored_states = &head;
    o.num_ignored_states = 1;
    o.auto_wrap_policy =
        fsdp_module_wrap_policy((const char *const[]){"Linear"}, 1);
    ck_assert(fsdp_fully_sharded_data_parallel(net, &o) == FSDP_OK);
    run(net, true);
    mck_assert(fsdp_parameter_local(bias).grad == NULL);
    mck_assert(fsdp_parameter_local(stem).grad == NULL);
    mck_assert(head->managed == NULL && head->grad != NULL);
    mck_assert(
        fsdp_parameter_local(fsdp_module_find_parameter(net, "layers.1.weight"))
            .grad != NULL);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* A unit that uses its frozen weight in its first run and its trainable one in
 * the second: the frozen one is needed in the backward when all gradients of the
 * unit have come. */
static fsdp_values_t
first_then_second(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    int *run_number = self->config;
    fsdp_parameter_t *weight = self->parameter[*run_number];
    *run_number = 1 - *run_number;
    return fsdp_values1(fsdp_linear(tape, inputs.tensor[0], weight, NULL));
}

static fsdp_values_t
stem_and_twice(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int i = 0; i < 3; i++)
        inputs = fsdp_module_call(self->child[i > 0], tape, inputs);
    return inputs;
}

static fsdp_module_t *
two_faced_net(void)
{
    fsdp_module_t *net = fsdp_module_create("", "Net", stem_and_twice, NULL, 0);
    fsdp_module_t *two = fsdp_module_create("two", "Two", first_then_second,
                                            &(int){0}, sizeof(int));
    fsdp_module_add_child(net,
                          fsdp_linear_create("stem", 3, 3, true, FSDP_FP32, 1));
    fsdp_module_add_child(net, two);
    for (int i = 0; i < 2; i++)
        fsdp_module_add_parameter(
            two, fsdp_parameter_create(i == 0 ? "two.frozen" : "two.weight",
                                       FSDP_FP32, 2, (size_t[]){3, 3},
                                       FSDP_INIT_ONES, 1, 1));
    for (int i = 0; i < 2; i++)
        net->child[0]->parameter[i]->init = FSDP_INIT_ONES;
    two->parameter[0]->requires_grad = false;
    return net;
}

/* The same batch on all ranks: sums of up to five equal terms that are small
 * whole numbers, so their mean is exact. */
START_TEST(frozen_weight_is_there_until_the_end)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *nets[2] = {two_faced_net(), two_faced_net()};
    o.use_orig_params = true;
    ck_assert(fsdp_fully_sharded_data_parallel(nets[1]->child[1], &o) ==
              FSDP_OK);
    ck_assert(fsdp_fully_sharded_data_parallel(nets[1], &o) == FSDP_OK);
    for (int k = 0; k < 2; k++) {
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *x =
            fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){1, 3});
        fsdp_tensor_t *y, *zero;
        for (size_t i = 0; i < 3; i++)
            fsdp_tensor_set(x, i, 1.0 + (double)i);
        y = fsdp_module_call1(nets[k], tape, x);
        zero = fsdp_tape_new_tensor(tape, FSDP_FP32, 2, y->shape);
        for (size_t i = 0; i < 3; i++) /* y - target is 1.5: slope 1 */
            fsdp_tensor_set(zero, i, fsdp_tensor_get(y, i) - 1.5);
        fsdp_backward(tape, fsdp_mse_loss(tape, y, zero));
        fsdp_tape_destroy(&tape);
    }
    const char *const names[] = {"stem.weight", "stem.bias"};
    for (int p = 0; p < 2; p++) {
        fsdp_parameter_t *want = fsdp_module_find_parameter(nets[0], names[p]);
        fsdp_local_t local =
            fsdp_parameter_local(fsdp_module_find_parameter(nets[1], names[p]));
        mck_assert(
            local.grad != NULL &&
            memcmp(local.grad,
                   (float *)want->grad->data + fsdp_layout_begin(&local.layout),
                   local.numel * sizeof(float)) == 0);
    }
    mck_assert(fsdp_parameter_local(nets[1]->child[1]->parameter[1]).grad !=
               NULL);
    fsdp_module_destroy(&nets[0]);
    fsdp_module_destroy(&nets[1]);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Two elements on up to five ranks: most chunks are padding alone. */
START_TEST(ranks_with_nothing)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.use_orig_params = _i == 1;
    fsdp_module_t *line = fsdp_linear_create("line", 1, 1, true, FSDP_FP32, 1);
    ck_assert(fsdp_fully_sharded_data_parallel(line, &o) == FSDP_OK);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){1, 1});
    fsdp_tensor_set(x, 0, 4);
    fsdp_tensor_t *y = fsdp_module_call1(line, tape, x);
    fsdp_tensor_t *target = fsdp_tape_new_tensor(tape, FSDP_FP32, 2, y->shape);
    fsdp_tensor_set(target, 0, fsdp_tensor_get(y, 0));
    fsdp_backward(tape, fsdp_mse_loss(tape, y, target)); /* slope 0 */
    fsdp_tape_destroy(&tape);
    double numel = 0;
    for (int p = 0; p < 2; p++) {
        fsdp_local_t local = fsdp_parameter_local(line->parameter[p]);
        mck_assert(local.grad != NULL && local.numel <= 1);
        mck_assert(local.numel == 0 || ((float *)local.grad)[0] == 0);
        numel += (double)local.numel;
        fsdp_parameter_gather(line->parameter[p], NULL, fsdp_comm_world(), 0,
                              &(float){0});
    }
    fsdp_all_reduce(fsdp_comm_world(), "test", FSDP_FP64, FSDP_SUM,
                    FSDP_ORDER_TREE, &numel, 1);
    mck_assert(numel == 2);
    fsdp_module_destroy(&line);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- policies ------------------------------------------------------------ */

static bool
is_layer_2(void *context, fsdp_module_t *module)
{
    (void)context;
    return strcmp(module->name, "layers.2") == 0;
}

static bool
special(void *context, fsdp_module_t *module, fsdp1_options_t *options)
{
    (void)context;
    if (strcmp(module->name, "stem") == 0)
        options->sharding_strategy = FSDP_NO_SHARD;
    return strcmp(module->kind, "Linear") == 0 &&
           strcmp(module->name, "head") != 0;
}

/* layers of 42, 48 and 21 elements, stem 25, head 8 */
static const struct {
    const char *units; /* layers.0 layers.1 layers.2 stem head */
    int kind;
} policies[] = {
    {"00000", 0}, {"11000", 1}, {"11111", 2}, {"00100", 3},
    {"11111", 4}, {"11110", 5}, {"00000", 6},
};

static fsdp_wrap_policy_t
policy(int kind)
{
    static const char *const linear[] = {"Linear", "GPT2Block"};
    static const char *const block[] = {"GPT2Block"};
    switch (kind) {
    case 1:
        return fsdp_size_based_auto_wrap_policy(42);
    case 2:
        return fsdp_module_wrap_policy(linear, 2);
    case 3:
        return fsdp_lambda_auto_wrap_policy(is_layer_2, NULL);
    case 4:
        return fsdp_always_wrap_policy();
    case 5:
        return fsdp_custom_policy(special, NULL);
    case 6:
        return fsdp_transformer_auto_wrap_policy(block, 1);
    default:
        return fsdp_size_based_auto_wrap_policy(0);
    }
}

START_TEST(policies_wrap_what_they_say)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *net = net_create(&config);
    o.auto_wrap_policy = policy(policies[_i].kind);
    ck_assert(fsdp_fully_sharded_data_parallel(net, &o) == FSDP_OK);
    ck_assert(fsdp1_is_wrapped(net));
    for (int c = 0; c < net->num_children; c++)
        ck_assert_msg(fsdp1_is_wrapped(net->child[c]) ==
                          (policies[_i].units[c] == '1'),
                      "policy %d, %s", _i, net->child[c]->name);
    if (policies[_i].kind == 5)
        ck_assert(fsdp1_strategy(net->child[3]) == FSDP_NO_SHARD);
    ck_assert(fsdp1_strategy(net) ==
              (world_size() == 1 ? FSDP_NO_SHARD : FSDP_FULL_SHARD));
    run(net, true);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Of a block of 872 elements the MLP's 552 are enough; what is left of the block
 * (attention and norms, 320) is not. */
START_TEST(size_counts_what_is_left)
{
    fsdp_gpt2_config_t c = {.n_layer = 1,
                            .n_head = 2,
                            .n_embd = 8,
                            .vocab_size = 17,
                            .n_positions = 10,
                            .layer_norm_epsilon = 1e-5};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *gpt2 = fsdp_gpt2_create(&c);
    fsdp_module_t *block = fsdp_gpt2_block(gpt2, 0), *mlp = NULL;
    for (int i = 0; i < block->num_children; i++)
        if (strstr(block->child[i]->name, "mlp") != NULL)
            mlp = block->child[i];
    ck_assert(mlp != NULL && fsdp_module_num_elements(mlp) == 552 &&
              fsdp_module_num_elements(block) == 872);
    o.auto_wrap_policy = fsdp_size_based_auto_wrap_policy(500);
    ck_assert(fsdp_fully_sharded_data_parallel(gpt2, &o) == FSDP_OK);
    ck_assert(fsdp1_is_wrapped(mlp) && !fsdp1_is_wrapped(block));
    fsdp_module_destroy(&gpt2);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(enable_wrap_marks)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    fsdp_module_t *net = net_create(&config);
    ck_assert(fsdp_wrap(net_layer(net, 0), NULL) == FSDP_OK);
    ck_assert(!fsdp1_is_wrapped(net_layer(net, 0)));
    ck_assert(fsdp_enable_wrap(&o) == FSDP_OK);
    ck_assert(fsdp_enable_wrap(&o) == FSDP_ERR_USAGE);
    ck_assert(fsdp_wrap(net_layer(net, 0), NULL) == FSDP_OK);
    o.sharding_strategy = FSDP_NO_SHARD;
    ck_assert(fsdp_wrap(net_layer(net, 1), &o) == FSDP_OK);
    fsdp_disable_wrap();
    ck_assert(fsdp_wrap(net_layer(net, 2), NULL) == FSDP_OK);
    ck_assert(fsdp1_is_wrapped(net_layer(net, 0)));
    ck_assert(fsdp1_strategy(net_layer(net, 1)) == FSDP_NO_SHARD);
    ck_assert(!fsdp1_is_wrapped(net_layer(net, 2)));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- all-gathers in flight ----------------------------------------------- */

static const fsdp1_state_t *watched;
static int most_in_flight;

static void
count_in_flight(void *context, const fsdp_event_t *event)
{
    (void)context;
    if (event->kind == FSDP_EVENT_WAIT_FOR_UNSHARD &&
        watched->shared->in_flight.count > most_in_flight)
        most_in_flight = watched->shared->in_flight.count;
}

/* The second forward runs layers 0 and 2 only, so that 1 and 3, which followed
 * them in the first, are gathered and not waited for; the backward's prefetch
 * would be the third. */
START_TEST(all_gathers_in_flight)
{
    net_config_t four = config;
    four.uses = 4;
    four.order[3] = 3;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp1_options_t o = options_on(mesh);
    o.limit_all_gathers = _i == 0;
    o.forward_prefetch = true;
    fsdp_module_t *net = net_create(&four);
    for (int i = 0; i < 4; i++)
        ck_assert(fsdp_fully_sharded_data_parallel(net_layer(net, i), &o) ==
                  FSDP_OK);
    ck_assert(fsdp_fully_sharded_data_parallel(net, &o) == FSDP_OK);
    watched = fsdp1_state_of(net);
    most_in_flight = 0;
    fsdp_set_event_hook(count_in_flight, NULL);
    run(net, true);
    mck_assert(most_in_flight == (world_size() > 1));
    ((net_config_t *)net->config)->uses = 2;
    ((net_config_t *)net->config)->order[1] = 2;
    run(net, true);
    fsdp_set_event_hook(NULL, NULL);
    mck_assert(most_in_flight == (world_size() == 1     ? 0
                                  : o.limit_all_gathers ? 2
                                                        : 3));
    mck_assert(watched->shared->in_flight.count == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_api");
    TCase *tcase = tcase_create("calls");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, initial_values_from_a_hook, 0, 3);
    tcase_add_test(tcase, keep_low_precision_grads);
    tcase_add_test(tcase, frozen_and_ignored);
    tcase_add_loop_test(tcase, policies_wrap_what_they_say, 0, 7);
    tcase_add_test(tcase, frozen_weight_is_there_until_the_end);
    tcase_add_loop_test(tcase, ranks_with_nothing, 0, 2);
    tcase_add_test(tcase, size_counts_what_is_left);
    tcase_add_test(tcase, enable_wrap_marks);
    tcase_add_loop_test(tcase, all_gathers_in_flight, 0, 2);
    return mck_run(argc, argv, suite);
}
