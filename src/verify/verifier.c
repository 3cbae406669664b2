/* Its life: create, steps, end. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- create ------------------------------------------------------------- */

static const char *
unit_name(const char *name)
{
    if (name == NULL)
        return "";
    return name[0] != '\0' ? name : "(root)";
}

static int
expert_ranks(const fsdp_verifier_t *verifier)
{
    int ranks = verifier->options.expert_ranks;
    return ranks > 1 ? ranks : 1;
}

static void
describe(fsdp_verifier_t *verifier, verified_t *param, fsdp_parameter_t *run)
{
    fsdp_local_t local = fsdp_parameter_local(run);
    *param = (verified_t){
        .run = run,
        .unit = unit_name(fsdp_parameter_unit(run)),
        .dtype = run->dtype,
        .numel = fsdp_layout_whole_numel(&local.layout),
        .neighbours = run->num_parts > 1 ? expert_ranks(verifier) : 1,
    };
    param->shards = verifier->shards / param->neighbours;
    FSDP_CHECK(run->dtype == verifier->dtype,
               "parameter %s is %s, others are %s", run->name,
               fsdp_dtype_name(run->dtype), fsdp_dtype_name(verifier->dtype));
    FSDP_CHECK(run->managed != NULL || verifier->size == 1,
               "parameter %s is not sharded: call fully_shard on the root "
               "before the verification is made",
               run->name);
    verifier_learn_layout(verifier, param);
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
    FSDP_CHECK(value_is_floating(verifier->dtype), "parameters of type %s",
               fsdp_dtype_name(verifier->dtype));
    verifier->param =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->param);
    verifier->num_params = (int)count;
    for (size_t p = 0; p < count; p++)
        describe(verifier, &verifier->param[p], list[p]);
    fsdp_free(list);
}

static void
list_units(fsdp_verifier_t *verifier)
{
    fsdp_module_t *model = verifier->options.model;
    size_t count = fsdp_module_modules(model, NULL, 0);
    fsdp_module_t **list = fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_modules(model, list, count);
    verifier->unit =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->unit);
    for (size_t i = 0; i < count; i++)
        if (list[i]->fsdp_state != NULL || fsdp1_is_wrapped(list[i]))
            verifier->unit[verifier->num_units++] =
                (unit_t){.run = list[i],
                         .is_root = list[i] == model,
                         .name = unit_name(list[i]->name),
                         .verifier = verifier};
    fsdp_free(list);
}

/* Has it experts who live on several ranks?  Their rows are then those of all of
 * these ranks. */
static bool
shares_out(const fsdp_verifier_t *verifier, const unit_t *unit)
{
    for (int p = 0; p < unit->run->num_parameters; p++)
        if (unit->run->parameter[p]->num_parts > 1 &&
            expert_ranks(verifier) > 1)
            return true;
    return false;
}

/* Is it part of a module that the backward runs again? */
static bool
is_recomputed(const fsdp_verifier_t *verifier, const fsdp_module_t *module)
{
    fsdp_module_t *model = verifier->options.model;
    size_t count = fsdp_module_modules(model, NULL, 0);
    fsdp_module_t **list = fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    bool found = false;
    fsdp_module_modules(model, list, count);
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(list[i]->name);
        found |= list[i]->recomputed != NULL && list[i] != module &&
                 strncmp(list[i]->name, module->name, n) == 0 &&
                 (n == 0 || module->name[n] == '.');
    }
    fsdp_free(list);
    return found;
}

static void
watch_units(fsdp_verifier_t *verifier)
{
    fsdp_observer_t observer = {
        .context = verifier,
        .gathered = verifier_on_gathered,
        .reduced = verifier_on_reduced,
    };
    verifier->recorder_now = &verifier->recorder;
    for (int u = 0; u < verifier->num_units; u++) {
        unit_t *unit = &verifier->unit[u];
        unit->watch.shared_out = shares_out(verifier, unit);
        unit->watch.recomputed = is_recomputed(verifier, unit->run);
        watch_begin(&unit->watch, &verifier->recorder_now, unit->run,
                    unit->name);
    }
    fsdp_add_observer(&observer);
}

/* Which ranks there are, and which share their micro-batches. */
static void
list_ranks(fsdp_verifier_t *verifier)
{
    const fsdp_mesh_t *mesh = verifier->options.mesh;
    int last = fsdp_mesh_ndim(mesh) - 1;
    verifier->shards = fsdp_mesh_size(mesh, last);
    verifier->replicas = last > 0 ? fsdp_mesh_size(mesh, 0) : 1;
    int32_t mine = fsdp_mesh_coordinate(mesh, last);
    if (last > 0)
        mine += fsdp_mesh_coordinate(mesh, 0) * verifier->shards;
    verifier->comm = fsdp_comm_dup(fsdp_comm_world(), "verify");
    verifier->rank = fsdp_comm_rank(verifier->comm);
    verifier->size = fsdp_comm_size(verifier->comm);
    verifier->dp_rank = fsdp_alloc(
        FSDP_MEM_BASELINE, (size_t)verifier->size * sizeof *verifier->dp_rank);
    fsdp_all_gather(verifier->comm, "data-parallel ranks", FSDP_INT32, &mine,
                    verifier->dp_rank, 1);
}

/* What differs before the first step is told as step 0, and counted with the
 * first, so that the total is the sum of the steps. */
static void
compare_initial(fsdp_verifier_t *verifier)
{
    verifier_compare_parameters(verifier, "initial parameter");
    if (verifier->options.checkpoint != NULL)
        verifier_compare_states(verifier);
    verifier->options.checkpoint = NULL; /* ours no longer */
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
    if (options->fsdp1)
        verifier->options.averaging = FSDP_PRE_POST;
    if (options->level != FSDP_VERIFY_OFF) {
        list_ranks(verifier);
        list_parameters(verifier);
        list_units(verifier);
        if (options->level == FSDP_VERIFY_PHASE)
            watch_units(verifier);
        if (verifier->rank == 0)
            baseline_create(verifier);
        compare_initial(verifier);
    }
    fsdp_memory_override(former);
    return verifier;
}

static void
stop_watching(fsdp_verifier_t *verifier)
{
    fsdp_remove_observer(verifier);
    for (int u = 0; u < verifier->num_units; u++)
        watch_end(&verifier->unit[u].watch);
}

void
fsdp_verifier_destroy(fsdp_verifier_t **verifier)
{
    fsdp_verifier_t *v = *verifier;
    if (v == NULL)
        return;
    if (v->options.level == FSDP_VERIFY_PHASE)
        stop_watching(v);
    recorder_destroy(&v->recorder);
    if (v->baseline != NULL)
        baseline_destroy(v);
    if (v->comm != NULL)
        fsdp_comm_destroy(&v->comm);
    for (int p = 0; p < v->num_params; p++) {
        fsdp_free(v->param[p].layout);
        fsdp_free(v->param[p].first);
        fsdp_free(v->param[p].padded_numel);
    }
    fsdp_free(v->unit);
    fsdp_free(v->param);
    fsdp_free(v->dp_rank);
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
    if (verifier->baseline != NULL)
        baseline_refresh(verifier);
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
