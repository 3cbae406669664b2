/* What is compared when: the calls of a training loop. */

#include "fsdp/memory.h"
#include "verify/internal.h"

static bool
off(const fsdp_verifier_t *verifier)
{
    return verifier->options.level == FSDP_VERIFY_OFF;
}

/* ---- micro-batches ------------------------------------------------------ */

/* The others wait for one micro-batch at a time, lest the watchdog bites. */
static void
run_baseline(fsdp_verifier_t *verifier, int j)
{
    for (int d = 0; d < verifier->replicas * verifier->shards; d++) {
        if (verifier->rank == 0)
            baseline_run(verifier, j, d);
        fsdp_barrier(verifier->comm, "baseline");
    }
    if (verifier->rank == 0)
        baseline_reduce(verifier, j);
}

/* A loss is made right after the last output of a unit. */
static void
compare_losses(fsdp_verifier_t *verifier, int j, double loss)
{
    double *all = verifier_gather_value(verifier, "loss", loss);
    for (int r = 0; all != NULL && r < verifier->size; r++) {
        int g = verifier_micro(verifier, r, j);
        place_t place = {
            .phase = "loss",
            .micro = g,
            .rank = r,
            .ulp_dtype = verifier->dtype,
            .key = 2 * verifier->recorder.last_output + 1,
        };
        verifier_compare(verifier, &place, FSDP_FP64, &all[r],
                         &verifier->losses[g], 1);
    }
    fsdp_free(all);
}

void
fsdp_verifier_micro_batch(fsdp_verifier_t *verifier, int j, double loss)
{
    if (off(verifier))
        return;
    FSDP_CHECK(j == verifier->micro, "micro-batch %d after %d", j,
               verifier->micro);
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    run_baseline(verifier, j);
    if (verifier->options.level == FSDP_VERIFY_PHASE)
        verifier_compare_records(verifier);
    compare_losses(verifier, j, loss);
    verifier_settle(verifier);
    recorder_clear(&verifier->recorder);
    if (verifier->rank == 0) {
        for (int d = 0; d < verifier->replicas * verifier->shards; d++)
            recorder_clear(&verifier->base_recorder[d]);
        baseline_end_micro_batch(verifier);
    }
    verifier->micro++;
    fsdp_memory_override(former);
}

/* ---- gradients ---------------------------------------------------------- */

static void *
grad_of(fsdp_verifier_t *verifier, verified_t *param, int i)
{
    (void)verifier, (void)i;
    return fsdp_parameter_local(param->run).grad;
}

/* The order `mpi`: gradients agree within the bound, and from here on the
 * baseline takes the run's, so that all the rest is equal to the bit. */
static void
compare_gradient(fsdp_verifier_t *verifier, verified_t *param,
                 const char *phase, const void *all, bool in_bound)
{
    double *bound = in_bound ? baseline_bound(verifier, param, true) : NULL;
    place_t place = {
        .phase = phase,
        .unit = param->unit,
        .name = param->run->name,
        .micro = -1,
        .bound = bound,
    };
    if (all != NULL || param->grad != NULL)
        verifier_compare_parts(verifier, param, &place, all, param->grad);
    if (bound != NULL && all != NULL && param->grad != NULL) {
        void *whole = verifier_put_together(verifier, param, all);
        baseline_adopt(param, whole);
        fsdp_free(whole);
    }
    fsdp_free(bound);
}

static void
compare_gradients(fsdp_verifier_t *verifier, const char *phase, bool in_bound)
{
    bool *some = verifier_some_rank_has(verifier, grad_of, 0);
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        void *all = NULL;
        if (some[p])
            all = verifier_gather_parts(verifier, param,
                                        grad_of(verifier, param, 0));
        if (verifier->rank == 0)
            compare_gradient(verifier, param, phase, all, in_bound);
        fsdp_free(all);
    }
    fsdp_free(some);
}

