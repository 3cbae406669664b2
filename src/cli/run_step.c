/* One step of training. */

#include "cli/run.h"

/* The rank's j-th micro-batch of the step; with half-batch two ranks read one. */
static int
micro_batch_of(const cli_run_t *run, int j)
{
    int rank = run->batch_rank;
    if (rank == 1 && fsdp_fault(FSDP_FAULT_HALF_BATCH))
        rank = 0;
    return fsdp_global_micro_batch((fsdp_gradient_sync_t)run->o->gradient_sync,
                                   run->replicas, run->shards, run->micros,
                                   rank, j);
}

/* The mean over the step's targets is the mean of the micro-batches' means when
 * each is weighted by its share of the targets; all ranks count together. */
static double
count_targets(cli_run_t *run, long step)
{
    double mine = 0;
    for (int j = 0; j < run->micros; j++)
        mine += cli_task_targets(&run->task, step, micro_batch_of(run, j));
    if (fsdp_fault(FSDP_FAULT_TOKENS_OF_RANK))
        return mine * run->batches;
    fsdp_all_reduce(run->comm, "targets", FSDP_FP64, FSDP_SUM, FSDP_ORDER_RANK,
                    &mine, 1);
    return mine / (double)run->o->tp; /* who share a batch count it twice */
}

/* `targets` is 0 for a mean over micro-batches. */
static double
weight_of(const cli_run_t *run, long step, int micro, double targets)
{
    if (targets == 0)
        return 1;
    double share = cli_task_targets(&run->task, step, micro);
    return share * run->micros * run->batches / targets;
}

/* The loss that the backward begins with. */
static fsdp_tensor_t *
run_forward(cli_run_t *run, fsdp_tape_t *tape, long step, int j, double targets)
{
    bool text = run->o->model != CLI_MLP;
    int micro = micro_batch_of(run, j);
    fsdp_values_t batch = cli_task_batch(&run->task, tape, step, micro);
    if (run->recorder != NULL) {
        fsdp_trace_recorder_micro_batch(run->recorder, j);
        fsdp_trace_recorder_input(run->recorder, text ? "tokens" : "x",
                                  batch.tensor[0]);
        fsdp_trace_recorder_input(run->recorder, "targets", batch.tensor[1]);
    }
    fsdp_tensor_t *mean = cli_task_mean(&run->task, tape, run->model, batch);
    if (run->recorder != NULL)
        fsdp_trace_recorder_loss(run->recorder, mean);
    double weight = weight_of(run, step, micro, targets);
    return cli_task_weigh(tape, mean, weight * cli_task_scale(&run->task));
}

static double
forward_backward(cli_run_t *run, long step, int j, double targets)
{
    int micro = micro_batch_of(run, j);
    fsdp_task_t *task = &run->callbacks;
    fsdp_tape_options_t options =
        task->tape_options(task->context, step, micro);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *loss = run_forward(run, tape, step, j, targets);
    double value = fsdp_tensor_get(loss, 0);
    if (run->scaler != NULL)
        loss = fsdp_grad_scaler_scale(run->scaler, tape, loss);
    fsdp_backward(tape, loss);
    if (run->verifier != NULL)
        fsdp_verifier_micro_batch(run->verifier, j, value);
    fsdp_tape_destroy(&tape);
    return value;
}

/* The losses of this rank's micro-batches; their gradients are in the model. */
static void
run_micro_batches(cli_run_t *run, long step, double *losses)
{
    double targets =
        run->o->loss_average == CLI_TOKEN_MEAN ? count_targets(run, step) : 0;
    for (int j = 0; j < run->micros; j++) {
        fsdp_status_t status =
            cli_choose_sync(run->model, run->o, j, run->micros);
        FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
        losses[j] = forward_backward(run, step, j, targets);
    }
}

/* [rank][j] becomes [global micro-batch]; of ranks that share a batch one
 * counts. */
