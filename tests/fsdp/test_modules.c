/* Models of unusual shape under fully_shard(): no inputs, parts that run by
 * themselves, tied parameters, forwards that are given up, interleaved
 * micro-batches.  PyTorch: test_fully_shard_training.py. */
#include <setjmp.h>
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

static fsdp_tensor_t *
batch(fsdp_tape_t *tape, size_t rows, size_t columns, int salt)
{
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){rows, columns});
    for (size_t i = 0; i < rows * columns; i++)
        fsdp_tensor_set(x, i,
                        (double)((i * 29 + (size_t)salt * 13) % 32) / 8 - 2);
    return x;
}

static fsdp_tensor_t *
square(fsdp_tape_t *tape, fsdp_tensor_t *y)
{
    fsdp_tensor_t *zero =
        fsdp_tape_new_tensor(tape, y->dtype, y->ndim, y->shape);
    fsdp_tensor_zero(zero);
    return fsdp_mse_loss(tape, y, zero);
}

static void
give(fsdp_module_t *module, const fsdp_options_t *options)
{
    ck_assert_msg(fully_shard(module, options) == FSDP_OK, "%s",
                  fsdp_error_message());
}

static void
give_list(fsdp_module_t *const *list, int n, const fsdp_options_t *options)
{
    ck_assert_msg(fully_shard_list(list, n, options) == FSDP_OK, "%s",
                  fsdp_error_message());
}

/* ---- no inputs --------------------------------------------------------------- */

static fsdp_values_t
own_input(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    ck_assert(inputs.count == 0);
    return fsdp_values1(
        fsdp_module_call1(self->child[0], tape, batch(tape, 3, 4, 1)));
}

static void
run_without_input(fsdp_module_t *module, int micro)
{
    (void)micro;
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_values_t none = {0};
    fsdp_values_t out = fsdp_module_call(module, tape, none);
    fsdp_backward(tape, square(tape, out.tensor[0]));
    fsdp_tape_destroy(&tape);
}

static fsdp_module_t *
own_input_create(void)
{
    fsdp_module_t *module = fsdp_module_create("", "Own", own_input, NULL, 0);
    fsdp_module_add_child(
        module, fsdp_linear_create("inner", 4, 3, true, FSDP_FP32, 1));
    return module;
}

START_TEST(a_root_without_inputs)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *module = own_input_create();
    twin_t *twin = twin_create(own_input_create(), NULL);
    if (_i == 0)
        give(module, &options); /* the root has the parameters */
    else
        twin_shard(module, &options);
    twin_train(twin, module, run_without_input, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- a list of which a part runs by itself ------------------------------------ */

static fsdp_values_t
tail_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[0], tape, inputs.tensor[0]);
    return fsdp_values1(fsdp_module_call1(self->child[1], tape, x));
}

/* body, norm; and a head that the forward does not run. */
static fsdp_module_t *
tail_create(void)
{
    fsdp_module_t *module =
        fsdp_module_create("", "Tail", tail_forward, NULL, 0);
    fsdp_module_add_child(module,
                          fsdp_linear_create("body", 4, 6, true, FSDP_FP32, 1));
    fsdp_module_add_child(module,
                          fsdp_layer_norm_create("norm", 6, 1e-5, FSDP_FP32));
    fsdp_module_add_child(module,
                          fsdp_linear_create("head", 6, 3, true, FSDP_FP32, 1));
    return module;
}

/* The loss is made of three calls of the head. */
static void
run_chunks(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *hidden =
        fsdp_module_call1(module, tape, batch(tape, 3, 4, micro));
    fsdp_tensor_t *loss = NULL;
    for (int chunk = 1; chunk <= 3; chunk++) {
        fsdp_tensor_t *part = fsdp_scale(tape, hidden, chunk / 2.0);
        fsdp_tensor_t *one =
            square(tape, fsdp_module_call1(module->child[2], tape, part));
        loss = loss == NULL ? one : fsdp_add(tape, loss, one);
    }
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
}

static void
train_chunks(int reshard, const twin_reduction_t *r, bool toggle)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward = reshard;
    fsdp_module_t *module = tail_create();
    twin_t *twin = twin_create(tail_create(), NULL);
    give_list(&module->child[1], 2, &options);
    give(module, &options);
    for (int step = 0; step < 4; step++) {
        if (toggle)
            ck_assert(fsdp_module_set_reshard_after_forward(
                          module, step % 2 == 0, true) == FSDP_OK);
        twin_train(twin, module, run_chunks, r, 1);
    }
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_GRAD) == 0);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(head_called_by_itself)
{
    twin_reduction_t r = twin_reduction(0, 1);
    train_chunks(_i == 0 ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE, &r, false);
}
END_TEST

