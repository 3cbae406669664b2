#include "recorded_run.h"

#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "hand_trace.h"
#include "mck.h"

const variant_t variants[VARIANTS] = {
    {FSDP_SYNC_EACH, false, 1, FSDP_DTYPE_NONE, 1, FSDP_ORDER_TREE, false},
    {FSDP_SYNC_LAST, false, 2, FSDP_DTYPE_NONE, 1, FSDP_ORDER_TREE, false},
    {FSDP_SYNC_LAST_ALL_REDUCE, false, 2, FSDP_DTYPE_NONE, 1, FSDP_ORDER_TREE,
     false},
    {FSDP_SYNC_EACH, true, 1, FSDP_DTYPE_NONE, 1, FSDP_ORDER_TREE, false},
    {FSDP_SYNC_EACH, false, 1, FSDP_BF16, 1, FSDP_ORDER_TREE, false},
    {FSDP_SYNC_EACH, false, 1, FSDP_DTYPE_NONE, 2, FSDP_ORDER_TREE, false},
    {FSDP_SYNC_EACH, false, 1, FSDP_DTYPE_NONE, 1, FSDP_ORDER_RING, false},
    {FSDP_SYNC_LAST, false, 2, FSDP_DTYPE_NONE, 1, FSDP_ORDER_RING, false},
    {FSDP_SYNC_EACH, true, 1, FSDP_DTYPE_NONE, 1, FSDP_ORDER_RING, false},
    {FSDP_SYNC_EACH, true, 1, FSDP_DTYPE_NONE, 1, FSDP_ORDER_RING, true},
    {FSDP_SYNC_EACH, true, 2, FSDP_DTYPE_NONE, 1, FSDP_ORDER_RING, true},
};

static fsdp_mixed_precision_policy_t
policy_of(const variant_t *variant)
{
    fsdp_mixed_precision_policy_t policy = {.cast_forward_inputs = true};
    policy.param_dtype = variant->low;
    if (variant->low != FSDP_DTYPE_NONE)
        policy.reduce_dtype = FSDP_FP32;
    return policy;
}

static void
shard_model(run_t *run)
{
    fsdp_options_t options = fsdp_options_default();
    options.mesh = run->data_mesh;
    options.mp_policy = policy_of(run->variant);
    options.reduce_order = run->variant->order;
    fsdp1_options_t flat = fsdp1_options_default();
    flat.mesh = run->data_mesh;
    flat.reduce_order = options.reduce_order;
    if (run->variant->replicas > 1)
        flat.sharding_strategy = FSDP_HYBRID_SHARD;
    flat.use_orig_params = run->variant->aligned;
    fsdp_module_t *unit[] = {fsdp_mlp_layer(run->model, 0),
                             fsdp_mlp_layer(run->model, 1), run->model};
    for (int i = 0; i < 3; i++)
        ck_assert((run->variant->fsdp1
                       ? fsdp_fully_sharded_data_parallel(unit[i], &flat)
                       : fully_shard(unit[i], &options)) == FSDP_OK);
}

static void
choose_sync(run_t *run, int j)
{
    bool last = j == MICROS - 1;
    if (run->variant->sync == FSDP_SYNC_LAST)
        fsdp_module_set_requires_gradient_sync(run->model, last, true);
    if (run->variant->sync == FSDP_SYNC_LAST_ALL_REDUCE)
        fsdp_module_set_requires_all_reduce(run->model, last, true);
}

static void
micro_batch(run_t *run, long step, int j)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    const size_t shape[] = {ROWS, IN}, rows = ROWS;
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_FP32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 1, &rows);
    for (size_t i = 0; i < ROWS * IN; i++)
        fsdp_tensor_set(
            x, i,
            (double)((i * 37 + (size_t)(step * 11 + j * 5 + run->rank * 3)) %
                     29) /
                    16 -
                1);
    for (int i = 0; i < ROWS; i++)
        ((int32_t *)y->data)[i] = (i + j + run->rank) % OUT;
    choose_sync(run, j);
    fsdp_trace_recorder_micro_batch(run->recorder, j);
    fsdp_trace_recorder_input(run->recorder, "x", x);
    fsdp_trace_recorder_input(run->recorder, "targets", y);
    fsdp_tensor_t *loss = fsdp_mlp_loss(tape, run->model, x, y);
    fsdp_trace_recorder_loss(run->recorder, loss);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
}

static fsdp_json_t *config;

static void
read_config(void)
{
    static const char text[] = "{\"widths\":[5,6,3],\"activation\":\"relu\"}";
    ck_assert(fsdp_json_parse("config", text, sizeof text - 1, &config) ==
              FSDP_OK);
}

fsdp_trace_about_t
run_about(const run_t *run)
{
    return (fsdp_trace_about_t){.producer = "test_record",
                                .api = run->variant->fsdp1 ? "fsdp1" : "fsdp2",
                                .model_type = "mlp",
                                .model_config =
                                    (const struct fsdp_json *)config,
                                .dtype = FSDP_FP32,
                                .precision = policy_of(run->variant),
                                .replicas = run->replicas,
                                .shards = run->shards,
                                .tensor = run->tensor,
                                .micro_batches = MICROS,
                                .gradient_sync = run->variant->sync,
                                .ignore_index = FSDP_IGNORE_INDEX,
                                .loss_scale = 1,
                                .optimizer = FSDP_TRACE_SGD,
                                .optimizer_name = "sgd",
                                .grad_clip = clip,
                                .norm_type = 2,
                                .averaging = -1,
                                .divide_factor = NAN,
                                .reduce_order = run->variant->order,
                                .seed = -1};
}

