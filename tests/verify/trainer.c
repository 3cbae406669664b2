#include "trainer.h"

#include <math.h>
#include <string.h>

#include "fsdp.h"
#include "mck.h"

enum {
    ROWS = 4,
    MAX_PARAMS = 64,
    MAX_TERMS = 64,
    VOCABULARY = 13,
    CONTEXT = 6
};

/* ---- the task: values from formulas of step and micro-batch -------------- */

static fsdp_module_t *
make_model(const trainer_t *trainer, uint64_t seed)
{
    if (!trainer->gpt2) {
        fsdp_mlp_config_t config = {.num_layers = 3,
                                    .width = {5, 7, 6, 3},
                                    .dtype = trainer->dtype,
                                    .seed = seed};
        return fsdp_mlp_create(&config);
    }
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = config.n_head = 2;
    config.n_embd = 10;
    config.vocab_size = VOCABULARY;
    config.n_positions = CONTEXT;
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop =
        trainer->dropout;
    config.dtype = trainer->dtype;
    config.seed = seed;
    return fsdp_gpt2_create(&config);
}

static fsdp_module_t *
build(void *context)
{
    return make_model(context, 7);
}

static size_t
number(long step, int micro, size_t i)
{
    return ((size_t)step * 31 + (size_t)micro * 17 + i * 37) % 101;
}

static fsdp_tensor_t *
integers(fsdp_tape_t *tape, int ndim, const size_t *shape, long step, int micro,
         size_t below)
{
    fsdp_tensor_t *t = fsdp_tape_new_tensor(tape, FSDP_INT32, ndim, shape);
    for (size_t i = 0; i < fsdp_tensor_numel(t); i++)
        ((int32_t *)t->data)[i] = (int32_t)(number(step, micro, i) % below);
    return t;
}

static fsdp_tensor_t *
loss(void *context, fsdp_tape_t *tape, fsdp_module_t *model, long step,
     int micro)
{
    const trainer_t *trainer = context;
    const size_t tokens[] = {2, CONTEXT}, inputs[] = {ROWS, 5}, rows[] = {ROWS};
    if (trainer->gpt2)
        return fsdp_gpt2_loss(
            tape, model, integers(tape, 2, tokens, step, micro, VOCABULARY),
            integers(tape, 2, tokens, step, micro + 5, VOCABULARY));
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, trainer->dtype, 2, inputs);
    for (size_t i = 0; i < fsdp_tensor_numel(x); i++)
        fsdp_tensor_set(x, i, (double)number(step, micro, i) / 32 - 1.5);
    return fsdp_mlp_loss(tape, model, x,
                         integers(tape, 1, rows, step, micro, 3));
}

static fsdp_tape_options_t
tape_options(void *context, long step, int micro)
{
    (void)context;
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.seed = 3;
    options.step = (uint32_t)step;
    options.first_sample = (uint32_t)micro * 2;
    return options;
}

/* ---- a run -------------------------------------------------------------- */

typedef struct run {
    const trainer_t *trainer;
    fsdp_task_t task;
    fsdp_mesh_t *mesh;
    fsdp_module_t *model;
    fsdp_parameter_t *param[MAX_PARAMS];
    size_t num_params;
    fsdp_optimizer_t *optimizer;
    fsdp_verifier_t *verifier;
    int rank, size, tamperer;
    bool tampered;
} run_t;

static void
shard(run_t *run)
{
    fsdp_options_t options = fsdp_options_default();
    options.mesh = run->mesh;
    options.reduce_order = run->trainer->order;
    int units = run->trainer->gpt2 ? 2 : 3;
    for (int i = 0; i < units; i++)
        ck_assert(fully_shard(run->trainer->gpt2
                                  ? fsdp_gpt2_block(run->model, i)
                                  : fsdp_mlp_layer(run->model, i),
                              &options) == FSDP_OK);
    ck_assert(fully_shard(run->model, &options) == FSDP_OK);
    run->num_params =
        fsdp_module_parameters(run->model, run->param, MAX_PARAMS);
    ck_assert(run->num_params <= MAX_PARAMS);
}