START_TEST(head_called_by_itself_accumulating)
{
    twin_reduction_t r = twin_reduction(0, 3);
    r.how = _i == 0 ? TWIN_SYNC : TWIN_NO_SYNC;
    train_chunks(FSDP_RESHARD_TRUE, &r, false);
}
END_TEST

START_TEST(head_called_by_itself_reshard_toggled)
{
    twin_reduction_t r = twin_reduction(0, 1);
    train_chunks(FSDP_RESHARD_AUTO, &r, true);
}
END_TEST

/* ---- forwards that use different parts ----------------------------------------- */

static int branch;

static fsdp_values_t
fork_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(
        fsdp_module_call1(self->child[branch], tape, inputs.tensor[0]));
}

static fsdp_module_t *
fork_create(void)
{
    static const char *const name[] = {"a", "b", "c"};
    fsdp_module_t *module =
        fsdp_module_create("", "Fork", fork_forward, NULL, 0);
    for (int i = 0; i < 3; i++)
        fsdp_module_add_child(
            module, fsdp_linear_create(name[i], 4, 3, true, FSDP_FP32, 1));
    return module;
}

static void
run_fork(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss[2];
    for (branch = 0; branch < 2; branch++)
        loss[branch] = square(
            tape, fsdp_module_call1(module, tape, batch(tape, 2, 4, micro)));
    fsdp_backward(tape, fsdp_add(tape, loss[0], loss[1]));
    fsdp_tape_destroy(&tape);
}

/* c is never run, so it has no gradient. */
START_TEST(two_partial_forwards_one_backward)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *module = fork_create();
    twin_t *twin = twin_create(fork_create(), NULL);
    if (_i == 0) {
        twin_shard(module, &options);
    } else {
        give_list(module->child, 3, &options);
        give(module, &options);
    }
    twin_train(twin, module, run_fork, &r, 2);
    run_fork(module, twin_micro(0));
    ck_assert(fsdp_parameter_local(module->child[2]->parameter[0]).grad ==
              NULL);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- tied parameters ------------------------------------------------------------ */

enum { VOCABULARY = 7 }; /* 2, 3 and 4 ranks get unequal parts */

static fsdp_values_t
tied_head(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    return fsdp_values1(
        fsdp_linear(tape, inputs.tensor[0], self->parameter[0], NULL));
}

static fsdp_values_t
tied_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    for (int i = 0; i < 3; i++)
        x = fsdp_module_call1(self->child[i], tape, x);
    return fsdp_values1(x);
}

/* wte, mlp, and a head that has the weight of wte. */
static fsdp_module_t *
tied_create(void)
{
    fsdp_module_t *module =
        fsdp_module_create("", "Tied", tied_forward, NULL, 0);
    fsdp_module_t *wte = fsdp_module_add_child(
        module, fsdp_embedding_create("wte", VOCABULARY, 5, 1, FSDP_FP32, 1));
    fsdp_module_add_child(module,
                          fsdp_linear_create("mlp", 5, 5, true, FSDP_FP32, 1));
    fsdp_module_t *head = fsdp_module_add_child(
        module, fsdp_module_create("head", "Head", tied_head, NULL, 0));
    fsdp_module_tie_parameter(head, wte->parameter[0]);
    return module;
}

static void
run_tied(fsdp_module_t *module, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *index =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 2, (size_t[]){1, 4});
    for (size_t i = 0; i < 4; i++)
        fsdp_tensor_set(index, i,
                        (double)((i * 3 + (size_t)micro) % VOCABULARY));
    fsdp_backward(
        tape, fsdp_cross_entropy(tape, fsdp_module_call1(module, tape, index),
                                 index, FSDP_IGNORE_INDEX));
    fsdp_tape_destroy(&tape);
}

static void
shard_tied(fsdp_module_t *module, const fsdp_options_t *options)
{
    give(module->child[1], options);
    give(module, options); /* wte and head */
}

START_TEST(tied_in_one_group)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward =
        _i == 0 ? FSDP_RESHARD_AUTO : FSDP_RESHARD_TRUE;
    twin_reduction_t r = twin_reduction(0, 2);
    fsdp_module_t *module = tied_create();
    twin_t *twin = twin_create(tied_create(), NULL);
    shard_tied(module, &options);
    twin_train(twin, module, run_tied, &r, 3);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* The head gives every row a gradient, on whichever rank it is. */
