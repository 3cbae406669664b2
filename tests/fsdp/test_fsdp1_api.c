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
    tcase_add_test(tcase, enable_wrap_marks);
    tcase_add_loop_test(tcase, all_gathers_in_flight, 0, 2);
    return mck_run(argc, argv, suite);
}
