/* Its life: create, steps, end. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

/* ---- create ------------------------------------------------------------- */

static const char *
unit_name(const char *name)
{
    if (name == NULL)
        return "";
    return name[0] != '\0' ? name : "(root)";
}

static void
describe(fsdp_verifier_t *verifier, verified_t *param, fsdp_parameter_t *run)
{
    fsdp_local_t local = fsdp_parameter_local(run);
    *param = (verified_t){
        .run = run,
        .managed = run->managed != NULL,
        .unit = unit_name(fsdp_parameter_unit(run)),
        .dtype = run->dtype,
        .numel = fsdp_parameter_numel(run),
        .local_numel = local.numel,
        .chunk_numel = local.padded_numel,
    };
    FSDP_CHECK(run->dtype == verifier->dtype,
               "parameter %s is %s, others are %s", run->name,
               fsdp_dtype_name(run->dtype), fsdp_dtype_name(verifier->dtype));
    FSDP_CHECK(param->managed || verifier->size == 1,
               "parameter %s is not sharded: call fully_shard on the root "
               "before the verification is made",
               run->name);
}

static void
list_parameters(fsdp_verifier_t *verifier)
{
    fsdp_module_t *model = verifier->options.model;
    size_t count = fsdp_module_parameters(model, NULL, 0);
    fsdp_parameter_t **list =
        fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    FSDP_CHECK(count > 0, "the model has no parameter");
    verifier->dtype = list[0]->dtype;
    FSDP_CHECK(verifier->dtype == FSDP_FP32 || verifier->dtype == FSDP_FP64,
               "parameters of type %s", fsdp_dtype_name(verifier->dtype));
    verifier->param =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->param);
    verifier->num_params = (int)count;
    for (size_t p = 0; p < count; p++)
        describe(verifier, &verifier->param[p], list[p]);
    fsdp_free(list);
}

static void
watch_units(fsdp_verifier_t *verifier)
{
    fsdp_module_t *model = verifier->options.model;
    size_t count = fsdp_module_modules(model, NULL, 0);
    fsdp_module_t **list = fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_modules(model, list, count);
    verifier->watch =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->watch);
    verifier->recorder_now = &verifier->recorder;
    for (size_t i = 0; i < count; i++)
        if (list[i]->fsdp_state != NULL)
            watch_begin(&verifier->watch[verifier->num_watches++],
                        &verifier->recorder_now, list[i],
                        unit_name(list[i]->name));
    fsdp_free(list);
    fsdp_observer_t observer = {
        .context = verifier,
        .gathered = verifier_on_gathered,
        .reduced = verifier_on_reduced,
    };
    fsdp_set_observer(&observer);
}

/* What differs before the first step is told as step 0, and counted with the
 * first, so that the total is the sum of the steps. */
static void
compare_initial(fsdp_verifier_t *verifier)
{
    verifier_compare_parameters(verifier, "initial parameter");
    verifier_settle(verifier);
}

fsdp_verifier_t *
fsdp_verifier_create(const fsdp_verify_options_t *options)
{
    FSDP_CHECK(options->micro_batches >= 1, "%d micro-batches",
               options->micro_batches);
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    fsdp_verifier_t *verifier =
        fsdp_calloc(FSDP_MEM_BASELINE, sizeof *verifier);
    verifier->options = *options;
    if (options->level != FSDP_VERIFY_OFF) {
        verifier->comm =
            fsdp_comm_dup(fsdp_mesh_shard_comm(options->mesh), "verify");
        verifier->rank = fsdp_comm_rank(verifier->comm);
        verifier->size = fsdp_comm_size(verifier->comm);
        list_parameters(verifier);
        if (options->level == FSDP_VERIFY_PHASE)
            watch_units(verifier);
        if (verifier->rank == 0)
            baseline_create(verifier);
        compare_initial(verifier);
    }
    fsdp_memory_override(former);
    return verifier;
}

void
fsdp_verifier_destroy(fsdp_verifier_t **verifier)
{
    fsdp_verifier_t *v = *verifier;
    if (v == NULL)
        return;
    if (v->options.level == FSDP_VERIFY_PHASE)
        fsdp_set_observer(NULL);
    for (int i = 0; i < v->num_watches; i++)
        watch_end(&v->watch[i]);
    recorder_destroy(&v->recorder);
    if (v->baseline != NULL)
        baseline_destroy(v);
    if (v->comm != NULL)
        fsdp_comm_destroy(&v->comm);
    fsdp_free(v->watch);
    fsdp_free(v->param);
    fsdp_free(v);
    *verifier = NULL;
}

/* ---- steps -------------------------------------------------------------- */

void
fsdp_verifier_begin_step(fsdp_verifier_t *verifier, long step)
{
    if (verifier->step != 0)
        verifier->of_step = (fsdp_verify_report_t){0};
    verifier->step = step;
    verifier->micro = 0;
    recorder_clear(&verifier->recorder);
    verifier->recorder.on = verifier->options.level == FSDP_VERIFY_PHASE;
}

/* Rank 0 knows; all get the same bytes. */
fsdp_verify_report_t
fsdp_verifier_end_step(fsdp_verifier_t *verifier)
{
    fsdp_verify_report_t *step = &verifier->of_step, *all = &verifier->total;
    verifier->recorder.on = false;
    if (verifier->options.level == FSDP_VERIFY_OFF)
        return *step;
    all->compared += step->compared;
    all->differing += step->differing;
    if (step->bound_ratio > all->bound_ratio)
        all->bound_ratio = step->bound_ratio;
    if (step->largest_difference > all->largest_difference)
        all->largest_difference = step->largest_difference;
    step->first = all->first;
    fsdp_verify_report_t both[2] = {*step, *all};
    fsdp_broadcast(verifier->comm, "report", FSDP_UINT8, both, sizeof both, 0);
    verifier->of_step = both[0];
    verifier->total = both[1];
    return verifier->of_step;
}

fsdp_verify_report_t
fsdp_verifier_total(const fsdp_verifier_t *verifier)
{
    return verifier->total;
}
