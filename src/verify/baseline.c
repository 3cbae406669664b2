/* The same training without sharding: one process, one micro-batch after
 * another, and sums in the order that the contract names. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"
#include "verify/value.h"

/* ---- the model ---------------------------------------------------------- */

static void
pair_parameter(fsdp_verifier_t *verifier, verified_t *param)
{
    const fsdp_parameter_t *run = param->run;
    param->base = fsdp_module_find_parameter(verifier->baseline, run->name);
    FSDP_CHECK(param->base != NULL, "the task's build() makes no parameter %s",
               run->name);
    FSDP_CHECK(param->base->dtype == run->dtype &&
                   fsdp_parameter_numel(param->base) ==
                       fsdp_parameter_numel(run),
               "the task's build() makes parameter %s of another shape or type",
               run->name);
    param->base->requires_grad = run->requires_grad;
    fsdp_parameter_data(param->base);
    if (verifier->options.reduce_order == FSDP_ORDER_MPI) {
        size_t bytes = param->numel * sizeof(double);
        param->magnitude = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
        param->magnitude_of_j = fsdp_calloc(FSDP_MEM_BASELINE, bytes);
    }
}

static void
watch_baseline(fsdp_verifier_t *verifier)
{
    size_t watches = (size_t)verifier->num_watches;
    verifier->base_watch =
        fsdp_calloc(FSDP_MEM_BASELINE, watches * sizeof *verifier->base_watch);
    verifier->base_recorder =
        fsdp_calloc(FSDP_MEM_BASELINE,
                    (size_t)verifier->size * sizeof *verifier->base_recorder);
    verifier->base_recorder_now = verifier->base_recorder;
    for (size_t i = 0; i < watches; i++) {
        const char *name = verifier->watch[i].module->name;
        fsdp_module_t *module = fsdp_module_find(verifier->baseline, name);
        FSDP_CHECK(module != NULL, "the task's build() makes no module \"%s\"",
                   name);
        watch_begin(&verifier->base_watch[i], &verifier->base_recorder_now,
                    module, verifier->watch[i].unit);
    }
}

void
baseline_create(fsdp_verifier_t *verifier)
{
    const fsdp_task_t *task = &verifier->options.task;
    verifier->baseline = task->build(task->context);
    size_t count =
        (size_t)verifier->size * (size_t)verifier->options.micro_batches;
    verifier->losses =
        fsdp_calloc(FSDP_MEM_BASELINE, count * sizeof *verifier->losses);
    for (int p = 0; p < verifier->num_params; p++)
        pair_parameter(verifier, &verifier->param[p]);
    watch_baseline(verifier);
}

static void
free_parameter(verified_t *param)
{
    term_sum_destroy(&param->over_ranks);
    term_sum_destroy(&param->over_micros);
    fsdp_free(param->reduced);
    fsdp_free(param->grad);
    fsdp_free(param->state[0]);
    fsdp_free(param->state[1]);
    fsdp_free(param->magnitude);
    fsdp_free(param->magnitude_of_j);
}

void
baseline_destroy(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++)
        free_parameter(&verifier->param[p]);
    for (int r = 0; r < verifier->size; r++)
        recorder_destroy(&verifier->base_recorder[r]);
    fsdp_module_destroy(&verifier->baseline);
    fsdp_free(verifier->base_recorder);
    fsdp_free(verifier->base_watch);
    fsdp_free(verifier->losses);
}

/* ---- a micro-batch ------------------------------------------------------ */

/* The gradient of one micro-batch moves from the parameter into the sum. */
static void
take_gradient(const fsdp_verifier_t *verifier, verified_t *param)
{
    if (param->base->grad == NULL)
        return;
    size_t bytes = param->numel * fsdp_dtype_size(param->dtype);
    void *term = fsdp_alloc(FSDP_MEM_BASELINE, bytes);
    memcpy(term, param->base->grad->data, bytes);
    fsdp_parameter_zero_grad(param->base);
    if (param->magnitude_of_j != NULL)
        for (size_t i = 0; i < param->numel; i++)
            param->magnitude_of_j[i] += fabs(value_get(param->dtype, term, i));
    term_sum_add(&param->over_ranks, param->dtype,
                 verifier->options.reduce_order, term, param->numel);
}

