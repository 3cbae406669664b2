#include "optim/optimizer.h"

#include "fsdp/offload.h"
#include "optim/parameters.h"

fsdp_optimizer_t *
fsdp_optimizer_create(const fsdp_optimizer_class_t *kind, int num_states,
                      fsdp_module_t *model, double lr)
{
    fsdp_optimizer_t *optimizer =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *optimizer);
    fsdp_parameter_t **list = fsdp_parameters_of(model, &optimizer->num_slots);
    optimizer->kind = kind;
    optimizer->num_states = num_states;
    optimizer->lr = lr;
    optimizer->slot = fsdp_calloc(FSDP_MEM_OTHER, optimizer->num_slots *
                                                      sizeof *optimizer->slot);
    for (size_t i = 0; i < optimizer->num_slots; i++) {
        optimizer->slot[i].parameter = list[i];
        list[i]->num_optimizers++;
    }
    fsdp_free(list);
    return optimizer;
}

void
fsdp_optimizer_destroy(fsdp_optimizer_t **optimizer)
{
    fsdp_optimizer_t *o = *optimizer;
    if (o == NULL)
        return;
    for (size_t i = 0; i < o->num_slots; i++) {
        o->slot[i].parameter->num_optimizers--;
        for (int s = 0; s < o->num_states; s++)
            fsdp_offload_free(o->slot[i].state[s]);
    }
    fsdp_free(o->slot);
    fsdp_free(o);
    *optimizer = NULL;
}

/* Beside the parameter: in a file if that is in one. */
static void
make_states(const fsdp_optimizer_t *optimizer, fsdp_slot_t *slot,
            const fsdp_local_t *local)
{
    size_t bytes =
        local->padded_numel * fsdp_dtype_size(slot->parameter->dtype);
    for (int s = 0; s < optimizer->num_states; s++)
        slot->state[s] = fsdp_offload_calloc(fsdp_offload_of(local->data),
                                             FSDP_MEM_OPTIMIZER, bytes);
}

/* A parameter of one step. */
typedef struct job {
    const fsdp_optimizer_t *optimizer;
    const fsdp_slot_t *slot;
    const fsdp_local_t *local;
    size_t element;
} job_t;

/* An update of the elements of a piece, as if they were all. */
static void
update_piece(void *context, size_t begin, size_t count)
{
    const job_t *job = context;
    fsdp_slot_t slot = *job->slot;
    fsdp_local_t local = *job->local;
    local.data = (char *)local.data + begin * job->element;
    local.grad = (char *)local.grad + begin * job->element;
    local.numel = count;
    for (int s = 0; s < job->optimizer->num_states; s++)
        slot.state[s] = (char *)slot.state[s] + begin * job->element;
    job->optimizer->kind->update(job->optimizer, &slot, &local);
}

static void
update(const fsdp_optimizer_t *optimizer, const fsdp_slot_t *slot,
       const fsdp_local_t *local)
{
    job_t job = {optimizer, slot, local,
                 fsdp_dtype_size(slot->parameter->dtype)};
    const void *vector[2 + FSDP_OPTIMIZER_MAX_STATES] = {local->data,
                                                         local->grad};
    for (int s = 0; s < optimizer->num_states; s++)
        vector[2 + s] = slot->state[s];
    fsdp_offload_in_pieces(vector, 2 + optimizer->num_states, local->numel,
                           job.element, update_piece, &job);
}

/* A rank whose part is empty counts the step all the same, as PyTorch's state
 * of an empty shard does, so that the count is one number for all ranks. */
void
fsdp_optimizer_step(fsdp_optimizer_t *optimizer)
{
    for (size_t i = 0; i < optimizer->num_slots; i++) {
        fsdp_slot_t *slot = &optimizer->slot[i];
        if (!slot->parameter->requires_grad)
            continue;
        fsdp_local_t local = fsdp_parameter_local(slot->parameter);
        if (local.grad == NULL)
            continue;
        if (slot->step++ == 0)
            make_states(optimizer, slot, &local);
        update(optimizer, slot, &local);
    }
}

void
fsdp_optimizer_zero_grad(fsdp_optimizer_t *optimizer)
{
    for (size_t i = 0; i < optimizer->num_slots; i++)
        fsdp_parameter_local_zero_grad(optimizer->slot[i].parameter);
}

void
fsdp_optimizer_set_lr(fsdp_optimizer_t *optimizer, double lr)
{
    optimizer->lr = lr;
}

double
fsdp_optimizer_get_lr(const fsdp_optimizer_t *optimizer)
{
    return optimizer->lr;
}

const char *
fsdp_optimizer_state_name(const fsdp_optimizer_t *optimizer, int i)
{
    bool known = i >= 0 && i < optimizer->num_states;
    return known ? optimizer->kind->state_name[i] : NULL;
}

static fsdp_slot_t *
find_slot(const fsdp_optimizer_t *optimizer, const fsdp_parameter_t *parameter)
{
    for (size_t p = 0; p < optimizer->num_slots; p++)
        if (optimizer->slot[p].parameter == parameter)
            return &optimizer->slot[p];
    return NULL;
}

void *
fsdp_optimizer_state(fsdp_optimizer_t *optimizer,
                     const fsdp_parameter_t *parameter, int i)
{
    const fsdp_slot_t *slot = find_slot(optimizer, parameter);
    bool known = i >= 0 && i < optimizer->num_states;
    return slot != NULL && known ? slot->state[i] : NULL;
}

long
fsdp_optimizer_steps_of(const fsdp_optimizer_t *optimizer,
                        const fsdp_parameter_t *parameter)
{
    const fsdp_slot_t *slot = find_slot(optimizer, parameter);
    return slot != NULL ? slot->step : 0;
}

void
fsdp_optimizer_restore(fsdp_optimizer_t *optimizer, fsdp_parameter_t *parameter,
                       long steps)
{
    fsdp_slot_t *slot = find_slot(optimizer, parameter);
    FSDP_CHECK(slot != NULL, "parameter %s is not in the optimizer",
               parameter->name);
    for (int s = 0; s < optimizer->num_states; s++) {
        fsdp_offload_free(slot->state[s]);
        slot->state[s] = NULL;
    }
    slot->step = steps;
    if (steps > 0) {
        fsdp_local_t local = fsdp_parameter_local(parameter);
        make_states(optimizer, slot, &local);
    }
}