void
fsdp_verifier_gradients(fsdp_verifier_t *verifier, double loss)
{
    if (off(verifier))
        return;
    int micros = verifier->options.micro_batches;
    int count = verifier->replicas * verifier->shards * micros;
    FSDP_CHECK(verifier->micro == micros, "%d micro-batches of %d",
               verifier->micro, micros);
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    verifier->recorder.on = false;
    double mean = 0;
    if (verifier->rank == 0) {
        baseline_gradients(verifier);
        mean = fsdp_mean_loss(verifier->losses, count, verifier->dtype,
                              verifier->options.reduce_order);
    }
    verifier_compare_replicas(verifier, "loss", loss, mean);
    compare_gradients(verifier, "gradient", true);
    if (verifier->rank == 0)
        baseline_end_step(verifier);
    verifier_settle(verifier);
    fsdp_memory_override(former);
}

void
fsdp_verifier_unscale(fsdp_verifier_t *verifier, double scale, bool found_inf)
{
    if (off(verifier))
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    bool expected = verifier->rank == 0 && baseline_unscale(verifier);
    verifier_compare_replicas(verifier, "loss scale", scale,
                              verifier->scaler.scale);
    verifier_compare_replicas(verifier, "found infinity", found_inf, expected);
    compare_gradients(verifier, "unscaled gradient", false);
    verifier_settle(verifier);
    fsdp_memory_override(former);
}

void
fsdp_verifier_norm(fsdp_verifier_t *verifier, double norm)
{
    if (off(verifier))
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    bool clips = verifier->options.clip_norm > 0;
    double expected = 0;
    if (verifier->rank == 0) {
        expected = baseline_norm(verifier);
        if (clips)
            baseline_clip(verifier, expected);
    }
    verifier_compare_replicas(verifier, "norm", norm, expected);
    if (clips)
        compare_gradients(verifier, "clipped gradient", false);
    verifier_settle(verifier);
    fsdp_memory_override(former);
}

/* ---- after the optimizer ------------------------------------------------ */

static void
compare_rows(fsdp_verifier_t *verifier, const verified_t *param,
             const char *phase, const void *local, const void *expected)
{
    void *all = verifier_gather_parts(verifier, param, local);
    if (verifier->rank != 0)
        return;
    place_t place = {
        .phase = phase,
        .unit = param->unit,
        .name = param->run->name,
        .micro = -1,
    };
    verifier_compare_parts(verifier, param, &place, all, expected);
    verifier_compare_padding(verifier, param, all);
    fsdp_free(all);
}

static void *
state_of(fsdp_verifier_t *verifier, verified_t *param, int i)
{
    return fsdp_optimizer_state(verifier->options.optimizer, param->run, i);
}

static void
compare_state(fsdp_verifier_t *verifier, int i, const char *name)
{
    bool *some = verifier_some_rank_has(verifier, state_of, i);
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        const void *expected = baseline_state(verifier, param, name);
        if (some[p]) {
            compare_rows(verifier, param, name, state_of(verifier, param, i),
                         expected);
        } else if (expected != NULL) {
            place_t place = {.phase = name,
                             .unit = param->unit,
                             .name = param->run->name,
                             .micro = -1};
            verifier_compare_parts(verifier, param, &place, NULL, expected);
        }
    }
    fsdp_free(some);
}

void
verifier_compare_states(fsdp_verifier_t *verifier)
{
    const fsdp_optimizer_t *optimizer = verifier->options.optimizer;
    const char *name;
    for (int i = 0; (name = fsdp_optimizer_state_name(optimizer, i)) != NULL;
         i++)
        compare_state(verifier, i, name);
}

void
verifier_compare_parameters(fsdp_verifier_t *verifier, const char *phase)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        compare_rows(verifier, param, phase,
                     fsdp_parameter_local(param->run).data,
                     param->base != NULL ? param->base->data : NULL);
    }
}

void
fsdp_verifier_update(fsdp_verifier_t *verifier, double lr)
{
    if (off(verifier))
        return;
    fsdp_memory_category_t former = fsdp_memory_override(FSDP_MEM_BASELINE);
    if (verifier->rank == 0)
        baseline_update(verifier, lr);
    verifier_compare_parameters(verifier, "parameter");
    verifier_compare_states(verifier);
    verifier_settle(verifier);
    fsdp_memory_override(former);
}
