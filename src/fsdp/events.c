/* Who watches: the event hook of tests and the observer of a verification. */

#include <stddef.h>

#include "fsdp/fsdp_common.h"

static void (*event_hook)(void *context, const fsdp_event_t *event);
static void *event_context;
static fsdp_observer_t observer;

void
fsdp_set_event_hook(void (*hook)(void *context, const fsdp_event_t *event),
                    void *context)
{
    event_hook = hook;
    event_context = context;
}

void
fsdp_set_observer(const fsdp_observer_t *new_observer)
{
    observer = new_observer != NULL ? *new_observer : (fsdp_observer_t){0};
}

void
fsdp_emit_event(fsdp_event_kind_t kind, const char *unit,
                fsdp_training_state_t state)
{
    fsdp_event_t event = {kind, unit, state};
    if (event_hook != NULL)
        event_hook(event_context, &event);
}

void
fsdp_emit_gathered(fsdp_parameter_t *parameter, const void *data)
{
    if (observer.gathered != NULL)
        observer.gathered(observer.context, parameter, data);
}

void
fsdp_emit_reduced(fsdp_parameter_t *parameter, const void *grad)
{
    if (observer.reduced != NULL)
        observer.reduced(observer.context, parameter, grad);
}