static void
open_run(run_t *run)
{
    const trainer_t *t = run->trainer;
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.momentum = 0.9;
    sgd.dampening = t->dampening;
    sgd.nesterov = t->dampening == 0;
    sgd.weight_decay = 0.1;
    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    run->mesh = t->replicas > 0
                    ? fsdp_mesh_create_2d(t->replicas, run->size / t->replicas)
                    : fsdp_mesh_create_1d();
    run->model = make_model(t, t->other_seed ? 8 : 7);
    shard(run);
    run->optimizer = t->adamw ? fsdp_adamw_create(run->model, &adam)
                              : fsdp_sgd_create(run->model, &sgd);
    fsdp_verify_options_t options = {
        .level = t->level,
        .task = run->task,
        .model = run->model,
        .optimizer = run->optimizer,
        .mesh = run->mesh,
        .reduce_order = t->order,
        .micro_batches = t->micros,
        .clip_norm = t->clip,
        .adamw = t->adamw,
        .sgd = sgd,
        .adam = adam,
    };
    run->verifier = fsdp_verifier_create(&options);
}

static void
close_run(run_t *run)
{
    fsdp_verifier_destroy(&run->verifier);
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
    fsdp_mesh_destroy(&run->mesh);
}

/* ---- tampering ---------------------------------------------------------- */

static bool
tampers(const run_t *run, long step, tamper_t with)
{
    return run->trainer->tamper == with && step == 2 &&
           run->rank ==
               (with == TAMPER_PADDING ? run->size - 1 : run->tamperer);
}

/* The last rank that has rows of the first parameter. */
static int
last_owner(const run_t *run)
{
    size_t rows = run->param[0]->shape[0], w = (size_t)run->size;
    return (int)((rows - 1) / ((rows + w - 1) / w));
}

/* One unit in the last place. */
static double
next(fsdp_dtype_t dtype, double x)
{
    return dtype == FSDP_FP32 ? (double)nextafterf((float)x, INFINITY)
                              : nextafter(x, INFINITY);
}

static void
move_element(run_t *run, fsdp_dtype_t dtype, void *x, size_t i)
{
    if (dtype == FSDP_FP32)
        ((float *)x)[i] = (float)next(dtype, (double)((float *)x)[i]);
    else
        ((double *)x)[i] = next(dtype, ((double *)x)[i]);
    run->tampered = true;
}

static void
tamper_gradient(run_t *run)
{
    fsdp_local_t local = fsdp_parameter_local(run->param[0]);
    move_element(run, run->trainer->dtype, local.grad, local.numel - 1);
}

static void
lose_gradient(run_t *run)
{
    fsdp_parameter_local_zero_grad(run->param[0]);
    run->tampered = true;
}

static void
tamper_update(run_t *run, long step)
{
    fsdp_parameter_t *param = run->param[0];
    fsdp_local_t first = fsdp_parameter_local(param);
    if (tampers(run, step, TAMPER_PARAMETER))
        move_element(run, param->dtype, first.data, first.numel - 1);
    if (tampers(run, step, TAMPER_STATE))
        move_element(run, param->dtype,
                     fsdp_optimizer_state(run->optimizer, param,
                                          run->trainer->adamw ? 1 : 0),
                     first.numel - 1);
    if (!tampers(run, step, TAMPER_PADDING))
        return;
    for (size_t p = 0; p < run->num_params && !run->tampered; p++) {
        fsdp_local_t local = fsdp_parameter_local(run->param[p]);
        if (local.numel < local.padded_numel)
            move_element(run, run->param[p]->dtype, local.data, local.numel);
    }
}

/* ---- a step, as the program does it -------------------------------------- */

