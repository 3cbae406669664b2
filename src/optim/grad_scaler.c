/* PyTorch: torch/amp/grad_scaler.py; torch/distributed/fsdp/
 * sharded_grad_scaler.py. */
#include "fsdp/grad_scaler.h"

#include <math.h>
#include <string.h>

#include "fsdp/fault.h"
#include "fsdp/memory.h"
#include "fsdp/offload.h"
#include "fsdp/ops.h"
#include "fsdp/status.h"
#include "optim/gradients.h"
#include "optim/optimizer.h"

/* PyTorch: OptState. */
typedef enum stage { READY, UNSCALED, STEPPED } stage_t;

/* An optimizer since the last update. */
typedef struct use {
    const fsdp_optimizer_t *optimizer;
    stage_t stage;
    bool found_inf;
} use_t;

struct fsdp_grad_scaler {
    fsdp_grad_scaler_state_t state;
    bool enabled, scaled; /* a loss was scaled once */
    fsdp_comm_t *comm;
    use_t *use;
    size_t num_uses;
};

/* ---- options, state ------------------------------------------------------ */

fsdp_grad_scaler_options_t
fsdp_grad_scaler_options_default(void)
{
    return (fsdp_grad_scaler_options_t){.init_scale = 0x1p16,
                                        .growth_factor = 2,
                                        .backoff_factor = 0.5,
                                        .growth_interval = 2000,
                                        .enabled = true};
}

/* A float32 whose reciprocal is one, too. */
static bool
is_usable(double scale)
{
    return scale > 0 && isfinite((float)scale) && isfinite((float)(1 / scale));
}

static fsdp_status_t
check_scale(double scale)
{
    if (is_usable((float)scale))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "a gradient scale of %g; it must be above 0, and neither "
                      "it nor its reciprocal infinite in float32",
                      scale);
}

/* Written so that NaN is refused too. */
static fsdp_status_t
check_state(const fsdp_grad_scaler_state_t *s)
{
    if (!(s->growth_factor > 1 && isfinite(s->growth_factor)))
        return fsdp_error(FSDP_ERR_USAGE,
                          "a scale that grows by a factor of %g; it must be "
                          "above 1",
                          s->growth_factor);
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return fsdp_error(FSDP_ERR_USAGE,
                          "a scale that shrinks by a factor of %g; it must be "
                          "above 0 and below 1",
                          s->backoff_factor);
    if (s->growth_interval < 1 || s->growth_tracker < 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "a scale that grows every %ld steps, of which %ld "
                          "are done; give at least 1 and 0",
                          s->growth_interval, s->growth_tracker);
    return check_scale(s->scale);
}

fsdp_grad_scaler_t *
fsdp_grad_scaler_create(const fsdp_grad_scaler_options_t *options)
{
    fsdp_grad_scaler_options_t o =
        options != NULL ? *options : fsdp_grad_scaler_options_default();
    fsdp_grad_scaler_state_t state = {o.init_scale, o.growth_factor,
                                      o.backoff_factor, o.growth_interval, 0};
    if (o.enabled && check_state(&state) != FSDP_OK)
        return NULL;
    fsdp_grad_scaler_t *scaler = fsdp_calloc(FSDP_MEM_OTHER, sizeof *scaler);
    scaler->state = state;
    scaler->state.scale = (float)state.scale;
    scaler->enabled = o.enabled;
    scaler->comm = o.comm != NULL ? o.comm : fsdp_comm_world();
    return scaler;
}

void
fsdp_grad_scaler_destroy(fsdp_grad_scaler_t **scaler)
{
    if (*scaler == NULL)
        return;
    fsdp_free((*scaler)->use);
    fsdp_free(*scaler);
    *scaler = NULL;
}

double
fsdp_grad_scaler_get_scale(const fsdp_grad_scaler_t *scaler)
{
    return scaler->enabled ? scaler->state.scale : 1;
}

bool
fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler_t *scaler)
{
    return scaler->enabled;
}

fsdp_grad_scaler_state_t
fsdp_grad_scaler_get_state(const fsdp_grad_scaler_t *scaler)
{
    return scaler->state;
}

fsdp_status_t
fsdp_grad_scaler_set_state(fsdp_grad_scaler_t *scaler,
                           const fsdp_grad_scaler_state_t *state)
{
    if (!scaler->enabled)
        return FSDP_OK;
    fsdp_status_t status = check_state(state);
    if (status != FSDP_OK)
        return status;
    scaler->state = *state;
    scaler->state.scale = (float)state->scale;
    return FSDP_OK;
}

/* ---- an iteration -------------------------------------------------------- */

fsdp_tensor_t *
fsdp_grad_scaler_scale(fsdp_grad_scaler_t *scaler, fsdp_tape_t *tape,
                       fsdp_tensor_t *loss)
{
    if (!scaler->enabled)
        return loss;
    scaler->scaled = true;
    return fsdp_scale(tape, loss, scaler->state.scale);
}

static use_t *
find(const fsdp_grad_scaler_t *scaler, const fsdp_optimizer_t *optimizer)
{
    for (size_t i = 0; i < scaler->num_uses; i++)
        if (scaler->use[i].optimizer == optimizer)
            return &scaler->use[i];
    return NULL;
}

static use_t *
find_or_add(fsdp_grad_scaler_t *scaler, const fsdp_optimizer_t *optimizer)
{
    use_t *use = find(scaler, optimizer);
    if (use != NULL)
        return use;
    size_t n = scaler->num_uses;
    use_t *grown = fsdp_alloc(FSDP_MEM_OTHER, (n + 1) * sizeof *grown);
    if (n > 0)
        memcpy(grown, scaler->use, n * sizeof *grown);
    fsdp_free(scaler->use);
    grown[n] = (use_t){.optimizer = optimizer, .stage = READY};
    scaler->use = grown;
    scaler->num_uses = n + 1;
    return &grown[n];
}