void
baseline_run(fsdp_verifier_t *verifier, int j, int r)
{
    const fsdp_task_t *task = &verifier->options.task;
    int g = j * verifier->size + r;
    recorder_t *recorder = &verifier->base_recorder[r];
    recorder->on = verifier->options.level == FSDP_VERIFY_PHASE;
    verifier->base_recorder_now = recorder;

    fsdp_tape_options_t options =
        task->tape_options == NULL
            ? fsdp_tape_options_default()
            : task->tape_options(task->context, verifier->step, g);
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *loss =
        task->loss(task->context, tape, verifier->baseline, verifier->step, g);
    verifier->losses[g] = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    for (int p = 0; p < verifier->num_params; p++)
        take_gradient(verifier, &verifier->param[p]);
    recorder->on = false;
    fsdp_tape_destroy(&tape);
}

/* ---- sums --------------------------------------------------------------- */

static double
divide_factor(const fsdp_verifier_t *verifier)
{
    double factor = verifier->options.divide_factor;
    return factor != 0 ? factor : (double)verifier->size;
}

static void
divide(const verified_t *param, void *x, double factor)
{
    double divisor = value_round(param->dtype, factor);
    if (factor == 1)
        return;
    for (size_t i = 0; i < param->numel; i++)
        value_put(param->dtype, x, i, value_get(param->dtype, x, i) / divisor);
}

static void *
copy_of(const verified_t *param, const void *x)
{
    size_t bytes = param->numel * fsdp_dtype_size(param->dtype);
    void *copy = fsdp_alloc(FSDP_MEM_BASELINE, bytes);
    memcpy(copy, x, bytes);
    return copy;
}

/* Over micro-batches the order `ring` goes from left to right as well. */
static fsdp_reduce_order_t
order_over_micros(const fsdp_verifier_t *verifier)
{
    fsdp_reduce_order_t order = verifier->options.reduce_order;
    return order == FSDP_ORDER_TREE ? FSDP_ORDER_TREE : FSDP_ORDER_RANK;
}

static void
reduce_parameter(fsdp_verifier_t *verifier, verified_t *param)
{
    fsdp_free(param->reduced);
    param->reduced = NULL;
    void *sum = term_sum_take(&param->over_ranks, param->dtype,
                              verifier->options.reduce_order, param->numel,
                              param->chunk_numel);
    if (sum == NULL)
        return;
    divide(param, sum, divide_factor(verifier));
    if (verifier->options.level == FSDP_VERIFY_PHASE)
        param->reduced = copy_of(param, sum);
    term_sum_add(&param->over_micros, param->dtype, order_over_micros(verifier),
                 sum, param->numel);
}

void
baseline_reduce(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++)
        reduce_parameter(verifier, &verifier->param[p]);
}

void
baseline_gradients(fsdp_verifier_t *verifier)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        fsdp_free(param->grad);
        param->grad = term_sum_take(&param->over_micros, param->dtype,
                                    order_over_micros(verifier), param->numel,
                                    param->chunk_numel);
    }
}

void
baseline_adopt(verified_t *param, const void *grad)
{
    memcpy(param->grad, grad, param->numel * fsdp_dtype_size(param->dtype));
}

/* ---- the order `mpi` ---------------------------------------------------- */

/* gamma_n = n u / (1 - n u), u the unit roundoff (Higham). */
static double
gamma_of(double n, double u)
{
    return n * u / (1 - n * u);
}

/* Each of the two sums is within gamma_n sum|terms| / factor of the exact one
 * when no term meets more than n roundings; a division that underflows adds half
 * of the smallest number.  The last line makes up for the rounding of the bound
 * itself. */
double *
baseline_bound(const fsdp_verifier_t *verifier, const verified_t *param,
               const double *magnitude, int roundings)
{
    bool single = param->dtype == FSDP_FP32;
    double factor = fabs(divide_factor(verifier));
    double smallest = single ? 0x1p-149 : 0x1p-1074;
    double gamma = gamma_of(roundings, single ? 0x1p-24 : 0x1p-53);
    double own = gamma_of(roundings + 8, 0x1p-53);
    double *bound = fsdp_alloc(FSDP_MEM_BASELINE, param->numel * sizeof *bound);
    for (size_t i = 0; i < param->numel; i++) {
        bound[i] = 2 * gamma * magnitude[i] / factor + roundings * smallest;
        bound[i] *= 1 + own;
    }
    return bound;
}
