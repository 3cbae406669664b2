/* PyTorch: torch/distributed/fsdp/_unshard_param_utils.py. */
#include <string.h>

#include "fsdp/fsdp1_state.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "fsdp/tensor.h"

fsdp1_summon_options_t
fsdp1_summon_options_default(void)
{
    return (fsdp1_summon_options_t){.recurse = true, .writeback = true};
}

/* The units that a call is about; the caller frees. */
static fsdp1_state_t **
units_of(fsdp_module_t *module, bool recurse, int *count)
{
    fsdp1_state_t **states = fsdp1_states_below(module, count);
    if (!recurse)
        *count = *count > 0 && states[0]->module == module ? 1 : 0;
    return states;
}

/* ---- checks -------------------------------------------------------------- */

/* PyTorch: _validate_unshard_params_args(). */
static fsdp_status_t
check_options(const fsdp1_state_t *state, const fsdp1_summon_options_t *o)
{
    if (o->with_grads && o->offload_to_cpu)
        return fsdp_error(FSDP_ERR_USAGE,
                          "summon_full_params: with_grads and offload_to_cpu "
                          "do not go together");
    if (o->with_grads && !state->options.use_orig_params)
        return fsdp_error(
            FSDP_ERR_USAGE,
            "summon_full_params: with_grads needs units made with "
            "use_orig_params; \"%s\" is not",
            state->module->name);
    if (o->offload_to_cpu && state->handle != NULL &&
        !fsdp_flat_param_uses_sharded_strategy(state->handle))
        return fsdp_error(FSDP_ERR_USAGE,
                          "summon_full_params: offload_to_cpu is for cut "
                          "parameters; unit \"%s\" is NO_SHARD",
                          state->module->name);
    if (o->writeback && o->rank0_only)
        return fsdp_error(FSDP_ERR_USAGE,
                          "summon_full_params: writeback and rank0_only do not "
                          "go together; set one of them false");
    return FSDP_OK;
}

static fsdp_status_t
check_state(const fsdp1_state_t *state)
{
    if (state->training_state == FSDP1_FORWARD_BACKWARD)
        return fsdp_error(FSDP_ERR_USAGE,
                          "summon_full_params inside a forward or backward of "
                          "unit \"%s\"",
                          state->module->name);
    if (state->training_state == FSDP1_SUMMON_FULL_PARAMS)
        return fsdp_error(FSDP_ERR_USAGE,
                          "the parameters of unit \"%s\" are summoned already",
                          state->module->name);
    return FSDP_OK;
}

/* ---- one unit ------------------------------------------------------------ */

static bool
is_left_out(const fsdp1_state_t *state)
{
    return state->summon_options.rank0_only &&
           fsdp_comm_rank(state->handle->comm) != 0;
}

/* A copy unless the rank has it all in its own type, in which case that is lent
 * itself. */
static void
summon_params(fsdp1_state_t *state)
{
    fsdp_flat_param_handle_t *h = state->handle;
    bool whole = !fsdp_flat_param_uses_sharded_strategy(h);
    state->summoned_copy = !whole;
    state->summoned =
        whole ? h->local_shard : fsdp_flat_param_gather_full(h, h->local_shard);
    if (is_left_out(state)) {
        if (state->summoned_copy)
            fsdp_free(state->summoned);
        state->summoned_copy = false;
        state->summoned = NULL;
    }
    fsdp_flat_param_lend_full(h, state->summoned);
}

static void
give_grad(const fsdp_flat_view_t *view, const char *whole)
{
    fsdp_parameter_t *p = view->parameter;
    if (view->is_grad_none)
        return;
    p->grad = fsdp_parameter_new_grad(p);
    size_t size = fsdp_dtype_size(p->dtype);
    memcpy(p->grad->data, whole + view->offset * size, view->numel * size);
}

