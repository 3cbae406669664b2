/* Along which dim parameters are cut, shards of every size, parameters without
 * storage, frozen ones of other types.  PyTorch: test_fully_shard_init.py. */
#include <string.h>

#include "fsdp.h"
#include "golden_events.h"
#include "mck.h"
#include "net.h"
#include "twin.h"

/* ---- shards as PyTorch makes them ----------------------------------------------- */

static fsdp_values_t
pass(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

static fsdp_module_t *
one_parameter(int ndim, const size_t *shape, fsdp_dtype_t dtype)
{
    fsdp_module_t *module = fsdp_module_create("", "One", pass, NULL, 0);
    fsdp_module_add_parameter(
        module,
        fsdp_parameter_create("p", dtype, ndim, shape, FSDP_INIT_NORMAL, 1, 5));
    return module;
}

START_TEST(shards_as_pytorch)
{
    size_t shape[2], local[2], padded[2];
    int world_size, seen = 0;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    for (size_t i = 0;
         golden_shard(i, twin_rank(), &world_size, shape, local, padded); i++) {
        if (world_size != twin_size())
            continue;
        seen++;
        fsdp_module_t *module = one_parameter(2, shape, FSDP_FP32);
        ck_assert(fully_shard(module, &options) == FSDP_OK);
        fsdp_local_t mine = fsdp_parameter_local(module->parameter[0]);
        mck_assert(mine.numel == local[0] * local[1]);
        mck_assert(mine.padded_numel == padded[0] * padded[1]);
        fsdp_module_destroy(&module);
    }
    ck_assert(seen > 0);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- placements ------------------------------------------------------------------ */

typedef enum rule { LARGEST, LAST, DIFFERENT } rule_t;

static fsdp_shard_placement_t
place(void *context, const fsdp_parameter_t *parameter)
{
    fsdp_shard_placement_t placement = {0};
    switch (*(const rule_t *)context) {
    case LARGEST:
        for (int d = 1; d < parameter->ndim; d++)
            if (parameter->shape[d] > parameter->shape[placement.dim])
                placement.dim = d;
        break;
    case LAST:
        placement.dim = -1;
        break;
    case DIFFERENT: /* every other one */
        placement.dim = parameter->name[7] % 2 == 0 ? parameter->ndim - 1 : 0;
        break;
    }
    return placement;
}

/* Widths that W divides, so that any dim may be cut. */
static fsdp_module_t *
even_mlp(void)
{
    size_t w = (size_t)twin_size();
    fsdp_mlp_config_t config = {
        .num_layers = 3, .width = {2 * w, 3 * w, w, 2 * w}, .seed = 2};
    return fsdp_mlp_create(&config);
}

static void
run_mlp(fsdp_module_t *mlp, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = fsdp_tape_new_tensor(
        tape, FSDP_FP32, 2, (size_t[]){3, 2 * (size_t)twin_size()});
    for (size_t i = 0; i < fsdp_tensor_numel(x); i++)
        fsdp_tensor_set(x, i, (double)((i * 7 + (size_t)micro) % 16) / 8 - 1);
    fsdp_backward(tape, net_loss(mlp, tape, x));
    fsdp_tape_destroy(&tape);
}

static int
expected_dim(rule_t rule, const fsdp_parameter_t *p)
{
    if (p->ndim == 1)
        return 0;
    if (rule == LARGEST)
        return p->shape[1] > p->shape[0];
    return rule == LAST || p->name[7] % 2 == 0;
}

static void
check_rule(rule_t rule, int replicas)
{
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(replicas, 2);
    options.shard_placement_fn = place;
    options.placement_context = &rule;
    fsdp_module_t *mlp = even_mlp();
    twin_t *twin = twin_create(even_mlp(), NULL);
    twin_shard(mlp, &options);
    fsdp_parameter_t *mine[TWIN_PARAMS];
    fsdp_module_parameters(mlp, mine, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++)
        ck_assert(fsdp_parameter_local(mine[p]).layout.dim ==
                  expected_dim(rule, mine[p]));
    mck_assert(twin_data_agree(twin, mlp));
    twin_train(twin, mlp, run_mlp, &r, 3);
    twin_destroy(&twin);
    fsdp_module_destroy(&mlp);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(largest_dim)
{
    check_rule(LARGEST, 0);
}
END_TEST

START_TEST(last_dim)
{
    check_rule(LAST, 0);
}
END_TEST

START_TEST(different_dims_on_two_dimensions)
{
    check_rule(DIFFERENT, twin_size() % 2 == 0 ? 2 : 1);
}
END_TEST

/* What is gathered along another dim is the whole, row by row without gaps. */
static fsdp_module_t *whole_mlp;
static int good, bad;

static void
compare(void *context, fsdp_parameter_t *parameter, const void *data)
{
    (void)context;
    fsdp_parameter_t *whole =
        fsdp_module_find_parameter(whole_mlp, parameter->name);
    bool same = memcmp(data, fsdp_parameter_data(whole),
                       fsdp_parameter_numel(whole) * sizeof(float)) == 0;
    good += same;
    bad += !same;
}

START_TEST(gathered_without_gaps)
{
    rule_t rule = LAST;
    fsdp_observer_t observer = {.gathered = compare};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.shard_placement_fn = place;
    options.placement_context = &rule;
    options.reshard_after_forward =
        twin_size() % 2 == 0 && _i == 1 ? 2 : FSDP_RESHARD_TRUE;
    fsdp_module_t *mlp = even_mlp();
    whole_mlp = even_mlp();
    twin_shard(mlp, &options);
    good = bad = 0;
    fsdp_add_observer(&observer);
    run_mlp(mlp, 0);
    fsdp_remove_observer(NULL);
    mck_assert(bad == 0 && good == 12);
    fsdp_module_destroy(&whole_mlp);
    fsdp_module_destroy(&mlp);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

static fsdp_shard_placement_t
dim_of_context(void *context, const fsdp_parameter_t *parameter)
{
    (void)parameter;
    return (fsdp_shard_placement_t){.dim = *(int *)context};
}

/* Uneven is for dim 0; a dim must exist. */
START_TEST(dims_that_are_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    size_t shape[] = {4, (size_t)twin_size() * 2 + 1};
    int dim = 1;
    options.shard_placement_fn = dim_of_context;
    options.placement_context = &dim;
    fsdp_module_t *module = one_parameter(2, shape, FSDP_FP32);
    if (twin_size() > 1) {
        ck_assert(fully_shard(module, &options) == FSDP_ERR_USAGE);
        ck_assert(strstr(fsdp_error_message(), "evenly") != NULL);
    }
    static const int wrong[] = {2, -3, 7};
    for (int i = 0; i < 3; i++) {
        dim = wrong[i];
        ck_assert(fully_shard(module, &options) == FSDP_ERR_USAGE);
        ck_assert(strstr(fsdp_error_message(), "dim") != NULL);
    }
    ck_assert(module->fsdp_state == NULL &&
              module->parameter[0]->managed == NULL);
    dim = -2;
    ck_assert(fully_shard(module, &options) == FSDP_OK);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- initial values that are put off ---------------------------------------------- */

/* Dims 8, 3 and 1: with more ranks than rows too. */
static fsdp_module_t *
meta_mlp(uint64_t seed)
{
    fsdp_mlp_config_t config = {
        .num_layers = 3, .width = {2, 8, 3, 1}, .seed = seed};
    return fsdp_mlp_create(&config);
}

static void
run_meta(fsdp_module_t *mlp, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){3, 2});
    for (size_t i = 0; i < 6; i++)
        fsdp_tensor_set(x, i, (double)((i + (size_t)micro) % 5) - 2);
    fsdp_backward(tape, net_loss(mlp, tape, x));
    fsdp_tape_destroy(&tape);
}

static void
whole_of(void *context, const fsdp_parameter_t *parameter, void *out)
{
    fsdp_parameter_t *p = fsdp_module_find_parameter(context, parameter->name);
    ck_assert(twin_rank() == 0 && p != NULL);
    memcpy(out, fsdp_parameter_data(p),
           fsdp_parameter_numel(p) * fsdp_dtype_size(p->dtype));
}

/* No storage before; then what a model of that seed has, or what rank 0 has. */
static void
check_deferred(int replicas, bool from_rank0)
{
    fsdp_mesh_t *mesh = twin_mesh(replicas);
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(replicas, 1);
    options.defer_init = true;
    size_t before = fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD);
    fsdp_module_t *mlp = meta_mlp(1), *source = meta_mlp(9);
    twin_shard(mlp, &options);
    ck_assert(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD) == before);
    if (from_rank0)
        ck_assert(fsdp_module_broadcast_from_rank0(mlp, whole_of, source) ==
                  FSDP_OK);
    else
        ck_assert(fsdp_module_materialize(mlp, 9) == FSDP_OK);
    fsdp_module_destroy(&source);
    twin_t *twin = twin_create(meta_mlp(9), NULL);
    mck_assert(twin_data_agree(twin, mlp));
    twin_train(twin, mlp, run_meta, &r, 2);
    twin_destroy(&twin);
    fsdp_module_destroy(&mlp);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(materialized)
{
    check_deferred(0, false);
}
END_TEST

START_TEST(materialized_on_two_dimensions)
{
    check_deferred(twin_size(), false);
    check_deferred(1, false);
}
END_TEST

START_TEST(broadcast_from_rank_0)
{
    check_deferred(0, true);
}
END_TEST

START_TEST(broadcast_over_replicas)
{
    check_deferred(twin_size() % 2 == 0 ? 2 : twin_size(), true);
}
END_TEST

/* ---- frozen parameters of other types ----------------------------------------------- */

/* x + w, with frozen parameters of every type beside. */
static fsdp_values_t
mixed_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int p = 0; p < self->num_parameters; p++)
        fsdp_parameter_data(self->parameter[p]); /* all are there */
    return fsdp_values1(
        fsdp_linear(tape, inputs.tensor[0], self->parameter[1], NULL));
}

