#include <libgen.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/report.h"

/* Everything that one run of `fsdp train` holds. */
typedef struct run {
    const cli_options_t *o;
    cli_task_t task;
    fsdp_task_t callbacks;
    fsdp_mesh_t *mesh;
    fsdp_comm_t *comm; /* all ranks, for what is not the run's own traffic */
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
    fsdp_verifier_t *verifier; /* NULL: not verifying */
    fsdp_schedule_t schedule;
    int rank, size;
    int micros;       /* micro-batches of this rank in a step, m */
    double *losses;   /* [W m] of one step, by global micro-batch */
    double *gathered; /* [W][m], as they come */
} run_t;

/* ---- before anything is made -------------------------------------------- */

static fsdp_status_t
check_batch(const cli_options_t *o, int size)
{
    long total = o->batch_size / o->micro_batch_size;
    if (o->batch_size % o->micro_batch_size != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--micro-batch-size %ld does not divide --batch-size "
                          "%ld; give --batch-size %ld",
                          o->micro_batch_size, o->batch_size,
                          (total + 1) * o->micro_batch_size);
    if (total < size)
        return fsdp_error(FSDP_ERR_USAGE,
                          "%d ranks, but only %ld micro-batches a step: use "
                          "%ld ranks, or --batch-size %ld",
                          size, total, total, o->micro_batch_size * size);
    if (total % size != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "%ld micro-batches cannot be dealt evenly to %d "
                          "ranks: use --batch-size %ld or %ld",
                          total, size,
                          o->micro_batch_size * (total - total % size),
                          o->micro_batch_size * (total - total % size + size));
    return FSDP_OK;
}

static fsdp_status_t
check_save(const char *path)
{
    if (path == NULL || !cli_speaks())
        return FSDP_OK;
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISDIR(kind.st_mode))
        return fsdp_error(FSDP_ERR_IO,
                          "--save %s: this is a folder; give the name of a "
                          "file",
                          path);
    char *copy = fsdp_strdup(path);
    bool writable = access(dirname(copy), W_OK) == 0;
    fsdp_free(copy);
    if (!writable)
        return fsdp_error(FSDP_ERR_IO,
                          "--save %s: its folder is missing or not writable; "
                          "make it or choose another",
                          path);
    return FSDP_OK;
}

static fsdp_status_t
check_options(const cli_options_t *o, int size)
{
    if (o->optimizer == CLI_SGD && o->nesterov && o->momentum == 0)
        return fsdp_error(FSDP_ERR_USAGE, "--nesterov needs --momentum");
    if (o->warmup_steps > o->steps)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--warmup-steps %ld is more than --steps %ld; give "
                          "fewer",
                          o->warmup_steps, o->steps);
    if (o->min_lr > o->lr)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--min-lr %g is above --lr %g; give a smaller one",
                          o->min_lr, o->lr);
    if (o->inject != NULL) {
        fsdp_status_t status = fsdp_fault_choose(o->inject);
        if (status != FSDP_OK)
            return status;
    }
    return check_batch(o, size);
}

static void
choose_ledger(const cli_options_t *o)
{
    fsdp_ledger_mode_t mode =
        o->verify != FSDP_VERIFY_OFF ? FSDP_LEDGER_CHECK : FSDP_LEDGER_RECORD;
    if (o->ledger > 0)
        mode = (fsdp_ledger_mode_t)(o->ledger - 1);
    fsdp_ledger_set_mode(mode);
}

/* ---- making the run ----------------------------------------------------- */

static fsdp_sgd_options_t
sgd_options(const cli_options_t *o)
{
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.lr = o->lr;
    sgd.momentum = o->momentum;
    sgd.nesterov = o->nesterov;
    sgd.weight_decay = o->weight_decay >= 0 ? o->weight_decay : 0;
    return sgd;
}

static fsdp_adamw_options_t
adamw_options(const cli_options_t *o)
{
    fsdp_adamw_options_t adamw = fsdp_adamw_options_default();
    adamw.lr = o->lr;
    adamw.beta1 = o->beta1;
    adamw.beta2 = o->beta2;
    adamw.eps = o->eps;
    if (o->weight_decay >= 0)
        adamw.weight_decay = o->weight_decay;
    return adamw;
}

static fsdp_status_t
make_model(run_t *run)
{
    static const int reshard[] = {FSDP_RESHARD_AUTO, FSDP_RESHARD_TRUE,
                                  FSDP_RESHARD_FALSE};
    fsdp_options_t options = fsdp_options_default();
    options.mesh = run->mesh;
    options.reshard_after_forward = reshard[run->o->reshard];
    options.reduce_order = (fsdp_reduce_order_t)run->o->reduce_order;
    run->model = cli_task_model(&run->task);
    fsdp_status_t status =
        cli_shard(run->model, &options, (double)run->micros * run->size);
    if (status == FSDP_OK && run->o->init != NULL)
        status = fsdp_model_load(run->model, run->comm, run->o->init);
    return status;
}