static fsdp_status_t
check_scaled(const fsdp_grad_scaler_t *scaler, const char *what)
{
    if (scaler->scaled)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "%s before any loss was scaled: call "
                      "fsdp_grad_scaler_scale() for the backward",
                      what);
}

/* A gradient to be unscaled. */
typedef struct job {
    fsdp_dtype_t dtype;
    void *grad;
    double inverse;
    bool finite;
} job_t;

static void
unscale_piece(void *context, size_t begin, size_t count)
{
    job_t *job = context;
    void *grad = (char *)job->grad + begin * fsdp_dtype_size(job->dtype);
    job->finite = job->finite && fsdp_grad_is_finite(job->dtype, grad, count);
    fsdp_grad_multiply(job->dtype, grad, job->inverse, count);
}

/* Every rank takes part, whatever it has of the gradients. */
static bool
unscale_grads(const fsdp_grad_scaler_t *scaler,
              const fsdp_optimizer_t *optimizer)
{
    double inverse = (float)(1 / scaler->state.scale);
    int32_t found = 0;
    for (size_t i = 0; i < optimizer->num_slots; i++) {
        fsdp_dtype_t dtype = optimizer->slot[i].parameter->dtype;
        fsdp_local_t local = fsdp_parameter_local(optimizer->slot[i].parameter);
        if (local.grad == NULL)
            continue;
        job_t job = {dtype, local.grad, inverse, true};
        const void *vector = local.grad;
        fsdp_offload_in_pieces(&vector, 1, local.numel, fsdp_dtype_size(dtype),
                               unscale_piece, &job);
        found |= !job.finite;
    }
    if (!fsdp_fault(FSDP_FAULT_FOUND_INF_LOCAL))
        fsdp_all_reduce(scaler->comm, "found_inf", FSDP_INT32, FSDP_MAX,
                        FSDP_ORDER_TREE, &found, 1);
    return found != 0;
}

fsdp_status_t
fsdp_grad_scaler_unscale(fsdp_grad_scaler_t *scaler,
                         fsdp_optimizer_t *optimizer)
{
    if (!scaler->enabled)
        return FSDP_OK;
    fsdp_status_t status = check_scaled(scaler, "gradients unscaled");
    if (status != FSDP_OK)
        return status;
    use_t *use = find_or_add(scaler, optimizer);
    if (use->stage != READY)
        return fsdp_error(FSDP_ERR_USAGE,
                          "gradients unscaled %s; call "
                          "fsdp_grad_scaler_update() once an iteration, at "
                          "its end",
                          use->stage == UNSCALED
                              ? "a second time since the last update"
                              : "after the step");
    use->found_inf = unscale_grads(scaler, optimizer);
    use->stage = UNSCALED;
    return FSDP_OK;
}

fsdp_status_t
fsdp_grad_scaler_step(fsdp_grad_scaler_t *scaler, fsdp_optimizer_t *optimizer,
                      bool *stepped)
{
    bool finite = true;
    if (scaler->enabled) {
        fsdp_status_t status = check_scaled(scaler, "a step");
        use_t *use = find(scaler, optimizer);
        if (status == FSDP_OK && use != NULL && use->stage == STEPPED)
            status = fsdp_error(FSDP_ERR_USAGE,
                                "a second step of the optimizer since the last "
                                "update; call fsdp_grad_scaler_update() after "
                                "each");
        if (status == FSDP_OK && use == NULL)
            status = fsdp_grad_scaler_unscale(scaler, optimizer);
        if (status != FSDP_OK)
            return status;
        use = find(scaler, optimizer);
        use->stage = STEPPED;
        finite = !use->found_inf;
    }
    if (finite)
        fsdp_optimizer_step(optimizer);
    if (stepped != NULL)
        *stepped = finite;
    return FSDP_OK;
}

bool
fsdp_grad_scaler_found_inf(const fsdp_grad_scaler_t *scaler,
                           const fsdp_optimizer_t *optimizer)
{
    const use_t *use = find(scaler, optimizer);
    return use != NULL && use->found_inf;
}

/* Products are rounded to float32.  A scale that would become infinite, or 0,
 * stays: torch.amp's does when it grows; ShardedGradScaler's on a CPU does not,
 * and makes every gradient NaN from then on. */
static void
adapt(fsdp_grad_scaler_state_t *s, bool found_inf)
{
    double factor = 1;
    if (found_inf)
        factor = s->backoff_factor;
    else if (++s->growth_tracker == s->growth_interval)
        factor = s->growth_factor;
    if (factor == 1)
        return;
    double scale = (float)(s->scale * factor);
    s->scale = is_usable(scale) ? scale : s->scale;
    s->growth_tracker = 0;
}

fsdp_status_t
fsdp_grad_scaler_update(fsdp_grad_scaler_t *scaler)
{
    if (!scaler->enabled)
        return FSDP_OK;
    if (scaler->num_uses == 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "an update of the gradient scale without a step "
                          "since the last: call fsdp_grad_scaler_step() first");
    bool found_inf = false;
    for (size_t i = 0; i < scaler->num_uses; i++)
        found_inf |= scaler->use[i].found_inf;
    adapt(&scaler->state, found_inf);
    scaler->num_uses = 0;
    return FSDP_OK;
}

fsdp_status_t
fsdp_grad_scaler_update_to(fsdp_grad_scaler_t *scaler, double new_scale)
{
    if (!scaler->enabled)
        return FSDP_OK;
    fsdp_status_t status = check_scale(new_scale);
    if (status != FSDP_OK)
        return status;
    scaler->state.scale = (float)new_scale;
    scaler->num_uses = 0;
    return FSDP_OK;
}