static fsdp_module_t *
mixed_create(void)
{
    static const fsdp_dtype_t types[] = {FSDP_INT64, FSDP_FP32, FSDP_BF16,
                                         FSDP_UINT8, FSDP_FP64};
    fsdp_module_t *module =
        fsdp_module_create("", "Mixed", mixed_forward, NULL, 0);
    for (int p = 0; p < 5; p++) {
        char *name = fsdp_format("p%d", p);
        fsdp_parameter_t *parameter = fsdp_parameter_create(
            name, types[p], 2, (size_t[]){p == 1 ? 3 : 5, 2},
            p == 1 ? FSDP_INIT_NORMAL : FSDP_INIT_ONES, 1, 5);
        parameter->requires_grad = p == 1;
        fsdp_module_add_parameter(module, parameter);
        fsdp_free(name);
    }
    return module;
}

static int ones;

static void
count_ones(void *context, fsdp_parameter_t *parameter, const void *data)
{
    (void)context;
    if (parameter->requires_grad)
        return;
    fsdp_tensor_t *t =
        fsdp_tensor_borrow(parameter->data_dtype, parameter->ndim,
                           parameter->shape, (void *)(uintptr_t)data);
    for (size_t i = 0; i < 10; i++)
        ones += fsdp_tensor_get(t, i) == 1;
    fsdp_tensor_destroy(&t);
}

