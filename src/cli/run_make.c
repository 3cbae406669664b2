/* Making a run and unmaking it. */

#include "cli/model_folder.h"
#include "cli/replay.h"
#include "cli/run.h"

fsdp_sgd_options_t
cli_run_sgd(const cli_options_t *o)
{
    fsdp_sgd_options_t sgd = fsdp_sgd_options_default();
    sgd.lr = o->lr;
    sgd.momentum = o->momentum;
    sgd.dampening = o->dampening;
    sgd.nesterov = o->nesterov;
    sgd.weight_decay = o->weight_decay >= 0 ? o->weight_decay : 0;
    return sgd;
}

fsdp_adamw_options_t
cli_run_adamw(const cli_options_t *o)
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

/* The ranks that share this one's batch. */
static fsdp_comm_t *
tp_comm(const cli_run_t *run)
{
    int last = fsdp_mesh_ndim(run->mesh) - 1;
    return run->o->tp > 1 ? fsdp_mesh_comm(run->mesh, last) : NULL;
}

/* The run's experts may be on several ranks; those of the models that the task
 * makes later are not. */
static fsdp_module_t *
create_model(cli_run_t *run)
{
    fsdp_gpt2_config_t *gpt2 = &run->task.gpt2;
    if (run->expert_mesh != NULL) {
        int last = fsdp_mesh_ndim(run->expert_mesh) - 1;
        gpt2->expert_comm = fsdp_mesh_comm(run->expert_mesh, last);
        gpt2->expert_reduce_order = (fsdp_reduce_order_t)run->o->reduce_order;
    }
    fsdp_module_t *model = cli_task_model(&run->task);
    gpt2->expert_comm = NULL;
    return model;
}

static fsdp_status_t
make_model(cli_run_t *run)
{
    run->model = create_model(run);
    fsdp_status_t status = cli_parallelize(run->model, run->o, tp_comm(run));
    if (status == FSDP_OK)
        status = cli_shard(run->model, run->o, run->data_mesh,
                           run->expert_data_mesh, run->divide);
    if (status == FSDP_OK && run->o->init != NULL)
        status = fsdp_model_load(run->model, run->comm, run->o->init);
    return status;
}