START_TEST(tied_rows_all_change)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *module = tied_create();
    shard_tied(module, &options);
    fsdp_local_t local = fsdp_parameter_local(module->child[0]->parameter[0]);
    float before[VOCABULARY * 5];
    memcpy(before, local.data, local.numel * sizeof *before);
    run_tied(module, twin_micro(0));
    twin_update_shards(module);
    bool changed = true;
    for (size_t i = 0; i < local.numel; i++)
        changed &= ((float *)local.data)[i] != before[i];
    mck_assert(changed);
    mck_assert(local.padded_numel ==
               (size_t)((VOCABULARY + twin_size() - 1) / twin_size()) * 5);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(tied_in_two_groups_is_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *module = tied_create();
    give(module->child[0], &options);
    ck_assert(fully_shard(module->child[2], &options) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "wte.weight") != NULL);
    ck_assert(strstr(fsdp_error_message(), "two groups") != NULL);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Each module by its own call: tied ones as one list, and nothing is said. */
START_TEST(layer_by_layer_is_not_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *module = tied_create();
    twin_t *twin = twin_create(tied_create(), NULL);
    fsdp_module_t *list[] = {module->child[0], module->child[2]};
    give_list(list, 2, &options);
    give(module->child[1], &options);
    give(module, &options);
    twin_train(twin, module, run_tied, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- a step that is given up ----------------------------------------------------- */

static jmp_buf way_out;

static void
leave(void *context, fsdp_tape_t *tape)
{
    (void)context;
    (void)tape;
    longjmp(way_out, 1);
}

static fsdp_values_t
leave_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
              fsdp_values_t inputs)
{
    (void)module;
    (void)inputs;
    leave(context, tape);
    return inputs;
}

/* Out of the forward of layer 1, or of the backward between layers 2 and 1. */
static void
give_up(fsdp_module_t *net, bool in_forward)
{
    int here = 0; /* the hooks' identity */
    fsdp_module_hooks_t hooks = {.context = &here};
    if (in_forward)
        hooks.pre_forward = leave_forward;
    else
        hooks.pre_backward = leave;
    fsdp_module_add_hooks(net_layer(net, 1), &hooks);
    fsdp_tape_t *volatile tape = fsdp_tape_create(NULL);
    if (setjmp(way_out) == 0) {
        fsdp_tensor_t *loss =
            net_loss(net, tape, net_batch(net, tape, NET_BATCH, 77));
        fsdp_backward(tape, loss);
        ck_abort_msg("nobody left");
    }
    fsdp_tape_t *left = tape;
    fsdp_tape_destroy(&left);
    fsdp_module_remove_hooks(net_layer(net, 1), &here);
}

START_TEST(a_step_given_up)
{
    static const net_config_t config = {.stem = true,
                                        .head = true,
                                        .uses = 3,
                                        .order = {0, 1, 2},
                                        .dropped = -1};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    fsdp_module_t *net = net_create(&config);
    twin_t *twin = twin_create(net_create(&config), NULL);
    twin_shard(net, &options);
    /* of the twin; the sharded model has no whole parameters now */
    size_t base = fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM);
    for (int step = 0; step < 3; step++) {
        if (step > 0 || _i == 0) { /* also before anything has run */
            give_up(net, _i == 0);
            ck_assert(fsdp_module_reset_iter_state(net) == FSDP_OK);
            fsdp_parameter_t *all[TWIN_PARAMS];
            size_t n = fsdp_module_parameters(net, all, TWIN_PARAMS);
            for (size_t p = 0; p < n; p++)
                fsdp_parameter_local_zero_grad(all[p]);
        }
        mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == base);
        /* nor has a gather or a reduction been left under way */
        mck_assert(fsdp_memory_live_bytes(FSDP_MEM_COMM) == 0);
        twin_train(twin, net, net_run, &r, 1);
    }
    twin_destroy(&twin);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("modules");
    TCase *tcase = tcase_create("models");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, a_root_without_inputs, 0, 2);
    tcase_add_loop_test(tcase, head_called_by_itself, 0, 2);
    tcase_add_loop_test(tcase, head_called_by_itself_accumulating, 0, 2);
    tcase_add_test(tcase, head_called_by_itself_reshard_toggled);
    tcase_add_loop_test(tcase, two_partial_forwards_one_backward, 0, 2);
    tcase_add_loop_test(tcase, tied_in_one_group, 0, 2);
    tcase_add_test(tcase, tied_rows_all_change);
    tcase_add_test(tcase, tied_in_two_groups_is_refused);
    tcase_add_test(tcase, layer_by_layer_is_not_refused);
    tcase_add_loop_test(tcase, a_step_given_up, 0, 2);
    return mck_run(argc, argv, suite);
}