START_TEST(frozen_of_other_types)
{
    fsdp_observer_t observer = {.gathered = count_ones};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    twin_reduction_t r = twin_reduction(0, 1);
    if (_i == 1) { /* integers are left alone, floating ones are cast */
        options.mp_policy.param_dtype = FSDP_FP32;
        options.mp_policy.reduce_dtype = r.reduce = FSDP_BF16;
    }
    fsdp_module_t *module = mixed_create();
    twin_t *twin = twin_create(mixed_create(), NULL);
    ck_assert_msg(fully_shard(module, &options) == FSDP_OK, "%s",
                  fsdp_error_message());
    ones = 0;
    fsdp_add_observer(&observer);
    twin_train(twin, module, run_meta, &r, 2);
    fsdp_remove_observer(NULL);
    mck_assert(ones == 2 * 4 * 10); /* the root gathers once a step */
    for (int p = 0; p < 5; p++)
        ck_assert(p == 1 ||
                  fsdp_parameter_local(module->parameter[p]).grad == NULL);
    twin_destroy(&twin);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(trainable_of_other_types_are_refused)
{
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    fsdp_module_t *module = mixed_create();
    module->parameter[2]->requires_grad = true;
    ck_assert(fully_shard(module, &options) == FSDP_ERR_USAGE);
    module->parameter[2]->requires_grad = false;
    module->parameter[0]->requires_grad = true; /* int64 */
    ck_assert(fully_shard(module, &options) == FSDP_ERR_USAGE);
    fsdp_module_destroy(&module);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("shards");
    suite_add_tcase(suite, tcase);
    tcase_add_unchecked_fixture(tcase, golden_read, golden_free);
    tcase_add_test(tcase, shards_as_pytorch);
    tcase_add_test(tcase, largest_dim);
    tcase_add_test(tcase, last_dim);
    tcase_add_test(tcase, different_dims_on_two_dimensions);
    tcase_add_loop_test(tcase, gathered_without_gaps, 0, 2);
    tcase_add_test(tcase, dims_that_are_refused);
    tcase_add_test(tcase, materialized);
    tcase_add_test(tcase, materialized_on_two_dimensions);
    tcase_add_test(tcase, broadcast_from_rank_0);
    tcase_add_test(tcase, broadcast_over_replicas);
    tcase_add_loop_test(tcase, frozen_of_other_types, 0, 2);
    tcase_add_test(tcase, trainable_of_other_types_are_refused);
    return mck_run(argc, argv, suite);
}