static fsdp_status_t
make_optimizer(cli_run_t *run)
{
    const cli_options_t *o = run->o;
    fsdp_sgd_options_t sgd = cli_run_sgd(o);
    fsdp_adamw_options_t adamw = cli_run_adamw(o);
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

static fsdp_grad_scaler_options_t
scaler_options(const cli_options_t *o)
{
    fsdp_grad_scaler_options_t scaler = fsdp_grad_scaler_options_default();
    scaler.init_scale = o->loss_scale;
    scaler.growth_interval = o->loss_scale_interval;
    return scaler;
}

static fsdp_status_t
make_scaler(cli_run_t *run)
{
    fsdp_grad_scaler_options_t options = scaler_options(run->o);
    if (!run->o->grad_scaler)
        return FSDP_OK;
    run->scaler = fsdp_grad_scaler_create(&options);
    return run->scaler != NULL ? FSDP_OK : FSDP_ERR_USAGE;
}

static void
make_verifier(cli_run_t *run)
{
    const cli_options_t *o = run->o;
    if (o->verify == FSDP_VERIFY_OFF)
        return;
    fsdp_grad_scaler_options_t scaler = scaler_options(o);
    long good_steps = 0;
    if (run->scaler != NULL) { /* which may go on from a checkpoint */
        fsdp_grad_scaler_state_t state =
            fsdp_grad_scaler_get_state(run->scaler);
        scaler.init_scale = state.scale;
        good_steps = state.growth_tracker;
    }
    fsdp_verify_options_t options = {
        .level = (fsdp_verify_level_t)o->verify,
        .task = run->callbacks,
        .model = run->model,
        .optimizer = run->optimizer,
        .mesh = run->data_mesh,
        .expert_ranks = (int)o->expert_parallel,
        .reduce_order = (fsdp_reduce_order_t)o->reduce_order,
        .micro_batches = run->micros,
        .gradient_sync = (fsdp_gradient_sync_t)o->gradient_sync,
        .averaging = (fsdp_averaging_t)o->averaging,
        .divide_factor = run->divide,
        .force_sum = o->force_sum,
        .fsdp1 = cli_is_fsdp1(o),
        .mp_policy = cli_mp_policy(o),
        .grad_scaler = o->grad_scaler ? &scaler : NULL,
        .good_steps = good_steps,
        .checkpoint = run->checkpoint,
        .clip_norm = o->grad_clip,
        .adamw = o->optimizer == CLI_ADAMW,
        .sgd = cli_run_sgd(o),
        .adam = cli_run_adamw(o),
    };
    run->verifier = fsdp_verifier_create(&options);
}

/* Parameters and states with which the trace begins. */
static fsdp_status_t
begin_replay(cli_run_t *run)
{
    const trace_source_t *source = cli_replay_source(run->replay);
    fsdp_status_t status = fsdp_comm_agree(
        run->comm, trace_source_load(source, run->model, run->optimizer));
    run->first_step = source->first_step;
    if (status == FSDP_OK && run->o->strategy > 0)
        fsdp_zero_gather_parameters(run->model);
    return status;
}

double
cli_run_lr(const cli_run_t *run, long step)
{
    return run->replay != NULL && !cli_is_given(run->o, "lr")
               ? trace_source_lr(cli_replay_source(run->replay), step)
               : fsdp_schedule_lr(&run->schedule, step);
}

fsdp_status_t
cli_run_open(cli_run_t *run)
{
    const cli_options_t *o = run->o;
    fsdp_status_t status = cli_run_check(o, run->size);
    if (status == FSDP_OK)
        status = cli_task_open(&run->task, o, cli_replay_source(run->replay));
    if (status == FSDP_OK)
        status = cli_folder_open_original(o, &run->original);
    if (status == FSDP_OK)
        status = cli_run_check_save(o);
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        return status;

    run->batches = run->size / (int)o->tp;
    run->batch_rank = run->rank / (int)o->tp;
    cli_mesh_shape(o, run->batches, &run->replicas, &run->shards);
    run->micros = (int)(o->batch_size / o->micro_batch_size / run->batches);
    run->divide = cli_divide_factor(o, run->batches, run->micros);
    run->callbacks = cli_task_callbacks(&run->task);
    size_t all = (size_t)run->micros * (size_t)run->size;
    run->losses = fsdp_alloc(FSDP_MEM_OTHER, all * sizeof *run->losses);
    run->gathered = fsdp_alloc(FSDP_MEM_OTHER, all * sizeof *run->gathered);
    run->mesh = cli_make_mesh(o);
    run->data_mesh = cli_data_mesh(o, run->mesh);
    run->expert_mesh = cli_make_expert_mesh(o);
    run->expert_data_mesh = cli_expert_data_mesh(o, run->expert_mesh);
    run->comm = fsdp_comm_dup(fsdp_comm_world(), "report");
    status = make_model(run);
    if (status == FSDP_OK)
        status = make_optimizer(run);
    if (status == FSDP_OK)
        status = make_scaler(run);
    if (status == FSDP_OK)
        status = run->replay != NULL ? begin_replay(run) : cli_run_resume(run);
    if (status == FSDP_OK)
        make_verifier(run);
    fsdp_checkpoint_close(&run->checkpoint);
    if (status == FSDP_OK)
        status = cli_run_record(run);
    if (run->task.failed)
        status = FSDP_ERR_INPUT;
    return fsdp_comm_agree(fsdp_comm_world(), status);
}

void
cli_run_close(cli_run_t *run)
{
    fsdp_verifier_destroy(&run->verifier);
    fsdp_grad_scaler_destroy(&run->scaler);
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
    fsdp_comm_destroy(&run->comm);
    if (run->data_mesh != run->mesh)
        fsdp_mesh_destroy(&run->data_mesh);
    fsdp_mesh_destroy(&run->mesh);
    fsdp_weights_close(&run->original);
    fsdp_mesh_destroy(&run->expert_data_mesh);
    fsdp_mesh_destroy(&run->expert_mesh);
    fsdp_free(run->losses);
    fsdp_free(run->gathered);
    cli_task_close(&run->task);
}
