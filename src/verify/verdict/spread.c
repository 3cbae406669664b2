/* How far rounding gets: a float64 run, and perturbed ones around it.
 *
 * To first order what a correct run differs by from the exact one is the sum of
 * its roundings, each times a derivative; what a perturbed run differs by is the
 * same sum with moves in their places.  The moves are at least as large (see
 * moves_of()), so with s the root mean square of a tensor's differences over
 * elements and runs, an element of a correct run is further away than t s with
 * a probability of P(|T| > t), T Student's with the degrees of freedom that s
 * was measured with. t is such that all n elements together have 1e-12. */

#include "verify/verdict/spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/trace/replay.h"
#include "verify/value.h"

/* ---- how far to move ----------------------------------------------------------- */

/* The type that units compute in. */
static fsdp_dtype_t
compute_type(const fsdp_trace_about_t *about)
{
    if (about->has_precision && about->precision.param_dtype != FSDP_DTYPE_NONE)
        return about->precision.param_dtype;
    return about->dtype != FSDP_DTYPE_NONE ? about->dtype : FSDP_FP32;
}

/* In units of the type's roundoff.  Between two of the values that are moved lie
 * at most 16 operations one after another, which round at random, and one sum
 * of up to n terms: with partial sums that grow like a random walk its error is
 * sqrt(n) / 2 times what moving its factors does.  16-bit types are added up in
 * float32. */
static double
moves_of(const judging_t *j, const fsdp_trace_about_t *about)
{
    enum { OPERATIONS = 16 };
    double u = value_roundoff(compute_type(about));
    double sums = fmin(u, value_roundoff(FSDP_FP32)) / u;
    return sqrt(OPERATIONS + verdict_longest_sum(j) * sums * sums);
}

/* ---- what a run shows ------------------------------------------------------------ */

static int
by_record(const void *a, const void *b)
{
    const spread_tensor_t *x = a, *y = b;
    return (x->record > y->record) - (x->record < y->record);
}

static spread_tensor_t *
find(const spread_t *spread, const fsdp_replay_value_t *value)
{
    spread_tensor_t key = {.record = fsdp_trace_find(spread->trace, value->step,
                                                     value->phase, value->micro,
                                                     value->name)};
    if (key.record == NULL || key.record->numel != value->numel ||
        !value_is_floating(value->dtype))
        return NULL;
    return bsearch(&key, spread->tensor, spread->count, sizeof key, by_record);
}

static void
show_centre(spread_tensor_t *t, const fsdp_replay_value_t *value, int runs)
{
    if (t->centre == NULL) {
        size_t bytes = value->numel * sizeof(double);
        t->centre = fsdp_alloc(FSDP_MEM_OTHER, bytes);
        t->square = fsdp_calloc(FSDP_MEM_OTHER, bytes);
        t->of_run = fsdp_calloc(FSDP_MEM_OTHER, (size_t)runs * sizeof(double));
    }
    for (uint64_t i = 0; i < value->numel; i++)
        t->centre[i] = value_get(value->dtype, value->data, i);
}

static void
keep_loss(spread_t *spread, const fsdp_replay_value_t *value)
{
    size_t n = spread->num_losses;
    if ((n & (n - 1)) == 0) { /* full: 0, 1, 2, 4, 8 ... */
        size_t room = n > 0 ? 2 * n : 1;
        spread_loss_t *list = fsdp_alloc(FSDP_MEM_OTHER, room * sizeof *list);
        if (n > 0)
            memcpy(list, spread->loss, n * sizeof *list);
        fsdp_free(spread->loss);
        spread->loss = list;
    }
    spread->loss[spread->num_losses++] = (spread_loss_t){
        value->step, value->micro, value_get(value->dtype, value->data, 0)};
}

static void
show(void *context, const fsdp_replay_value_t *value)
{
    spread_t *spread = context;
    spread_tensor_t *t = find(spread, value);
    if (spread->run == 0 && value->phase == FSDP_TRACE_LOSS)
        keep_loss(spread, value);
    if (t == NULL)
        return;
    if (spread->run == 0) {
        show_centre(t, value, spread->j->options.runs);
        return;
    }
    double sum = 0;
    for (uint64_t i = 0; t->centre != NULL && i < value->numel; i++) {
        double d = value_get(value->dtype, value->data, i) - t->centre[i];
        t->square[i] += d * d;
        sum += d * d;
    }
    if (t->of_run != NULL)
        t->of_run[spread->run - 1] = sum;
}

/* ---- what follows ------------------------------------------------------------------ */