static fsdp_status_t
make_optimizer(run_t *run)
{
    const cli_options_t *o = run->o;
    fsdp_sgd_options_t sgd = sgd_options(o);
    fsdp_adamw_options_t adamw = adamw_options(o);
    run->optimizer = o->optimizer == CLI_SGD
                         ? fsdp_sgd_create(run->model, &sgd)
                         : fsdp_adamw_create(run->model, &adamw);
    if (run->optimizer == NULL)
        return FSDP_ERR_USAGE;
    run->schedule = (fsdp_schedule_t){
        .lr = o->lr,
        .min_lr = o->min_lr >= 0 ? o->min_lr : o->lr,
        .warmup_steps = o->warmup_steps,
        .total_steps = o->steps,
    };
    return FSDP_OK;
}

static void
make_verifier(run_t *run)
{
    const cli_options_t *o = run->o;
    if (o->verify == FSDP_VERIFY_OFF)
        return;
    fsdp_verify_options_t options = {
        .level = (fsdp_verify_level_t)o->verify,
        .task = run->callbacks,
        .model = run->model,
        .optimizer = run->optimizer,
        .mesh = run->mesh,
        .reduce_order = (fsdp_reduce_order_t)o->reduce_order,
        .micro_batches = run->micros,
        .divide_factor = (double)run->micros * run->size,
        .clip_norm = o->grad_clip,
        .adamw = o->optimizer == CLI_ADAMW,
        .sgd = sgd_options(o),
        .adam = adamw_options(o),
    };
    run->verifier = fsdp_verifier_create(&options);
}

static fsdp_status_t
open_run(run_t *run)
{
    const cli_options_t *o = run->o;
    fsdp_status_t status = check_options(o, run->size);
    if (status == FSDP_OK)
        status = cli_task_open(&run->task, o);
    if (status == FSDP_OK)
        status = check_save(o->save);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        return status;

    run->micros = (int)(o->batch_size / o->micro_batch_size / run->size);
    run->callbacks = cli_task_callbacks(&run->task);
    size_t all = (size_t)run->micros * (size_t)run->size;
    run->losses = fsdp_alloc(FSDP_MEM_OTHER, all * sizeof *run->losses);
    run->gathered = fsdp_alloc(FSDP_MEM_OTHER, all * sizeof *run->gathered);
    run->mesh = fsdp_mesh_create_1d();
    run->comm = fsdp_comm_dup(fsdp_comm_world(), "report");
    status = make_model(run);
    if (status == FSDP_OK)
        status = make_optimizer(run);
    if (status == FSDP_OK)
        make_verifier(run);
    if (run->task.failed)
        status = FSDP_ERR_INPUT;
    return fsdp_comm_agree(fsdp_comm_world(), status);
}

static void
close_run(run_t *run)
{
    fsdp_verifier_destroy(&run->verifier);
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
    fsdp_comm_destroy(&run->comm);
    fsdp_mesh_destroy(&run->mesh);
    fsdp_free(run->losses);
    fsdp_free(run->gathered);
    cli_task_close(&run->task);
}

/* ---- one step ----------------------------------------------------------- */

/* The rank's j-th micro-batch of the step; with half-batch two ranks read one. */
static int
micro_batch_of(const run_t *run, int j)
{
    int rank = run->rank;
    if (rank == 1 && fsdp_fault(FSDP_FAULT_HALF_BATCH))
        rank = 0;
    return j * run->size + rank;
}

static double
forward_backward(run_t *run, long step, int j)
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
mean_loss(run_t *run, const double *mine)
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
take_norm(run_t *run)
{
    double norm = 0;
    fsdp_status_t status =
        run->o->grad_clip > 0
            ? fsdp_clip_grad_norm(run->model, run->o->grad_clip, &norm)
            : fsdp_grad_norm(run->model, 2.0, &norm);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    return norm;
}

static fsdp_status_t
train_step(run_t *run, cli_step_t *s)
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
    return FSDP_OK;
}

/* ---- held-out data ------------------------------------------------------ */

/* Micro-batches are dealt out like those of training; a rank without one runs
 * an earlier one along, for its collectives, and reports nothing. */
static cli_held_out_t
evaluate(run_t *run)
{
    long count = cli_task_held_out_count(&run->task);
    long rounds = (count + run->size - 1) / run->size;
    cli_held_out_t sum = {0},
                   *all = fsdp_alloc(FSDP_MEM_OTHER,
                                     (size_t)run->size * sizeof *all);
    for (long j = 0; j < rounds; j++) {
        long index = j * run->size + run->rank;
        bool counts = index < count;
        cli_held_out_t mine =
            cli_task_held_out(&run->task, run->model, counts ? index : 0);
        if (!counts)
            mine = (cli_held_out_t){0};
        fsdp_all_gather(run->comm, "held out", FSDP_FP64, &mine, all,
                        sizeof mine / sizeof(double));
        for (int r = 0; r < run->size; r++) {
            sum.loss += all[r].loss * all[r].rows;
            sum.correct += all[r].correct;
            sum.rows += all[r].rows;
        }
    }
    fsdp_free(all);
    sum.loss /= sum.rows;
    sum.correct =
        run->o->model == CLI_MLP ? sum.correct / sum.rows : (double)NAN;
    return sum;
}

