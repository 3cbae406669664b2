/* Who watches: the event hook of tests, the observers of a verification and a
 * recording. */

#include <stddef.h>

#include "fsdp/fsdp_common.h"
#include "fsdp/status.h"

static void (*event_hook)(void *context, const fsdp_event_t *event);
static void *event_context;
static fsdp_observer_t observers[FSDP_MAX_OBSERVERS];
static int num_observers;

void
fsdp_set_event_hook(void (*hook)(void *context, const fsdp_event_t *event),
                    void *context)
{
    event_hook = hook;
    event_context = context;
}

void
fsdp_add_observer(const fsdp_observer_t *observer)
{
    FSDP_CHECK(num_observers < FSDP_MAX_OBSERVERS, "more than %d observers",
               FSDP_MAX_OBSERVERS);
    observers[num_observers++] = *observer;
}

void
fsdp_remove_observer(const void *context)
{
    int kept = 0;
    for (int i = 0; i < num_observers; i++)
        if (observers[i].context != context)
            observers[kept++] = observers[i];
    num_observers = kept;
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
    for (int i = 0; i < num_observers; i++)
        if (observers[i].gathered != NULL)
            observers[i].gathered(observers[i].context, parameter, data);
}

void
fsdp_emit_unreduced(fsdp_parameter_t *parameter)
{
    for (int i = 0; i < num_observers; i++)
        if (observers[i].unreduced != NULL && parameter->grad != NULL)
            observers[i].unreduced(observers[i].context, parameter,
                                   parameter->grad->data);
}

void
fsdp_emit_reduced(fsdp_parameter_t *parameter, const void *grad)
{
    for (int i = 0; i < num_observers; i++)
        if (observers[i].reduced != NULL)
            observers[i].reduced(observers[i].context, parameter, grad);
}