void
run_begin_recording(run_t *run, const fsdp_trace_about_t *about)
{
    fsdp_trace_recorder_options_t options = {.dir = hand_folder,
                                             .model = run->model,
                                             .optimizer = run->optimizer,
                                             .mesh = run->mesh,
                                             .tensor = run->tensor,
                                             .first_step = 2,
                                             .last_step = 3,
                                             .about = about};
    fsdp_status_t status = fsdp_trace_recorder_create(&options, &run->recorder);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
}

void
run_step(run_t *run, long step)
{
    double norm;
    fsdp_trace_recorder_begin_step(run->recorder, step);
    for (int j = 0; j < MICROS; j++)
        micro_batch(run, step, j);
    fsdp_trace_recorder_gradients(run->recorder);
    fsdp_clip_grad_norm(run->model, clip, &norm);
    fsdp_trace_recorder_norm(run->recorder, norm);
    fsdp_optimizer_step(run->optimizer);
    fsdp_trace_recorder_update(run->recorder, lr);
    fsdp_optimizer_zero_grad(run->optimizer);
}

void
make_folder(void)
{
    read_config();
    if (fsdp_comm_rank(fsdp_comm_world()) == 0) {
        hand_trace_begin();
        rmdir(hand_folder);
    }
    fsdp_broadcast(fsdp_comm_world(), "folder", FSDP_UINT8, hand_folder, 64, 0);
}

void
remove_folder(void)
{
    fsdp_json_destroy(&config);
    fsdp_barrier(fsdp_comm_world(), "folder");
    if (fsdp_comm_rank(fsdp_comm_world()) == 0)
        hand_trace_end();
}

static void
make_mesh(run_t *run)
{
    static const char *const dims[] = {"shard", "tp"};
    const int sizes[] = {run->shards, run->tensor};
    if (run->tensor > 1)
        run->mesh = fsdp_mesh_create(2, sizes, dims);
    else
        run->mesh = run->variant->replicas > 1
                        ? fsdp_mesh_create_2d(run->replicas, run->shards)
                        : fsdp_mesh_create_1d();
    run->data_mesh =
        run->tensor > 1 ? fsdp_mesh_slice(run->mesh, 1, dims) : run->mesh;
}

void
run_begin(run_t *run, const variant_t *variant)
{
    int world = fsdp_comm_size(fsdp_comm_world());
    *run = (run_t){.variant = variant};
    run->tensor = world % variant->tensor == 0 ? variant->tensor : 1;
    run->size = world / run->tensor;
    run->rank = fsdp_comm_rank(fsdp_comm_world()) / run->tensor;
    run->replicas = run->size % variant->replicas == 0 ? variant->replicas : 1;
    run->shards = run->size / run->replicas;
    make_mesh(run);
    fsdp_mlp_config_t mlp = {
        .num_layers = 2, .width = {IN, HIDDEN, OUT}, .seed = 5};
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.lr = lr;
    run->model = fsdp_mlp_create(&mlp);
    if (run->tensor > 1) {
        fsdp_tensor_parallel_t tp = {.degree = run->tensor,
                                     .comm = fsdp_mesh_comm(run->mesh, 1)};
        ck_assert(fsdp_tensor_parallel_mlp(run->model, &tp) == FSDP_OK);
    }
    shard_model(run);
    run->optimizer = fsdp_sgd_create(run->model, &sgd);
}

void
run_end(run_t *run)
{
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
    if (run->data_mesh != run->mesh)
        fsdp_mesh_destroy(&run->data_mesh);
    fsdp_mesh_destroy(&run->mesh);
}

void
run_record(run_t *run, const variant_t *variant)
{
    run_begin(run, variant);
    fsdp_trace_about_t about = run_about(run);
    run_begin_recording(run, &about);
    for (long step = 1; step <= STEPS; step++) {
        run_step(run, step);
        ck_assert(fsdp_trace_recorder_end_step(run->recorder) == FSDP_OK);
    }
    ck_assert(fsdp_trace_recorder_finish(&run->recorder) == FSDP_OK);
    run_end(run);
}

fsdp_trace_t *trace;

bool
is_first(void)
{
    return fsdp_comm_rank(fsdp_comm_world()) == 0;
}

void
open_trace(void)
{
    fsdp_status_t status = fsdp_trace_open(hand_folder, &trace);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
}

const double *
values_of(long step, fsdp_trace_phase_t phase, int micro, const char *name,
          double values[MOST])
{
    const fsdp_trace_record_t *record =
        fsdp_trace_find(trace, step, phase, micro, name);
    for (int i = 0; i < MOST; i++)
        values[i] = NAN;
    if (record != NULL && record->numel <= MOST)
        ck_assert(fsdp_trace_read(trace, record, values, NULL, NULL) ==
                  FSDP_OK);
    return values;
}
