/* In which types is computed, reduced, added up and handed on, also when only
 * some modules have a policy, and when a checkpoint computes again.  PyTorch:
 * test_fully_shard_mixed_precision.py. */
#include <string.h>

#include "fsdp.h"
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

static fsdp_options_t
policy(fsdp_mesh_t *mesh, fsdp_dtype_t param, fsdp_dtype_t reduce)
{
    fsdp_options_t options = twin_options(mesh);
    options.mp_policy.param_dtype = param;
    options.mp_policy.reduce_dtype = reduce;
    return options;
}

/* Sharded in one type, computed in another; the twin in that one alone. */
static void
check(const net_config_t *config, fsdp_dtype_t stored, fsdp_dtype_t param,
      const fsdp_options_t *options, const twin_reduction_t *r)
{
    net_config_t high = *config, low = *config;
    high.dtype = stored;
    low.dtype = param;
    fsdp_module_t *net = net_create(&high);
    twin_t *twin = twin_create(net_create(&high), net_create(&low));
    net_shard(net, options);
    twin_train(twin, net, net_run, r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
}

/* ---- parameters and reductions --------------------------------------------------- */

static const fsdp_dtype_t half[] = {FSDP_BF16, FSDP_FP16};

/* Bytes of the padded shards of a net, in elements of `size` bytes. */
static size_t
shard_bytes(fsdp_module_t *net, size_t size)
{
    fsdp_parameter_t *p[TWIN_PARAMS];
    size_t n = fsdp_module_parameters(net, p, TWIN_PARAMS), bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += fsdp_parameter_local(p[i]).padded_numel * size;
    return bytes;
}

/* The policy's types travel: W - 1 padded shards of each. */
static void
check_bytes(fsdp_dtype_t stored, fsdp_dtype_t param, fsdp_dtype_t reduce,
            size_t gathered, size_t reduced)
{
    net_config_t config = plain;
    config.dtype = stored;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = policy(mesh, param, reduce);
    options.reshard_after_forward = FSDP_RESHARD_FALSE;
    fsdp_module_t *net = net_create(&config);
    net_shard(net, &options);
    fsdp_mesh_reset_counters(mesh);
    net_run(net, twin_micro(0));
    size_t others = (size_t)twin_size() - 1;
    mck_assert(fsdp_mesh_counter(mesh, FSDP_ALL_GATHER).bytes_sent ==
               others * shard_bytes(net, gathered));
    mck_assert(fsdp_mesh_counter(mesh, FSDP_REDUCE_SCATTER).bytes_sent ==
               others * shard_bytes(net, reduced));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(compute_dtype)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_options_t options = policy(mesh, half[_i], FSDP_DTYPE_NONE);
    check(&plain, FSDP_FP32, half[_i], &options, &r);
    options.reshard_after_forward = FSDP_RESHARD_FALSE;
    check(&plain, FSDP_FP32, half[_i], &options, &r);
    check_bytes(FSDP_FP32, half[_i], FSDP_DTYPE_NONE, 2, 2);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Reduced in more and in less than is computed in. */
START_TEST(reduce_dtype)
{
    static const fsdp_dtype_t types[][2] = {
        {FSDP_BF16, FSDP_FP32}, {FSDP_FP32, FSDP_BF16}, {FSDP_FP16, FSDP_FP32}};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 2);
    fsdp_options_t options = policy(mesh, types[_i][0], types[_i][1]);
    r.reduce = types[_i][1];
    check(&plain, FSDP_FP32, types[_i][0], &options, &r);
    check_bytes(FSDP_FP32, types[_i][0], types[_i][1],
                fsdp_dtype_size(types[_i][0]), fsdp_dtype_size(types[_i][1]));
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* A reduce_dtype that is the param_dtype needs no cast; parameters that have the
 * param_dtype already do not take the reduce_dtype with them. */
START_TEST(clamps)
{
    static const struct {
        fsdp_dtype_t stored, param, reduce;
        size_t gathered, reduced;
    } all[] = {{FSDP_BF16, FSDP_BF16, FSDP_FP32, 2, 4},
               {FSDP_BF16, FSDP_BF16, FSDP_BF16, 2, 2},
               {FSDP_FP32, FSDP_BF16, FSDP_BF16, 2, 2},
               {FSDP_FP32, FSDP_FP32, FSDP_FP32, 4, 4},
               {FSDP_BF16, FSDP_FP32, FSDP_DTYPE_NONE, 4, 4}};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 1);
    r.reduce = all[_i].reduce;
    fsdp_options_t options = policy(mesh, all[_i].param, all[_i].reduce);
    check(&plain, all[_i].stored, all[_i].param, &options, &r);
    check_bytes(all[_i].stored, all[_i].param, all[_i].reduce, all[_i].gathered,
                all[_i].reduced);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Everything is frozen in the first forward, which must not settle the types. */
START_TEST(reduce_dtype_after_a_frozen_forward)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_options_t options = policy(mesh, FSDP_BF16, r.reduce = FSDP_FP32);
    net_config_t low = plain;
    low.dtype = FSDP_BF16;
    fsdp_module_t *net = net_create(&plain);
    twin_t *twin = twin_create(net_create(&plain), net_create(&low));
    net_shard(net, &options);
    fsdp_module_set_requires_grad(net, false);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_module_call1(net, tape, net_batch(net, tape, 2, 0));
    fsdp_tape_destroy(&tape);
    fsdp_module_set_requires_grad(net, true);
    twin_train(twin, net, net_run, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Without synchronisation gradients are added up in the reduce_dtype, whole. */
START_TEST(accumulates_in_the_reduce_dtype)
{
    static const fsdp_dtype_t types[][2] = {{FSDP_BF16, FSDP_FP32},
                                            {FSDP_FP16, FSDP_FP32},
                                            {FSDP_FP32, FSDP_BF16},
                                            {FSDP_BF16, FSDP_DTYPE_NONE}};
    static const fsdp_reduce_order_t order[] = {FSDP_ORDER_TREE,
                                                FSDP_ORDER_RANK};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 4);
    fsdp_options_t options = policy(mesh, types[_i][0], types[_i][1]);
    r.reduce = types[_i][1];
    r.how = TWIN_NO_SYNC;
    for (int o = 0; o < 2; o++) {
        options.reduce_order = r.order = order[o];
        check(&plain, FSDP_FP32, types[_i][0], &options, &r);
    }
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Layer norms in 16 bits, whose weights and results are rounded as others'. */
START_TEST(norms_in_16_bits)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_options_t options = policy(mesh, half[_i], r.reduce = FSDP_FP32);
    check(&blocks, FSDP_FP32, half[_i], &options, &r);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- who casts what ---------------------------------------------------------------- */

/* What the forwards of the modules below have seen, in order. */
static fsdp_dtype_t seen_in[32], seen_out[32];
static int num_seen;

/* A linear layer of two inputs, the second of which it adds. */
static fsdp_values_t
watched_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *y = fsdp_linear(tape, inputs.tensor[0], self->parameter[0],
                                   self->parameter[1]);
    if (inputs.count > 1)
        y = fsdp_add(tape, y, inputs.tensor[1]);
    ck_assert(num_seen < 32);
    seen_in[num_seen] = inputs.tensor[inputs.count - 1]->dtype;
    seen_out[num_seen++] = y->dtype;
    return fsdp_values1(y);
}

typedef struct pair {
    bool by_hand; /* the twin, which casts as told here */
    fsdp_dtype_t inner, back;
} pair_t;

static fsdp_tensor_t *
cast(const pair_t *pair, fsdp_tape_t *tape, fsdp_tensor_t *x, fsdp_dtype_t to)
{
    return pair->by_hand && to != FSDP_DTYPE_NONE ? fsdp_cast(tape, x, to) : x;
}

/* b(relu(a(x)), x): an input of b comes from outside. */
static fsdp_values_t
pair_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const pair_t *pair = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *y =
        fsdp_relu(tape, fsdp_module_call1(self->child[0], tape, x));
    fsdp_values_t in = fsdp_values2(cast(pair, tape, y, pair->inner),
                                    cast(pair, tape, x, pair->inner));
    y = fsdp_module_call(self->child[1], tape, in).tensor[0];
    return fsdp_values1(cast(pair, tape, y, pair->back));
}

static fsdp_module_t *
pair_create(bool by_hand, fsdp_dtype_t inner, fsdp_dtype_t back)
{
    pair_t pair = {by_hand, inner, back};
    fsdp_module_t *module =
        fsdp_module_create("", "Pair", pair_forward, &pair, sizeof pair);
    fsdp_module_add_child(module,
                          fsdp_linear_create("a", 5, 5, true, FSDP_FP32, 1));
    fsdp_module_t *b = fsdp_module_add_child(
        module,
        fsdp_linear_create("b", 5, 5, true, by_hand ? inner : FSDP_FP32, 1));
    b->forward = watched_forward;
    return module;
}

static void
run_pair(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){3, 5});
    for (size_t i = 0; i < 15; i++)
        fsdp_tensor_set(x, i, (double)((i * 11 + (size_t)micro) % 16) / 7 - 1);
    fsdp_backward(tape, net_loss(module, tape, x));
    fsdp_tape_destroy(&tape);
}