static double
micro_batch(run_t *run, long step, int j)
{
    int rank =
        run->rank == 1 && fsdp_fault(FSDP_FAULT_HALF_BATCH) ? 0 : run->rank;
    int micro = j * run->size + rank;
    void *context = run->task.context;
    fsdp_tape_options_t options = tape_options(context, step, micro);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *scalar = loss(context, tape, run->model, step, micro);
    fsdp_backward(tape, scalar);
    double value = fsdp_tensor_get(scalar, 0);
    if (j == run->trainer->micros - 1 && tampers(run, step, TAMPER_LOSS)) {
        value = next(run->trainer->dtype, value);
        run->tampered = true;
    }
    fsdp_verifier_micro_batch(run->verifier, j, value);
    fsdp_tape_destroy(&tape);
    return value;
}

static double
mean_loss(run_t *run, const double *mine)
{
    int m = run->trainer->micros, size = run->size;
    double all[MAX_TERMS], by_micro[MAX_TERMS];
    ck_assert(m * size <= MAX_TERMS);
    fsdp_all_gather(fsdp_comm_world(), "losses", FSDP_FP64, mine, all,
                    (size_t)m);
    for (int r = 0; r < size; r++)
        for (int j = 0; j < m; j++)
            by_micro[j * size + r] = all[r * m + j];
    return fsdp_mean_loss(by_micro, m * size, run->trainer->dtype,
                          run->trainer->order);
}

static double
norm_of(run_t *run)
{
    double norm = 0, clip = run->trainer->clip;
    ck_assert((clip > 0 ? fsdp_clip_grad_norm(run->model, clip, &norm)
                        : fsdp_grad_norm(run->model, 2, &norm)) == FSDP_OK);
    return norm;
}

static double
tampered_value(run_t *run, long step, tamper_t with, double value)
{
    if (!tampers(run, step, with))
        return value;
    run->tampered = true;
    return next(run->trainer->dtype, value);
}

static fsdp_verify_report_t
train_step(run_t *run, long step)
{
    double mine[MAX_TERMS], lr = 0.05 / (double)step;
    fsdp_fault_set_step(step);
    fsdp_verifier_begin_step(run->verifier, step);
    for (int j = 0; j < run->trainer->micros; j++)
        mine[j] = micro_batch(run, step, j);
    double mean =
        tampered_value(run, step, TAMPER_MEAN_LOSS, mean_loss(run, mine));
    if (tampers(run, step, TAMPER_GRADIENT))
        tamper_gradient(run);
    if (tampers(run, step, TAMPER_LOST_GRADIENT))
        lose_gradient(run);
    fsdp_verifier_gradients(run->verifier, mean);

    double norm = tampered_value(run, step, TAMPER_NORM, norm_of(run));
    if (tampers(run, step, TAMPER_CLIPPED))
        tamper_gradient(run);
    fsdp_verifier_norm(run->verifier, norm);

    fsdp_optimizer_set_lr(run->optimizer, lr);
    fsdp_optimizer_step(run->optimizer);
    tamper_update(run, step);
    fsdp_verifier_update(run->verifier, lr);
    fsdp_optimizer_zero_grad(run->optimizer);
    return fsdp_verifier_end_step(run->verifier);
}

trainer_result_t
trainer_run(const trainer_t *trainer)
{
    trainer_result_t result = {0};
    run_t run = {.trainer = trainer,
                 .task = {(void *)trainer, build, loss, tape_options},
                 .rank = fsdp_comm_rank(fsdp_comm_world()),
                 .size = fsdp_comm_size(fsdp_comm_world())};
    open_run(&run);
    run.tamperer = trainer->replicas > 0 ? run.size - 1 : last_owner(&run);
    for (long step = 1; step <= TRAINER_STEPS; step++)
        result.step[step - 1] = train_step(&run, step);
    result.total = fsdp_verifier_total(run.verifier);
    result.tamperer = run.tamperer;
    for (size_t p = 0; p < run.num_params; p++) {
        size_t rows = run.param[p]->shape[0], w = (size_t)run.size;
        size_t row = fsdp_parameter_row_numel(run.param[p]);
        result.values += rows * row;
        result.padding += ((rows + w - 1) / w * w - rows) * row;
    }
    result.tampered = !fsdp_comm_all_true(fsdp_comm_world(), !run.tampered);
    close_run(&run);
    return result;
}