static double
mean_loss(cli_run_t *run, const double *mine)
{
    int m = run->micros, size = run->batches, tp = (int)run->o->tp;
    fsdp_all_gather(run->comm, "losses", FSDP_FP64, mine, run->gathered,
                    (size_t)m);
    for (int r = 0; r < size; r++)
        for (int j = 0; j < m; j++)
            run->losses[fsdp_global_micro_batch(
                (fsdp_gradient_sync_t)run->o->gradient_sync, run->replicas,
                run->shards, m, r, j)] = run->gathered[r * tp * m + j];
    return fsdp_mean_loss(run->losses, m * size, run->task.dtype,
                          (fsdp_reduce_order_t)run->o->reduce_order);
}

static double
take_norm(cli_run_t *run)
{
    double norm = 0;
    double type = run->o->norm_type;
    fsdp_status_t status = run->o->grad_clip > 0
                               ? fsdp_clip_grad_norm_type(
                                     run->model, run->o->grad_clip, type, &norm)
                               : fsdp_grad_norm(run->model, type, &norm);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    return norm;
}

static void
unscale(cli_run_t *run)
{
    if (run->scaler == NULL)
        return;
    double scale = fsdp_grad_scaler_get_scale(run->scaler);
    fsdp_status_t status =
        fsdp_grad_scaler_unscale(run->scaler, run->optimizer);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    if (run->verifier != NULL)
        fsdp_verifier_unscale(
            run->verifier, scale,
            fsdp_grad_scaler_found_inf(run->scaler, run->optimizer));
}

static void
update(cli_run_t *run, double lr)
{
    fsdp_optimizer_set_lr(run->optimizer, lr);
    if (run->scaler == NULL) {
        fsdp_optimizer_step(run->optimizer);
    } else {
        fsdp_status_t status =
            fsdp_grad_scaler_step(run->scaler, run->optimizer, NULL);
        if (status == FSDP_OK)
            status = fsdp_grad_scaler_update(run->scaler);
        FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    }
    if (run->o->strategy > 0)
        fsdp_zero_gather_parameters(run->model);
}

fsdp_status_t
cli_run_step(cli_run_t *run, cli_step_t *s)
{
    double start = fsdp_clock_seconds();
    double *mine =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)run->micros * sizeof *mine);
    fsdp_fault_set_step(s->step);
    if (run->verifier != NULL)
        fsdp_verifier_begin_step(run->verifier, s->step);
    if (run->recorder != NULL)
        fsdp_trace_recorder_begin_step(run->recorder, s->step);
    run_micro_batches(run, s->step, mine);
    s->loss = mean_loss(run, mine);
    fsdp_free(mine);
    if (run->verifier != NULL)
        fsdp_verifier_gradients(run->verifier, s->loss);
    unscale(run);
    if (run->recorder != NULL)
        fsdp_trace_recorder_gradients(run->recorder);
    s->grad_norm = take_norm(run);
    if (run->recorder != NULL)
        fsdp_trace_recorder_norm(run->recorder, s->grad_norm);
    if (run->verifier != NULL)
        fsdp_verifier_norm(run->verifier, s->grad_norm);

    s->lr = cli_run_lr(run, s->step);
    update(run, s->lr);
    if (run->verifier != NULL) {
        fsdp_verifier_update(run->verifier, s->lr);
        s->report = fsdp_verifier_end_step(run->verifier);
    }
    fsdp_status_t status = FSDP_OK;
    if (run->recorder != NULL) {
        fsdp_trace_recorder_update(run->recorder, s->lr);
        status = fsdp_trace_recorder_end_step(run->recorder);
    }
    fsdp_optimizer_zero_grad(run->optimizer);
    s->loss /= cli_task_scale(&run->task); /* as a person knows it */
    size_t per_sample = run->o->model != CLI_MLP ? (size_t)run->o->context : 1;
    s->per_second = (double)run->o->batch_size * (double)per_sample /
                    (fsdp_clock_seconds() - start);
    return status;
}