/* All ranks have reduced or none has. */
static void
summon_grads(fsdp1_state_t *state)
{
    fsdp_flat_param_handle_t *h = state->handle;
    char *mine = fsdp_flat_param_reduced_grad(h);
    if (mine == NULL)
        return;
    mine += fsdp_flat_param_grad_begin(h) * fsdp_dtype_size(h->dtype);
    char *whole = fsdp_flat_param_gather_full(h, mine);
    for (int i = 0; i < h->num_views && !is_left_out(state); i++)
        give_grad(&h->view[i], whole);
    fsdp_free(whole);
    state->summoned_gradients = true;
}

static void
summon(fsdp1_state_t *state, const fsdp1_summon_options_t *options)
{
    state->training_state = FSDP1_SUMMON_FULL_PARAMS;
    state->summon_options = *options;
    if (state->handle == NULL)
        return;
    summon_params(state);
    if (options->with_grads)
        summon_grads(state);
}

/* PyTorch: _writeback_to_local_shard(), which leaves the padding out too. */
static void
write_back_grads(fsdp_flat_param_handle_t *h)
{
    size_t size = fsdp_dtype_size(h->dtype), begin, count, at;
    char *sum = fsdp_flat_param_reduced_grad(h);
    for (int i = 0; i < h->num_views; i++) {
        const fsdp_tensor_t *grad = h->view[i].parameter->grad;
        if (grad == NULL)
            continue;
        fsdp_flat_view_in_shard(&h->view[i], h->rank, &begin, &count, &at);
        memcpy(sum + (fsdp_flat_param_grad_begin(h) + at) * size,
               (char *)grad->data + begin * size, count * size);
    }
}

static void
write_back(fsdp1_state_t *state)
{
    fsdp_flat_param_handle_t *h = state->handle;
    size_t bytes = h->chunk * fsdp_dtype_size(h->dtype);
    if (state->summoned_copy)
        memcpy(h->local_shard,
               (char *)state->summoned + (size_t)h->rank * bytes, bytes);
    if (state->summoned_gradients)
        write_back_grads(h);
}

/* What was gathered before is old now. */
static void
refresh(fsdp_flat_param_handle_t *h)
{
    if (fsdp_flat_param_keeps_whole(h))
        fsdp_flat_param_gather_updates(h);
    else
        fsdp_flat_param_reshard(h, true);
}

static void
release(fsdp1_state_t *state)
{
    fsdp_flat_param_handle_t *h = state->handle;
    state->training_state = FSDP1_IDLE;
    if (h == NULL)
        return;
    if (state->summon_options.writeback)
        write_back(state);
    if (state->summoned_gradients)
        for (int i = 0; i < h->num_views; i++)
            fsdp_parameter_zero_grad(h->view[i].parameter);
    if (state->summoned_copy)
        fsdp_free(state->summoned);
    state->summoned = NULL;
    state->summoned_copy = state->summoned_gradients = false;
    fsdp_flat_param_lend_gathered(h);
    if (state->summon_options.writeback)
        refresh(h);
}

/* ---- the calls ----------------------------------------------------------- */

fsdp_status_t
fsdp1_summon_full_params(fsdp_module_t *module,
                         const fsdp1_summon_options_t *options)
{
    fsdp1_summon_options_t o =
        options != NULL ? *options : fsdp1_summon_options_default();
    int count = 0;
    fsdp1_state_t **units = units_of(module, o.recurse, &count);
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < count && status == FSDP_OK; i++) {
        status = check_options(units[i], &o);
        if (status == FSDP_OK)
            status = check_state(units[i]);
    }
    for (int i = 0; i < count && status == FSDP_OK; i++) {
        fsdp1_lazy_init(units[i]);
        summon(units[i], &o);
    }
    fsdp_free(units);
    return status;
}

fsdp_status_t
fsdp1_release_full_params(fsdp_module_t *module)
{
    int count = 0, released = 0;
    fsdp1_state_t **units = units_of(module, true, &count);
    for (int i = 0; i < count; i++) {
        if (units[i]->training_state != FSDP1_SUMMON_FULL_PARAMS)
            continue;
        release(units[i]);
        released++;
    }
    fsdp_free(units);
    if (count > 0 && released == 0)
        return fsdp_error(
            FSDP_ERR_USAGE,
            "fsdp1_release_full_params: nothing is summoned below "
            "module \"%s\"",
            module->name);
    return FSDP_OK;
}