/* A policy on one submodule: its inputs, the external one too, go down, its
 * output goes up again; the others know nothing of it. */
static void
check_pair(fsdp_dtype_t inner, fsdp_dtype_t back, bool checkpoint)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t low = policy(mesh, inner, FSDP_FP32),
                   none = twin_options(mesh);
    low.mp_policy.output_dtype = back;
    twin_reduction_t r = twin_reduction(0, 1);
    r.reduce = FSDP_FP32;
    fsdp_module_t *module = pair_create(false, inner, back);
    twin_t *twin = twin_create(pair_create(false, inner, back),
                               pair_create(true, inner, back));
    if (checkpoint)
        ck_assert(fsdp_checkpoint_wrapper(module) == FSDP_OK);
    ck_assert(fully_shard(module->child[1], &low) == FSDP_OK);
    ck_assert(fully_shard(module, &none) == FSDP_OK);
    num_seen = 0;
    run_pair(module, twin_micro(0));
    ck_assert(num_seen == (checkpoint ? 2 : 1));
    for (int i = 0; i < num_seen; i++) /* recomputed: the same casts */
        ck_assert(seen_in[i] == inner && seen_out[i] == inner);
    num_seen = 0;
    twin_update_shards(module);
    twin_run(twin, run_pair, twin_size());
    twin_update(twin, &r);
    num_seen = 0;
    twin_train(twin, module, run_pair, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(policy_on_one_submodule)
{
    check_pair(FSDP_FP16, FSDP_FP32, false);
    check_pair(FSDP_BF16, FSDP_FP32, false);
}
END_TEST

START_TEST(external_inputs_are_cast)
{
    check_pair(FSDP_BF16, FSDP_DTYPE_NONE, false);
}
END_TEST

START_TEST(recomputed_inputs_are_cast)
{
    check_pair(FSDP_BF16, FSDP_DTYPE_NONE, true);
}
END_TEST

START_TEST(recomputed_outputs_are_cast)
{
    check_pair(FSDP_BF16, FSDP_FP32, true);
    check_pair(FSDP_FP16, FSDP_FP32, true);
}
END_TEST

/* Looks at its input, then casts it itself. */
static fsdp_values_t
looking_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    seen_in[num_seen++] = x->dtype;
    x = fsdp_cast(tape, x, self->parameter[0]->data_dtype);
    return fsdp_values1(
        fsdp_linear(tape, x, self->parameter[0], self->parameter[1]));
}

