/* One step of training. */

#include "cli/run.h"

/* The rank's j-th micro-batch of the step; with half-batch two ranks read one. */
static int
micro_batch_of(const cli_run_t *run, int j)
{
    int rank = run->rank;
    if (rank == 1 && fsdp_fault(FSDP_FAULT_HALF_BATCH))
        rank = 0;
    return j * run->size + rank;
}

static double
forward_backward(cli_run_t *run, long step, int j)
{
    int micro = micro_batch_of(run, j);
    fsdp_task_t *task = &run->callbacks;
    fsdp_tape_options_t options =
        task->tape_options(task->context, step, micro);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *loss =
        task->loss(task->context, tape, run->model, step, micro);
    fsdp_backward(tape, loss);
    double value = fsdp_tensor_get(loss, 0);
    if (run->verifier != NULL)
        fsdp_verifier_micro_batch(run->verifier, j, value);
    fsdp_tape_destroy(&tape);
    return value;
}

/* [rank][j] becomes [j * W + rank], the global micro-batch. */
static double
mean_loss(cli_run_t *run, const double *mine)
{
    int m = run->micros, size = run->size;
    fsdp_all_gather(run->comm, "losses", FSDP_FP64, mine, run->gathered,
                    (size_t)m);
    for (int r = 0; r < size; r++)
        for (int j = 0; j < m; j++)
            run->losses[j * size + r] = run->gathered[r * m + j];
    return fsdp_mean_loss(run->losses, m * size, run->task.dtype,
                          (fsdp_reduce_order_t)run->o->reduce_order);
}

static double
take_norm(cli_run_t *run)
{
    double norm = 0;
    fsdp_status_t status =
        run->o->grad_clip > 0
            ? fsdp_clip_grad_norm(run->model, run->o->grad_clip, &norm)
            : fsdp_grad_norm(run->model, 2.0, &norm);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    return norm;
}

void
cli_run_step(cli_run_t *run, cli_step_t *s)
{
    double start = fsdp_clock_seconds();
    double *mine =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)run->micros * sizeof *mine);
    fsdp_fault_set_step(s->step);
    if (run->verifier != NULL)
        fsdp_verifier_begin_step(run->verifier, s->step);
    for (int j = 0; j < run->micros; j++)
        mine[j] = forward_backward(run, s->step, j);
    s->loss = mean_loss(run, mine);
    fsdp_free(mine);
    if (run->verifier != NULL)
        fsdp_verifier_gradients(run->verifier, s->loss);
    s->grad_norm = take_norm(run);
    if (run->verifier != NULL)
        fsdp_verifier_norm(run->verifier, s->grad_norm);

    s->lr = fsdp_schedule_lr(&run->schedule, s->step);
    fsdp_optimizer_set_lr(run->optimizer, s->lr);
    fsdp_optimizer_step(run->optimizer);
    if (run->verifier != NULL) {
        fsdp_verifier_update(run->verifier, s->lr);
        s->report = fsdp_verifier_end_step(run->verifier);
    }
    fsdp_optimizer_zero_grad(run->optimizer);
    size_t per_sample = run->o->model != CLI_MLP ? (size_t)run->o->context : 1;
    s->per_second = (double)run->o->batch_size * (double)per_sample /
                    (fsdp_clock_seconds() - start);
}
