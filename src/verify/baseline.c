/* The same training without sharding: one process, one micro-batch after
 * another. */

#include "fsdp/memory.h"
#include "verify/internal.h"

/* ---- the model ---------------------------------------------------------- */

static void
pair_parameter(fsdp_verifier_t *verifier, verified_t *param)
{
    const fsdp_parameter_t *run = param->run;
    param->base = fsdp_module_find_parameter(verifier->baseline, run->name);
    FSDP_CHECK(param->base != NULL, "the task's build() makes no parameter %s",
               run->name);
    FSDP_CHECK(param->base->dtype == run->dtype &&
                   fsdp_parameter_numel(param->base) == param->numel,
               "the task's build() makes parameter %s of another shape or type",
               run->name);
    param->base->requires_grad = run->requires_grad;
    fsdp_parameter_data(param->base);
    baseline_choose_types(verifier, param);
    baseline_prepare_sums(verifier, param);
}

/* The casts stand outside of what is recorded, as they do in the run. */
static void
pair_unit(fsdp_verifier_t *verifier, unit_t *unit)
{
    unit->base = fsdp_module_find(verifier->baseline, unit->run->name);
    FSDP_CHECK(unit->base != NULL, "the task's build() makes no module \"%s\"",
               unit->run->name);
    baseline_hook_casts(unit);
    unit->base_watch.shared_out = unit->watch.shared_out;
    unit->base_watch.recomputed = unit->watch.recomputed;
    if (verifier->options.level == FSDP_VERIFY_PHASE)
        watch_begin(&unit->base_watch, &verifier->base_recorder_now, unit->base,
                    unit->name);
}

static size_t
dp_ranks(const fsdp_verifier_t *verifier)
{
    return (size_t)verifier->shards * (size_t)verifier->replicas;
}

void
baseline_create(fsdp_verifier_t *verifier)
{
    const fsdp_task_t *task = &verifier->options.task;
    verifier->baseline = task->build(task->context);
    size_t count = dp_ranks(verifier) * (size_t)verifier->options.micro_batches;
    verifier->losses =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->losses);
    verifier->base_recorder =
        fsdp_calloc(FSDP_MEM_BASELINE,
                    dp_ranks(verifier) * sizeof *verifier->base_recorder);
    verifier->base_recorder_now = verifier->base_recorder;
    for (int p = 0; p < verifier->num_params; p++)
        pair_parameter(verifier, &verifier->param[p]);
    for (int u = 0; u < verifier->num_units; u++)
        pair_unit(verifier, &verifier->unit[u]);
    if (verifier->options.checkpoint != NULL)
        baseline_restore(verifier, verifier->options.checkpoint);
    baseline_find_destinations(verifier);
    baseline_create_scaler(verifier);
}

static void
free_parameter(const fsdp_verifier_t *verifier, verified_t *param)
{
    baseline_take_back(param);
    baseline_free_sums(verifier, param);
    fsdp_free(param->low);
    fsdp_free(param->state[0]);
    fsdp_free(param->state[1]);
    fsdp_free(param->destination);
    fsdp_free(param->destination_replica);
}

void
baseline_destroy(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++)
        free_parameter(verifier, &verifier->param[p]);
    for (size_t d = 0; d < dp_ranks(verifier); d++)
        recorder_destroy(&verifier->base_recorder[d]);
    fsdp_module_destroy(&verifier->baseline);
    fsdp_free(verifier->base_recorder);
    fsdp_free(verifier->losses);
}

/* ---- a micro-batch ------------------------------------------------------ */

void
baseline_run(fsdp_verifier_t *verifier, int j, int d)
{
    const fsdp_verify_options_t *o = &verifier->options;
    int g = fsdp_global_micro_batch(o->gradient_sync, verifier->replicas,
                                    verifier->shards, o->micro_batches, d, j);
    recorder_t *recorder = &verifier->base_recorder[d];
    recorder->on = o->level == FSDP_VERIFY_PHASE;
    verifier->base_recorder_now = recorder;
    for (int p = 0; p < verifier->num_params; p++)
        baseline_lend(&verifier->param[p]);

    fsdp_tape_options_t options =
        o->task.tape_options == NULL
            ? fsdp_tape_options_default()
            : o->task.tape_options(o->task.context, verifier->step, g);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *loss = o->task.loss(o->task.context, tape,
                                       verifier->baseline, verifier->step, g);
    verifier->losses[g] = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, baseline_scale_loss(verifier, tape, loss));
    if (verifier->after_backward != NULL)
        verifier->after_backward(verifier->after_context);
    for (int p = 0; p < verifier->num_params; p++) {
        baseline_take_gradient(verifier, &verifier->param[p], d);
        baseline_take_back(&verifier->param[p]);
    }
    recorder->on = false;
    fsdp_tape_destroy(&tape);
}