/* ---- the whole ---------------------------------------------------------- */

static const char *const model_name[] = {
    [CLI_GPT2] = "gpt2", [CLI_LLAMA] = "llama", [CLI_MLP] = "mlp"};

static void
say_what_begins(const run_t *run)
{
    const cli_options_t *o = run->o;
    if (!cli_speaks())
        return;
    printf("fsdp: %s of %zu parameters, %s, on %d rank%s of %d thread%s; "
           "%ld step%s of %ld x %d x %ld %s\n",
           model_name[o->model],
           fsdp_module_num_elements(run->model),
           fsdp_dtype_name(run->task.dtype), run->size,
           run->size > 1 ? "s" : "", fsdp_get_num_threads(),
           fsdp_get_num_threads() > 1 ? "s" : "", o->steps,
           o->steps > 1 ? "s" : "", (long)run->size, run->micros,
           o->micro_batch_size, o->model != CLI_MLP ? "sequences" : "rows");
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE)
        printf("fsdp: injected fault: %s\n",
               fsdp_fault_text(fsdp_fault_chosen()));
    fflush(stdout);
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE && o->verify == FSDP_VERIFY_OFF)
        fprintf(stderr, "fsdp: warning: a fault is injected and nothing "
                        "looks for it; add --verify step\n");
}

static void
summarise(run_t *run, cli_held_out_t held_out)
{
    int64_t mine[FSDP_MEM_COUNT];
    for (int c = 0; c < FSDP_MEM_COUNT; c++)
        mine[c] = (int64_t)fsdp_memory_peak_bytes((fsdp_memory_category_t)c);
    int64_t *peaks =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)run->size * sizeof mine);
    fsdp_all_gather(run->comm, "peak bytes", FSDP_INT64, mine, peaks,
                    FSDP_MEM_COUNT);
    cli_summary_t summary = {
        .steps = run->o->steps,
        .held_out_loss = held_out.loss,
        .accuracy = held_out.correct,
        .unigram_entropy = fsdp_dataset_unigram_entropy(run->task.data),
        .verifying = run->verifier != NULL,
        .comm = fsdp_mesh_shard_comm(run->mesh),
        .peaks = peaks,
    };
    if (run->verifier != NULL)
        summary.total = fsdp_verifier_total(run->verifier);
    cli_report_summary(&summary);
    fsdp_free(peaks);
}

/* Some cannot show: two terms have the same sum in any order, one rank has
 * nobody to differ from. */
static void
say_if_fault_hid(void)
{
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE && cli_speaks())
        fprintf(stderr,
                "fsdp: warning: the injected fault changed no value here; "
                "use more ranks, more micro-batches or a step of the run\n");
}

static fsdp_status_t
train_all(run_t *run)
{
    const cli_options_t *o = run->o;
    cli_held_out_t held_out = {0};
    bool wrong = false;
    say_what_begins(run);
    for (long step = 1; step <= o->steps; step++) {
        cli_step_t s = {.step = step,
                        .steps = o->steps,
                        .verifying = run->verifier != NULL};
        train_step(run, &s);
        cli_report_step(&s, o->model != CLI_MLP ? "tok" : "rows");
        wrong |= s.report.differing > 0;
        if (!isfinite(s.loss) && !wrong)
            return fsdp_error(FSDP_ERR_FAULT,
                              "step %ld: the loss is %g; lower --lr, or give "
                              "--grad-clip or --warmup-steps",
                              step, s.loss);
        bool last = step == o->steps;
        if (last || (o->eval_every > 0 && step % o->eval_every == 0)) {
            held_out = evaluate(run);
            if (!last)
                cli_report_held_out(step, held_out.loss, held_out.correct);
        }
    }
    summarise(run, held_out);
    if (run->verifier != NULL && !wrong)
        say_if_fault_hid();
    return wrong ? FSDP_ERR_VERIFY : FSDP_OK;
}

static fsdp_status_t
save(run_t *run)
{
    if (run->o->save == NULL)
        return FSDP_OK;
    cli_metadata_t metadata;
    cli_task_metadata(&run->task, &metadata);
    return fsdp_model_save(run->model, run->comm, run->o->save,
                           (const char *const(*)[2])metadata.pair,
                           metadata.count);
}

fsdp_status_t
cli_train(const cli_options_t *options)
{
    run_t run = {.o = options,
                 .rank = fsdp_comm_rank(fsdp_comm_world()),
                 .size = fsdp_comm_size(fsdp_comm_world())};
    cli_choose_threads(options->threads);
    choose_ledger(options);
    fsdp_status_t status = cli_report_open(options->log_file);
    if (status == FSDP_OK)
        status = open_run(&run);
    if (status == FSDP_OK)
        status = train_all(&run);
    if (status == FSDP_OK || status == FSDP_ERR_VERIFY) {
        fsdp_status_t saved = save(&run);
        status = saved != FSDP_OK ? saved : status;
    }
    close_run(&run);
    fsdp_status_t closed = cli_report_close();
    return status == FSDP_OK ? closed : status;
}