/* Satterthwaite: sums of squares over a tensor whose mean is q and variance v
 * have 2 q^2 / v degrees of freedom each. */
static double
freedom_of(const double *of_run, int runs)
{
    double q = 0, v = 0;
    for (int r = 0; r < runs; r++)
        q += of_run[r] / runs;
    for (int r = 0; r < runs; r++)
        v += (of_run[r] - q) * (of_run[r] - q) / (runs - 1);
    double each = v > 0 ? 2 * q * q / v : 1;
    return runs * fmin(fmax(each, 1), 1000);
}

/* The gradient of a cross entropy, p - 1 at the target, is rounded relative to p,
 * not to itself, which moving the logits does not do where p is nearly 1: then
 * all gradients are as wrong as 1 / (1 - p), relative to themselves, and the
 * loss by roundings of 1. */
static double
floor_of(const spread_t *spread, const spread_tensor_t *t, double rms)
{
    const fsdp_trace_about_t *about = fsdp_trace_about(spread->trace);
    const record_t *r = t->record;
    double u = 4 * value_roundoff(compute_type(about)), loss = INFINITY;
    if (about->loss == NULL || strcmp(about->loss, "cross_entropy") != 0 ||
        r->phase < FSDP_TRACE_LOSS)
        return 0;
    if (r->phase == FSDP_TRACE_LOSS)
        return u;
    for (size_t i = 0; i < spread->num_losses; i++)
        if (spread->loss[i].step == r->step &&
            (spread->loss[i].micro == r->micro || r->micro < 0))
            loss = fmin(loss, spread->loss[i].loss);
    return u * rms / -expm1(-loss);
}

static double
rms_of(const double *x, uint64_t numel)
{
    double sum = 0;
    for (uint64_t i = 0; i < numel; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)numel);
}

/* An element may be more sensitive than the others, so its own root mean square
 * counts where it is larger; and its last rounding is relative to it. */
static void
bound_tensor(const spread_t *spread, spread_tensor_t *t)
{
    int runs = spread->j->options.runs;
    const record_t *record = t->tensor->theirs;
    double n = (double)record->numel, all = 0;
    expected_t e;
    expected_make(&e, record, spread->rule);
    for (int r = 0; r < runs; r++)
        all += t->of_run[r];
    double least = floor_of(spread, t, rms_of(t->centre, record->numel));
    double rms = fmax(sqrt(all / (n * runs)), least);
    double times =
        verdict_student(VERDICT_FAILURE / n, freedom_of(t->of_run, runs));
    double last = verdict_gamma(2, value_roundoff(record->dtype));
    for (uint64_t i = 0; i < record->numel; i++) {
        double own = sqrt(t->square[i] / runs);
        e.value[i] = t->centre[i];
        e.bound[i] = times * fmax(rms, own) + last * fabs(t->centre[i]);
        if (isnan(e.bound[i]))
            e.bound[i] = INFINITY;
    }
    verdict_judge(spread->j, t->tensor, &e);
}

fsdp_status_t
spread_run(spread_t *spread, long first, long last)
{
    judging_t *j = spread->j;
    const fsdp_trace_about_t *about = fsdp_trace_about(spread->trace);
    fsdp_replay_options_t options = {.dtype = FSDP_FP64,
                                     .first_step = first,
                                     .last_step = last,
                                     .meant = j->our_about,
                                     .context = spread,
                                     .show = show};
    qsort(spread->tensor, spread->count, sizeof *spread->tensor, by_record);
    for (int run = 0; run <= j->options.runs; run++) {
        spread->run = run;
        options.seed = j->options.seed * 1000003 + (uint64_t)run;
        options.perturbation = run > 0 ? moves_of(j, about) : 0;
        fsdp_status_t status = fsdp_trace_replay(spread->trace, &options);
        if (status != FSDP_OK)
            return status;
    }
    for (size_t i = 0; i < spread->count; i++)
        if (spread->tensor[i].centre != NULL &&
            spread->tensor[i].tensor->theirs->numel > 0)
            bound_tensor(spread, &spread->tensor[i]);
    return FSDP_OK;
}

void
spread_free(spread_t *spread)
{
    for (size_t i = 0; i < spread->count; i++) {
        fsdp_free(spread->tensor[i].centre);
        fsdp_free(spread->tensor[i].square);
        fsdp_free(spread->tensor[i].of_run);
    }
    fsdp_free(spread->loss);
    fsdp_free(spread->tensor);
    spread->tensor = NULL;
    spread->count = 0;
}