/* Inputs are cast if that is asked for, which it is by default; integers never
 * are, but what comes out has the output_dtype. */
START_TEST(inputs_left_alone)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = policy(mesh, FSDP_BF16, FSDP_FP32);
    fsdp_module_t *wte = fsdp_embedding_create("", 7, 5, 1, FSDP_FP32, 1);
    options.mp_policy.output_dtype = FSDP_FP64;
    ck_assert(fully_shard(wte, &options) == FSDP_OK);
    options.mp_policy.output_dtype = FSDP_DTYPE_NONE;
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *index =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 1, (size_t[]){2});
    fsdp_tensor_zero(index);
    fsdp_tensor_t *wide = fsdp_module_call1(wte, tape, index);
    ck_assert(wide->dtype == FSDP_FP64);
    for (int on = 0; on < 2; on++) {
        fsdp_module_t *b = fsdp_linear_create("", 5, 5, true, FSDP_FP32, 1);
        b->forward = looking_forward;
        if (!on)
            options.mp_policy.cast_forward_inputs = false;
        ck_assert(fully_shard(b, &options) == FSDP_OK);
        options = policy(mesh, FSDP_BF16, FSDP_FP32);
        num_seen = 0;
        fsdp_tensor_t *y = fsdp_module_call1(b, tape, wide);
        ck_assert(num_seen == 1);
        ck_assert(seen_in[0] == (on ? FSDP_BF16 : FSDP_FP64));
        ck_assert(y->dtype == FSDP_BF16);
        fsdp_module_destroy(&b);
    }
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&wte);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Of a list each module's inputs are cast, and each one's outputs. */
START_TEST(lists_cast_for_each_module)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t low = policy(mesh, FSDP_BF16, FSDP_FP32),
                   none = twin_options(mesh);
    low.mp_policy.output_dtype = FSDP_FP32;
    fsdp_module_t *module = pair_create(false, FSDP_BF16, FSDP_FP32);
    module->child[0]->forward = watched_forward;
    ck_assert(fully_shard_list(module->child, 2, &low) == FSDP_OK);
    ck_assert(fully_shard(module, &none) == FSDP_OK);
    num_seen = 0;
    run_pair(module, twin_micro(0));
    ck_assert(num_seen == 2);
    for (int i = 0; i < 2; i++)
        ck_assert(seen_in[i] == FSDP_BF16 && seen_out[i] == FSDP_BF16);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("mixed precision");
    TCase *tcase = tcase_create("types");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, compute_dtype, 0, 2);
    tcase_add_loop_test(tcase, reduce_dtype, 0, 3);
    tcase_add_loop_test(tcase, clamps, 0, 5);
    tcase_add_test(tcase, reduce_dtype_after_a_frozen_forward);
    tcase_add_loop_test(tcase, accumulates_in_the_reduce_dtype, 0, 4);
    tcase_add_loop_test(tcase, norms_in_16_bits, 0, 2);
    tcase_add_test(tcase, policy_on_one_submodule);
    tcase_add_test(tcase, external_inputs_are_cast);
    tcase_add_test(tcase, recomputed_inputs_are_cast);
    tcase_add_test(tcase, recomputed_outputs_are_cast);
    tcase_add_test(tcase, inputs_left_alone);
    tcase_add_test(tcase, lists_cast_for_each_module);
    return mck_run(argc, argv, suite);
}
